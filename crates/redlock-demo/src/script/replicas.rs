//! Applies faults to replicas: a crash, a clean stop, a pause past the lease.

use nix::sys::signal::Signal;

use super::{Play, SOON, TIMES};
use crate::claims::Incarnation;
use crate::error::DemoError;
use crate::journal::Event;
use crate::observer::Record;
use crate::report::Kind;
use crate::timeline::FaultKind;
use redlock_client::clock;
use redlock_core::BootInstant;

impl Play<'_> {
    pub(super) async fn crashes(&mut self) -> Result<(), DemoError> {
        self.heading(&format!(
            "1. kill -9, {TIMES} times, of the replica that holds most: others take over when its leases end"
        ));
        for _ in 0..TIMES {
            let (who, count) = self.victim().await?;
            self.print(&format!("kill -9 {}, which holds {count} locks", who.name));
            let killed = self.stage.kill(&who).await?;
            self.fault(FaultKind::Kill, &who.name, killed, None);
            let held = self.stage.record().held_by(&who, killed);
            self.taken_over(Kind::Crash, &who, &held).await?;
            self.again(&who.name).await?;
        }
        Ok(())
    }

    pub(super) async fn clean_stops(&mut self) -> Result<(), DemoError> {
        self.heading(&format!(
            "2. All run again. SIGTERM, {TIMES} times, to the one that holds most: it passes its locks on at once"
        ));
        for _ in 0..TIMES {
            let (who, count) = self.victim().await?;
            let name = &who.name;
            self.print(&format!("SIGTERM to {name}, which holds {count} locks"));
            let asked = clock::now();
            self.fault(FaultKind::Stop, name, asked, None);
            let held = self.stage.record().held_by(&who, asked);
            let (took, clean) = self.stage.stop(&who, SOON).await?;
            self.taken_over(Kind::Release, &who, &held).await?;
            self.check(
                clean,
                &format!("{name} left with exit code 0"),
                format!("{} ms", took.as_millis()),
            );
            self.again(name).await?;
        }
        Ok(())
    }

    async fn again(&mut self, name: &str) -> Result<(), DemoError> {
        let who = self.stage.start_replica(name).await?;
        self.ready(&who).await
    }

    pub(super) async fn freeze(&mut self) -> Result<(), DemoError> {
        let (who, count) = self.victim().await?;
        let name = &who.name;
        self.heading(&format!(
            "5. SIGSTOP {name}, which holds {count} locks, until its leases end, then SIGCONT: it must report *lost* first"
        ));
        let paused = clock::now();
        self.stage.signal(&who, Signal::SIGSTOP)?;
        let held = self.stage.record().held_by(&who, clock::now());
        self.taken_over(Kind::Pause, &who, &held).await?;
        let woken = clock::now();
        self.stage.signal(&who, Signal::SIGCONT)?;
        self.fault(FaultKind::Pause, name, paused, Some(woken));
        let what = format!("{name} reports on each lock that it held");
        let first = self
            .stage
            .wait(SOON, &what, |record, _| {
                held.iter()
                    .map(|(lock, _)| first_event(record, &who, lock, woken))
                    .collect::<Option<Vec<_>>>()
            })
            .await?;
        let lost = |event: &Event, lock: &str, token: u64| {
            *event
                == Event::Lost {
                    lock: lock.to_owned(),
                    token,
                }
        };
        let wrong: Vec<String> = first
            .iter()
            .zip(&held)
            .filter(|(event, (lock, token))| !lost(event, lock, *token))
            .map(|(event, _)| format!("{event:?}"))
            .collect();
        self.check(
            wrong.is_empty(),
            &format!("{name} reported *lost* first for each lock, on waking"),
            if wrong.is_empty() {
                format!("{} of {}", held.len(), held.len())
            } else {
                wrong.join(", ")
            },
        );
        let (smaller, tokens) = {
            let record = self.stage.record();
            let later = held
                .iter()
                .filter(|(lock, token)| record.claims.successor(lock, *token).is_some());
            (
                later.count() == held.len(),
                held.iter().map(|(_, token)| token).max().copied(),
            )
        };
        self.check(
            smaller,
            &format!("the tokens of {name} are smaller than its successors'"),
            format!("the greatest that it held is {}", tokens.unwrap_or_default()),
        );
        Ok(())
    }

    /// Returns the replica that holds most locks, once every lock has a holder.
    async fn victim(&mut self) -> Result<(Incarnation, usize), DemoError> {
        self.stage
            .wait(SOON, "every lock has a holder", |record, now| {
                record.all_held(now).then_some(())
            })
            .await?;
        self.stage
            .holds_most()
            .filter(|(_, count)| *count > 0)
            .ok_or_else(|| DemoError::Missed {
                what: "a replica holds a lock".to_owned(),
                bound: SOON,
            })
    }
}

/// Returns the first event that a replica logged about a lock after `from`.
fn first_event(record: &Record, who: &Incarnation, lock: &str, from: BootInstant) -> Option<Event> {
    let lines = record.replica(who)?.lines.iter();
    let mut about = lines.filter(|line| line.at >= from && line.event.lock() == Some(lock));
    about.next().map(|line| line.event.clone())
}
