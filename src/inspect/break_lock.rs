//! `redlock break`: prevents any process from holding or acquiring a lock for one longest lease.

use std::{fmt::Write, time::Duration};

use super::{
    Session,
    status::{self, LockStatus, Status},
    text::seconds,
};
use crate::{
    clock,
    lease::LockName,
    masters::{Answer, Closed, Command, Completion},
};

/// A planned break, and the state of the lock before it.
#[derive(Debug)]
pub struct Plan {
    lock: LockName,
    before: Status,
    blocked: Duration,
}

/// The result of a break.
#[derive(Debug)]
pub struct Broken {
    /// Whether a majority has the reservation: no process can then renew or acquire the lock.
    pub majority: bool,
    pub text: String,
}

impl Plan {
    /// Reads the lock; writes nothing.
    pub async fn make(session: &Session, lock: &LockName) -> Self {
        Self {
            lock: lock.clone(),
            before: status::gather(session, std::slice::from_ref(lock), false).await,
            blocked: session.masters.fingerprint().longest_lease(),
        }
    }

    /// Returns the facts that the masters showed.
    #[must_use]
    pub const fn before(&self) -> &Status {
        &self.before
    }

    /// Returns the text that announces the break.
    #[must_use]
    pub fn text(&self) -> String {
        let masters: Vec<&str> = self.before.masters.iter().map(|master| &*master.name).collect();
        let holder = self.before.locks.first().map_or_else(String::new, holder);
        format!(
            "{holder}\nbreak writes the reservation `nobody` for {} (the longest lease) on {}.\n\
             It deletes no lease: the masters refuse the next renewal of the holder, the holder stops, and no \
             candidate acquires the lock before the reservation ends.\n",
            seconds(Some(self.blocked)),
            masters.join(", ")
        )
    }

    /// Writes the reservation on all masters. Without a majority the lock is not broken (P-58).
    ///
    /// # Errors
    /// Returns an error if the connection was closed meanwhile.
    pub async fn carry_out(&self, session: &Session, reason: &str) -> Result<Broken, Closed> {
        let request = Command::Break {
            longest_lease: self.blocked,
        };
        let lock = session.masters.lock(&self.lock);
        let completion = session.masters.ask(&lock, request).await?;
        let after = clock::unix_time();
        let Completion::Done {
            majority, answers, ..
        } = completion
        else {
            return Err(Closed);
        };
        let mut text = format!("broken: lock {}, reason: {reason}\n", self.lock);
        for (master, answer) in self.before.masters.iter().zip(answers.iter()) {
            let done = match answer {
                Some(Answer::Granted { .. }) => "reserved for no candidate".to_owned(),
                Some(Answer::Refused(_)) => "not reserved: refused".to_owned(),
                Some(Answer::Unknown(why)) => format!("not reserved: {why}"),
                Some(Answer::Slot(_)) | None => "not reserved: no answer".to_owned(),
            };
            let _ = writeln!(text, "  {} ({}): {done}", master.name, master.url);
        }
        let again = after + self.blocked;
        let again = jiff::Timestamp::from_second(i64::try_from(again.as_secs() + 1).unwrap_or(0));
        let again = again.map_or_else(|_| "later".to_owned(), |at| at.to_string());
        let _ = if majority {
            writeln!(
                text,
                "the lock can be taken again at {again}, in {}",
                seconds(Some(self.blocked))
            )
        } else {
            writeln!(
                text,
                "NOT broken: no majority carries the reservation, so the holder may keep the lock. Retry when more \
                    masters vote"
            )
        };
        Ok(Broken { majority, text })
    }
}

fn holder(lock: &LockStatus) -> String {
    let name = &lock.lock_name;
    match (&lock.holder_identity, &lock.holder_cluster, lock.fencing_token) {
        (Some(identity), Some(cluster), Some(token)) => format!(
            "lock {name} is held by {identity} of cluster {cluster}, token {token}, {} left",
            seconds(lock.remaining_milliseconds.map(Duration::from_millis))
        ),
        _ => format!(
            "lock {name}: no majority shows a holder; it is {}",
            lock.state.word()
        ),
    }
}
