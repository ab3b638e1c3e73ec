//! Remembers which fingerprints the masters have carried, and for how long a process that seals must therefore wait.
//!
//! Pure. After a total loss the masters show nothing. What a process saw before decides whether its own fingerprint is
//! that of the quorum: one that is configured with shorter leases would seal while a longer lease is still valid.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{Fingerprint, MasterFacts, eligibility::RETIRED};

/// Returns the beginning of the probes of an `init` under this fingerprint, on the present process of a server.
#[must_use]
pub fn init_probe(facts: &MasterFacts, fingerprint: &str) -> String {
    format!("{}init|{fingerprint}|", facts.probe_prefix())
}

/// The fingerprint that a master carried last, and the server that carried it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Carried {
    run_id: String,
    fingerprint: String,
}

/// What a process knows about the fingerprint that it is configured with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// It is that of this quorum: a majority of the masters carried it, or the id of the quorum was stored under it.
    OfThisQuorum,
    /// The masters carried another one.
    Other { found: String },
    /// Too few masters carried any: the quorum may have leases of any length.
    Unknown,
}

/// The fingerprints that a process has seen, whether sealed or left by an earlier run.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// By the place of the master. A master that lost its memory keeps its entry.
    last: BTreeMap<usize, Carried>,
    /// The longest lease and T_acquire of any fingerprint.
    longest_lease: Duration,
    acquire_limit: Duration,
}

impl Seen {
    /// Records what a master shows. A retired server and one without a fingerprint show nothing.
    pub fn note(&mut self, master: usize, facts: &MasterFacts) {
        let text = &facts.fingerprint;
        let same = |carried: &Carried| carried.run_id == facts.run_id && carried.fingerprint == *text;
        if text.is_empty() || text.starts_with(RETIRED) || self.last.get(&master).is_some_and(same) {
            return;
        }
        if let Ok(fingerprint) = text.parse::<Fingerprint>() {
            self.longest_lease = self.longest_lease.max(fingerprint.longest_lease());
            self.acquire_limit = self.acquire_limit.max(fingerprint.acquire_limit());
        }
        let carried = Carried {
            run_id: facts.run_id.clone(),
            fingerprint: text.clone(),
        };
        self.last.insert(master, carried);
    }

    /// Counts a master that carries a probe of an `init` under this fingerprint as one that carries the fingerprint.
    ///
    /// Only the present probe counts: the master has not been sealed since, and no lease was valid when `init` began.
    pub fn note_begun_init(&mut self, master: usize, facts: &MasterFacts, own: &str) {
        if !facts.sealed() && facts.probe.starts_with(&init_probe(facts, own)) {
            let carried = Carried {
                run_id: facts.run_id.clone(),
                fingerprint: own.to_owned(),
            };
            self.last.insert(master, carried);
        }
    }

    /// Adds what `later` has seen since.
    #[must_use]
    pub fn and(&self, later: &Self) -> Self {
        let mut all = self.clone();
        all.last
            .extend(later.last.iter().map(|(m, carried)| (*m, carried.clone())));
        all.longest_lease = all.longest_lease.max(later.longest_lease);
        all.acquire_limit = all.acquire_limit.max(later.acquire_limit);
        all
    }

    /// Judges the own fingerprint (P-29). `stored`: the id of the quorum is known under it.
    #[must_use]
    pub fn knowledge(&self, own: &str, stored: bool, majority: usize) -> Knowledge {
        let mut servers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for carried in self.last.values() {
            let of = servers.entry(&carried.fingerprint).or_default();
            of.insert(&carried.run_id);
        }
        let own_count = servers.remove(own).map_or(0, |of| of.len());
        let other = servers
            .into_iter()
            .map(|(text, of)| (of.len(), text))
            .max()
            .filter(|(count, _)| *count > own_count);
        match other {
            _ if own_count >= majority => Knowledge::OfThisQuorum,
            Some((count, found)) if !stored || count >= majority => Knowledge::Other {
                found: found.chars().take(300).collect(),
            },
            _ if stored => Knowledge::OfThisQuorum,
            _ => Knowledge::Unknown,
        }
    }

    /// Returns the wait after which no lease can be valid that was granted under any fingerprint seen, or under `own`.
    #[must_use]
    pub fn seal_wait(&self, own: &Fingerprint) -> Duration {
        own.lengthened(self.longest_lease, self.acquire_limit).seal_wait()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "own";

    fn shows(run_id: &str, fingerprint: &str) -> MasterFacts {
        MasterFacts {
            run_id: run_id.into(),
            fingerprint: fingerprint.into(),
            ..MasterFacts::default()
        }
    }

    fn seen(shown: &[(usize, &str, &str)]) -> Seen {
        let mut seen = Seen::default();
        for (master, run_id, fingerprint) in shown {
            seen.note(*master, &shows(run_id, fingerprint));
        }
        seen
    }

    fn other() -> Knowledge {
        Knowledge::Other {
            found: "other".into(),
        }
    }

    #[test]
    fn the_own_fingerprint_is_that_of_the_quorum_once_a_majority_carried_it() {
        for (shown, unstored, stored) in [
            (&[][..], Knowledge::Unknown, Knowledge::OfThisQuorum),
            (&[(0, "a", OWN)], Knowledge::Unknown, Knowledge::OfThisQuorum),
            (
                &[(0, "a", OWN), (1, "b", OWN)],
                Knowledge::OfThisQuorum,
                Knowledge::OfThisQuorum,
            ),
            // One server under two names.
            (
                &[(0, "a", OWN), (1, "a", OWN)],
                Knowledge::Unknown,
                Knowledge::OfThisQuorum,
            ),
            // The memory of the masters is lost: what they carried before counts.
            (
                &[
                    (0, "a", OWN),
                    (1, "b", OWN),
                    (0, "c", ""),
                    (1, "d", "retired: m1"),
                ],
                Knowledge::OfThisQuorum,
                Knowledge::OfThisQuorum,
            ),
            (&[(0, "a", "other")], other(), Knowledge::OfThisQuorum),
            (
                &[(0, "a", "other"), (1, "b", OWN)],
                Knowledge::Unknown,
                Knowledge::OfThisQuorum,
            ),
            (&[(0, "a", "other"), (1, "b", "other")], other(), other()),
            (
                &[(0, "a", OWN), (1, "b", OWN), (0, "a", "other"), (1, "b", "other")],
                other(),
                other(),
            ),
        ] {
            assert_eq!(seen(shown).knowledge(OWN, false, 2), unstored, "{shown:?}");
            assert_eq!(seen(shown).knowledge(OWN, true, 2), stored, "{shown:?}");
        }
    }

    #[test]
    fn the_wait_covers_every_fingerprint_that_was_ever_seen_and_is_bounded() {
        let of = |seconds| {
            Fingerprint::new(
                vec!["m".into()],
                Duration::from_secs(seconds),
                Duration::from_secs(2),
            )
        };
        let own = of(60);
        assert_eq!(Seen::default().seal_wait(&own), own.seal_wait());
        let text = |seconds| of(seconds).to_string();
        let (short, long) = (text(5), text(100));
        let later = seen(&[(0, "a", &long), (0, "a", &short), (0, "b", "")]);
        assert_eq!(Seen::default().and(&later).seal_wait(&own), of(100).seal_wait());
        let seconds = Duration::from_secs;
        let forged = Fingerprint::new(vec!["m".into()], seconds(1 << 40), seconds(1 << 40)).to_string();
        assert_eq!(
            seen(&[(0, "a", &forged)]).seal_wait(&own),
            own.longest_seal_wait()
        );
    }
}
