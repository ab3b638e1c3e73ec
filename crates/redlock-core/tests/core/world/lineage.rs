//! How far back the watch of a holder reaches: it confirms a stop only if it has seen every pod of its lineage.

use std::collections::BTreeMap;

use super::World;
use crate::{plant::Plant, rate::Instant};

/// The holders of a fenced lock, as they see the pods of their clusters.
#[derive(Debug)]
pub(crate) struct Lineages {
    /// When the process of each candidate began to watch pods.
    watching: Vec<Instant>,
    /// When each lease was won, by its token.
    won: BTreeMap<u64, Instant>,
    /// The first lease of the lineage that each candidate continues.
    first: Vec<u64>,
    /// The mark of each token: all masters get the same one.
    marks: BTreeMap<u64, String>,
}

impl Lineages {
    pub(crate) fn new(candidates: usize) -> Self {
        Self {
            watching: vec![0; candidates],
            won: BTreeMap::new(),
            first: vec![0; candidates],
            marks: BTreeMap::new(),
        }
    }

    pub(super) fn watches(&mut self, candidate: usize, now: Instant) {
        self.watching[candidate] = now;
    }

    pub(super) fn won(&mut self, candidate: usize, (token, first): (u64, u64), now: Instant) {
        self.won.insert(token, now);
        self.first[candidate] = first;
    }
}

impl World {
    /// Whether the holder may judge that all pods are gone. A pod whose object was deleted by force may still run, and a
    /// holder that did not watch since the lineage began cannot know of all of them.
    pub(super) fn may_confirm(&self, candidate: usize) -> bool {
        let of = &self.lineages;
        let first = of.won.get(&of.first[candidate]).copied();
        let began = first.unwrap_or_default();
        let reaches_back = first.is_some() && of.watching[candidate] <= began;
        let watched_since = began.max(of.watching[candidate]);
        let uid = self.candidates[candidate].cluster.uid();
        let deleted = || self.agents.iter().filter(|agent| agent.cluster.uid() == uid);
        let seen = deleted().any(|agent| agent.forced.iter().any(|at| *at >= watched_since));
        (reaches_back || self.planted.model == Plant::AdopterReleases)
            && (!seen || self.planted.model == Plant::ForceDeletedGone)
    }

    /// The user deletes the object of a pod by force: its containers run on.
    pub(super) fn delete_by_force(&mut self, agent: usize, pod: usize) {
        self.count("pod deleted by force");
        let (now, unaware) = (self.now, self.rng.bool());
        let of = &mut self.agents[agent];
        (of.pods[pod].forced, of.pods[pod].unaware) = (true, unaware);
        of.forced.push(now);
    }

    /// Under one token, all masters have the same mark.
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
