//! Lets one process at a time seal a master: each reads the registers of f+1 masters, and they would all do so at the same
//! moment.
//!
//! The turn is a key on the master without a seal, and expires. It protects nothing: two processes may seal one master, and a
//! master that does not answer truly delays its own seal alone.

use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use futures_util::future::join_all;

use redlock_core::{BootInstant, seal::Quarantine};

use super::{
    rounds::{self, NotDone},
    sealing::{SealExecutor, Sealed},
};
use crate::clock;

/// The time after which a process no longer counts as one of several.
const CONTESTED: Duration = Duration::from_secs(60);

/// The turns of other processes, which this process has seen.
#[derive(Debug, Default)]
pub(super) struct SealTurns {
    /// The times at which the turns of other processes were last seen, by master.
    contested: BTreeMap<usize, BootInstant>,
    /// The times until which a process whose seal failed leaves the turn to the others, by master.
    rests: BTreeMap<usize, BootInstant>,
}

impl SealTurns {
    /// Returns the masters whose turn this process has now, and those at which it could not be taken.
    pub(super) async fn take(
        &mut self,
        executor: &SealExecutor,
        quarantine: &Quarantine,
        mut masters: Vec<usize>,
    ) -> (Vec<usize>, Sealed) {
        let now = clock::now();
        self.rests.retain(|_, until| now < *until);
        masters.retain(|master| !self.rests.contains_key(master));
        let (mut own, mut failed) = (Vec::new(), Vec::new());
        for (master, turn) in ask_for_turns(executor, quarantine, &masters).await {
            match turn {
                Ok(turn) if turn == executor.turn.process => own.push(master),
                Ok(_) => drop(self.contested.insert(master, clock::now())),
                Err(why) => failed.push((master, Err(why))),
            }
        }
        (own, failed)
    }

    /// Records the results at the masters whose turn this process had. After a failure another process may succeed, such as
    /// one that reaches more masters.
    pub(super) fn finish(&mut self, executor: &SealExecutor, masters: &[usize], done: &Sealed) {
        let now = clock::now();
        for master in masters {
            let sealed = done.iter().any(|(one, result)| one == master && result.is_ok());
            let contested = self.contested.get(master);
            if !sealed && contested.is_some_and(|at| now.since(*at) < CONTESTED) {
                self.rests.insert(*master, now + executor.turn.lasts * 2);
            }
        }
    }
}

/// Extends the turn of this process at these masters, without an end: a read of many registers outlasts it.
pub(super) async fn extend_turns(
    executor: &SealExecutor,
    quarantine: &Quarantine,
    masters: &[usize],
) -> Infallible {
    loop {
        tokio::time::sleep(executor.turn.lasts / 3).await;
        // A master that does not answer delays its own seal alone.
        ask_for_turns(executor, quarantine, masters).await;
    }
}

/// Takes or extends the turn at these masters. Returns the process whose turn lasts at each.
async fn ask_for_turns(
    executor: &SealExecutor,
    quarantine: &Quarantine,
    masters: &[usize],
) -> Vec<(usize, Result<String, NotDone>)> {
    let asked = masters.iter().filter_map(|master| {
        let (link, probe) = (&executor.links[*master], quarantine.probe(*master)?);
        Some(async move { (*master, rounds::take_turn(link, probe, &executor.turn).await) })
    });
    join_all(asked).await
}
