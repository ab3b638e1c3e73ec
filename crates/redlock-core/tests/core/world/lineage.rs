//! The time since which each holder knows the pods of its cluster.

use std::collections::BTreeMap;

use redlock_core::{
    BootInstant, FencingToken, Marks,
    fence::{Begun, Predecessor, Reach, Succession},
};

use super::World;
use crate::{plant::Plant, rate::Instant};

/// The holders of a fenced lock, as they see the pods of their clusters.
#[derive(Debug)]
pub(crate) struct Lineages {
    /// The result of the last win of each candidate.
    won: Vec<Option<(u64, Succession, Begun)>>,
    /// The time since which the process of each candidate knows the pods.
    reach: Vec<Option<Reach<Instant>>>,
    /// The mark of each token: all masters get the same one.
    marks: BTreeMap<u64, String>,
}

impl Lineages {
    pub(crate) fn new(candidates: usize) -> Self {
        Self {
            won: vec![None; candidates],
            reach: vec![None; candidates],
            marks: BTreeMap::new(),
        }
    }

    /// Handles the start of a process, with which its watch of pods begins.
    pub(super) fn begin(&mut self, candidate: usize) {
        self.reach[candidate] = None;
    }

    pub(super) fn won(&mut self, candidate: usize, token: u64, (marks, succession): (Marks, Succession)) {
        self.won[candidate] = Some((token, succession, Begun::of(false, marks)));
    }

    /// Records that the lease is about to be marked.
    pub(super) fn starts(&mut self, candidate: usize, token: u64, planted: Plant, now: Instant) {
        let won = self.won[candidate].filter(|(won, ..)| *won == token);
        let reach = &mut self.reach[candidate];
        *reach = won.and_then(|(_, succession, begun)| {
            let predecessor = match succession.predecessor {
                Predecessor::Unknown if planted == Plant::EarlierPodsForgotten => Predecessor::Elsewhere,
                predecessor => predecessor,
            };
            let succession = Succession {
                predecessor,
                ..succession
            };
            Reach::of(FencingToken(token), succession, begun, *reach, Some(now))
        });
    }

    /// Reports whether the lease of the candidate begins a lineage.
    pub(super) fn begins(&self, candidate: usize) -> bool {
        self.won[candidate].is_some_and(|(token, succession, _)| succession.first.0 == token)
    }

    fn since(&self, candidate: usize, token: u64, now: BootInstant) -> Option<Instant> {
        let reach = self.reach[candidate].filter(|reach| reach.token.0 == token);
        reach.and_then(|reach| reach.since(now).ok())
    }
}

impl World {
    /// Reports whether the holder may judge that all pods are gone. A pod whose object was deleted by force
    /// may still run, and a holder that does not know the pods since the lineage began cannot know of all of
    /// them.
    pub(super) fn may_confirm(&self, candidate: usize, token: u64) -> bool {
        let adopter = (self.planted.model == Plant::AdopterReleases).then_some(self.now);
        let now = self.candidates[candidate].clock.moment(self.now);
        let Some(since) = self.lineages.since(candidate, token, now).or(adopter) else {
            return false;
        };
        let uid = self.candidates[candidate].cluster.uid();
        let mut own = self.agents.iter().filter(|agent| agent.cluster.uid() == uid);
        let seen = own.any(|agent| agent.forced.iter().any(|at| *at >= since));
        !seen || self.planted.model == Plant::ForceDeletedGone
    }

    /// Deletes the object of a pod by force, as a user: its containers continue to run.
    pub(super) fn delete_by_force(&mut self, agent: usize, pod: usize) {
        self.count("pod deleted by force");
        let (now, unaware) = (self.now, self.rng.bool());
        let of = &mut self.agents[agent];
        (of.pods[pod].forced, of.pods[pod].unaware) = (true, unaware);
        of.forced.push(now);
    }

    /// Deletes by force the object of every pod of the cluster that runs.
    pub(super) fn delete_running_by_force(&mut self, candidate: usize) {
        let agent = candidate % 2;
        for pod in 0..self.agents[agent].pods.len() {
            if self.agents[agent].pods[pod].runs && !self.agents[agent].pods[pod].forced {
                self.delete_by_force(agent, pod);
            }
        }
    }

    /// Checks that all masters have the same mark under one token.
    pub(super) fn check_mark(&mut self, master: usize) {
        let (token, mark) = &self.masters[master].registers.mark;
        if *token == 0 || mark == "nobody" {
            return;
        }
        match self.lineages.marks.get(token) {
            Some(first) if first != mark => {
                let how =
                    format!("master {master} has the mark {mark} under {token}, another one has {first}");
                self.checks.fail("mark", self.now, how);
            }
            Some(_) => {}
            None => drop(self.lineages.marks.insert(*token, mark.clone())),
        }
    }
}
