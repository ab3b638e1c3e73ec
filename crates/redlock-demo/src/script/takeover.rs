//! Measures takeovers: how a lock moves from one replica to another.

use super::{AFTER_LEASE, Play};
use crate::claims::Incarnation;
use crate::error::DemoError;
use crate::observer::Record;
use crate::report::{Kind, Takeover, milliseconds};

impl Play<'_> {
    /// Waits until other replicas hold every lock that `from` held, and measures each takeover.
    pub(super) async fn taken_over(
        &mut self,
        kind: Kind,
        from: &Incarnation,
        held: &[(String, u64)],
    ) -> Result<(), DemoError> {
        let what = format!("the {} locks of {} are held by others", held.len(), from.name);
        let takeovers = self
            .stage
            .wait(AFTER_LEASE, &what, |record, _| {
                held.iter()
                    .map(|(lock, token)| takeover(record, kind, from, lock, *token))
                    .collect::<Option<Vec<_>>>()
            })
            .await?;
        for t in &takeovers {
            let after = match t.kind {
                Kind::Release => "after the release",
                Kind::Crash | Kind::Pause => "after the end of the lease",
            };
            self.print(&format!(
                "{:<28} {} → {}  token {} → {}  {:.1} ms {after}",
                t.lock, t.from, t.to, t.from_token, t.token, t.milliseconds
            ));
        }
        let count = takeovers.len();
        self.check(
            count > 0,
            &format!("the locks of {} found other holders", from.name),
            count.to_string(),
        );
        self.findings.takeovers.extend(takeovers);
        Ok(())
    }
}

/// Returns `None` until the successor is known and its lease was seen on a majority of the masters.
fn takeover(record: &Record, kind: Kind, from: &Incarnation, lock: &str, token: u64) -> Option<Takeover> {
    let successor = record
        .claims
        .successor(lock, token)
        .filter(|claim| claim.who != *from)?;
    let mut before = record.claims.all().iter();
    let before = before.find(|claim| claim.who == *from && claim.lock == lock && claim.token == token)?;
    let account = record.accounts.get(lock)?;
    let old = account.of_claim(&from.name, before.began)?;
    let new = account.of_claim(&successor.who.name, successor.began)?;
    // Until the new lease was seen on the masters, `new` may be an earlier lease of the same replica.
    let seen = new.seen.filter(|seen| Some(*seen) > old.seen)?;
    let ended = match kind {
        Kind::Crash | Kind::Pause => old.free_at(),
        Kind::Release => before.ended?,
    };
    Some(Takeover {
        kind,
        lock: lock.to_owned(),
        from: from.name.clone(),
        to: successor.who.name.clone(),
        from_token: token,
        token: successor.token,
        milliseconds: milliseconds(ended, successor.began),
        seen_milliseconds: milliseconds(ended, seen),
    })
}
