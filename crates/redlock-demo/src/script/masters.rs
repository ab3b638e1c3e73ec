//! Applies faults to masters: one hangs, one loses its memory.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{AFTER_LEASE, Play, SOON};
use crate::error::DemoError;
use crate::manifests::LEASE_SECONDS;
use crate::observer::Record;
use crate::timeline::FaultKind;
use redlock_client::clock;
use redlock_core::{BootInstant, timing};

/// Each renewal moves the end of a lease by a third of it, so an end that moved by half was renewed twice.
const TWO_RENEWALS: Duration = Duration::from_millis(LEASE_SECONDS * 500);

/// A master that was started empty, and the time of that start.
pub(super) struct Emptied {
    master: usize,
    at: BootInstant,
}

impl Play<'_> {
    pub(super) async fn hang(&mut self, master: usize) -> Result<(), DemoError> {
        let name = self.stage.masters[master].clone();
        self.heading(&format!(
            "3. SIGSTOP {name}: the other four continue, and no replica waits for it"
        ));
        let paused = clock::now();
        self.stage.server(master)?.pause()?;
        let before = holders(&self.stage.record());
        self.stage
            .wait(SOON, &format!("{name} is silent"), |record, _| {
                (!record.masters[master].answers).then_some(())
            })
            .await?;
        let what = format!("every lease is renewed twice without {name}");
        self.stage
            .wait(AFTER_LEASE, &what, |record, _| {
                renewed(record, &before).then_some(())
            })
            .await?;
        let kept = holders(&self.stage.record())
            .iter()
            .filter(|(lock, now)| before.get(*lock).is_some_and(|was| was.0 == now.0))
            .count();
        self.check(
            kept == before.len(),
            &format!("no lock changed its holder while {name} hung"),
            format!("{kept} of {} renewed and kept", before.len()),
        );
        self.stage.server(master)?.resume()?;
        self.fault(FaultKind::Pause, &name, paused, Some(clock::now()));
        self.takes_part(master, &format!("{name} votes again and shows every lease"))
            .await
    }

    pub(super) async fn empty(&mut self, master: usize) -> Result<Emptied, DemoError> {
        let name = self.stage.masters[master].clone();
        let wait = timing::seal_wait(Duration::from_secs(LEASE_SECONDS), timing::DEFAULT_ACQUIRE_LIMIT)
            .as_secs_f64();
        self.heading(&format!(
            "4. Restart {name} empty: without its memory it has no vote until it is sealed again"
        ));
        let run_id = self.stage.record().masters[master].run_id.clone();
        self.stage.server(master)?.restart_empty()?;
        let at = clock::now();
        self.stage
            .wait(
                SOON,
                &format!("{name} is back without a seal, and a candidate begins to seal it"),
                |record, _| {
                    let view = &record.masters[master];
                    (view.answers && view.run_id != run_id && !view.sealed && view.probed).then_some(())
                },
            )
            .await?;
        self.check(
            true,
            &format!("{name} is in quarantine"),
            format!("its seal follows in about {wait:.1} s, while the demo continues"),
        );
        Ok(Emptied { master, at })
    }

    pub(super) async fn sealed_again(&mut self, Emptied { master, at }: Emptied) -> Result<(), DemoError> {
        let name = self.stage.masters[master].clone();
        self.heading(&format!(
            "6. {name}, which lost its memory, is sealed again after the longest lease has passed"
        ));
        let wait = timing::seal_wait(Duration::from_secs(LEASE_SECONDS), timing::DEFAULT_ACQUIRE_LIMIT);
        let sealed = self
            .stage
            .wait(wait + SOON, &format!("{name} is sealed again"), |record, now| {
                record.masters[master].sealed.then_some(now)
            })
            .await?;
        self.fault(FaultKind::Empty, &name, at, Some(sealed));
        let after = sealed.since(at).as_secs_f64();
        self.check(
            true,
            &format!("{name} is sealed again"),
            format!("seen {after:.1} s after its restart"),
        );
        self.takes_part(master, &format!("{name} shows every lease again"))
            .await
    }

    async fn takes_part(&mut self, master: usize, what: &str) -> Result<(), DemoError> {
        self.stage
            .wait(AFTER_LEASE, what, |record, now| {
                let view = &record.masters[master];
                let shows = record
                    .accounts
                    .values()
                    .all(|account| account.shown_by(master, now));
                (view.answers && view.sealed && shows).then_some(())
            })
            .await?;
        self.check(true, what, "seen".to_owned());
        Ok(())
    }
}

/// Returns the nonce and end of the lease of each lock, as the masters show them.
fn holders(record: &Record) -> BTreeMap<String, (String, BootInstant)> {
    let of = |(lock, account): (&String, &crate::tenure::Account)| {
        account
            .current()
            .map(|tenure| (lock.clone(), (tenure.nonce.clone(), tenure.free_at())))
    };
    record.accounts.iter().filter_map(of).collect()
}

fn renewed(record: &Record, before: &BTreeMap<String, (String, BootInstant)>) -> bool {
    let now = holders(record);
    before
        .iter()
        .all(|(lock, (_, was))| now.get(lock).is_some_and(|(_, end)| *end > *was + TWO_RENEWALS))
}
