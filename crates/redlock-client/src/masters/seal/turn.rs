//! Lets one process at a time seal a master: each reads the registers of f+1 masters, and they would all do so at the same
//! moment.
//!
//! The turn is a key on the master without a seal, and expires. It protects nothing: two processes may seal one master, and a
//! master that does not answer truly delays its own seal alone.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::future::join_all;

use redlock_core::{BootInstant, seal::Quarantine};

use super::{
    rounds::{self, NotDone, Turn},
    sealing::Sealed,
};
use crate::{clock, masters::link::Link};

/// The time after which a process no longer counts as one of several.
const CONTESTED: Duration = Duration::from_secs(60);

/// The turns of this process.
#[derive(Debug)]
pub(super) struct SealTurns {
    own: Turn,
    /// The times at which the turns of other processes were last seen, by master.
    contested: BTreeMap<usize, BootInstant>,
    /// The times until which a process whose seal failed leaves the turn to the others, by master.
    rests: BTreeMap<usize, BootInstant>,
}

impl SealTurns {
    pub(super) const fn new(own: Turn) -> Self {
        Self {
            own,
            contested: BTreeMap::new(),
            rests: BTreeMap::new(),
        }
    }

    /// Returns the masters whose turn this process has now, and those at which it could not be taken.
    pub(super) async fn take(
        &mut self,
        links: &Arc<[Arc<Link>]>,
        quarantine: &Quarantine,
        mut masters: Vec<usize>,
    ) -> (Vec<usize>, Sealed) {
        let now = clock::now();
        self.rests.retain(|_, until| now < *until);
        masters.retain(|master| !self.rests.contains_key(master));
        let turn = &self.own;
        let asked = masters.into_iter().filter_map(|master| {
            let (link, probe) = (&links[master], quarantine.probe(master)?);
            Some(async move { (master, rounds::take_turn(link, probe, turn).await) })
        });
        let answers: Vec<(usize, Result<String, NotDone>)> = join_all(asked).await;
        let (mut own, mut failed) = (Vec::new(), Vec::new());
        for (master, turn) in answers {
            match turn {
                Ok(turn) if turn == self.own.process => own.push(master),
                Ok(_) => drop(self.contested.insert(master, clock::now())),
                Err(why) => failed.push((master, Err(why))),
            }
        }
        (own, failed)
    }

    /// Extends the turn of this process at these masters, without an end: a read of many registers outlasts it.
    pub(super) async fn extend(&self, links: &Arc<[Arc<Link>]>, quarantine: &Quarantine, masters: &[usize]) {
        loop {
            tokio::time::sleep(self.own.lasts / 3).await;
            let asked = masters.iter().filter_map(|master| {
                let (link, probe) = (&links[*master], quarantine.probe(*master)?);
                Some(rounds::take_turn(link, probe, &self.own))
            });
            // A master that does not answer delays its own seal alone.
            join_all(asked).await;
        }
    }

    /// Records the results at the masters whose turn this process had. After a failure another process may succeed, such as
    /// one that reaches more masters.
    pub(super) fn finish(&mut self, masters: &[usize], done: &Sealed) {
        let now = clock::now();
        for master in masters {
            let sealed = done.iter().any(|(one, result)| one == master && result.is_ok());
            let contested = self.contested.get(master);
            if !sealed && contested.is_some_and(|at| now.since(*at) < CONTESTED) {
                self.rests.insert(*master, now + self.own.lasts * 2);
            }
        }
    }
}
