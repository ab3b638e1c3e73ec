//! Plans the next step for masters without a seal, from the reads of all masters and their times.
//!
//! Pure. Owns the memory of the probes and the two ways to a seal: the ordinary one, from the registers of f+1 sealed
//! masters, and the fallback, when f+1 masters are without a seal at once. Silence proves nothing: a master that does
//! not answer counts neither as sealed nor as unsealed.
//!
//! Wait first, then read: the wait outlives every lease that the master may have granted before it lost its memory, and
//! every attempt in which its vote may still count. Registers read earlier would miss what such an attempt decides.

use std::{fmt, time::Duration};

use crate::{BootInstant, Fingerprint, Identity, MasterFacts, QuorumId, QuorumSize, eligibility};

/// One read of all masters at the same time.
#[derive(Clone, Debug)]
pub struct Read {
    /// The time before the first byte. A wait that was over at that time was over before every answer.
    pub sent: BootInstant,
    /// `None` for a master that was not reached.
    pub responses: Vec<Option<Response>>,
}

#[derive(Clone, Debug)]
pub struct Response {
    pub facts: MasterFacts,
    pub received: BootInstant,
}

/// A probe, and the time at which this process first saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    probe: String,
    since: BootInstant,
}

/// The next step for one master that answers and is not sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The master carries no probe of its present run: write one.
    Probe,
    Wait {
        until: BootInstant,
    },
    /// Read the registers of the sources now, and seal the master with their maximum.
    Seal,
    /// Seal the master with all known registers and the fallback's floor.
    Fallback,
    /// The master cannot be sealed before more sealed masters can be read, regardless of the wait.
    Blocked {
        until: BootInstant,
    },
}

/// The steps after one read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The start of the read on which the plan is based. A wait that had to be over was over at that time.
    pub read_at: BootInstant,
    /// The masters without a seal that can be sealed.
    pub steps: Vec<(usize, Step)>,
    /// The sealed masters that answered.
    pub sources: Vec<usize>,
    /// The id of the quorum under which masters are sealed by this plan; `None` if no master shows one.
    pub quorum: Option<QuorumId>,
    /// The reason why neither way to a seal is open, if so.
    pub blocked: Option<Blocked>,
}

impl Plan {
    /// Returns the masters whose step is exactly this one.
    pub fn of(&self, wanted: &Step) -> Vec<usize> {
        let wanted = self.steps.iter().filter(|(_, step)| step == wanted);
        wanted.map(|(master, _)| *master).collect()
    }
}

/// The reason why a master cannot be sealed: too few sealed masters answer, and too few are without a seal for a total
/// loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// f+1.
    pub needed: usize,
    /// Sealed masters that can be read.
    pub readable: usize,
    /// Masters that do not answer, or are refused.
    pub missing: usize,
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "waiting until {} more sealed masters can be read ({} of {} needed can be read; {} masters do not answer \
             or are refused)",
            self.needed.saturating_sub(self.readable),
            self.readable,
            self.needed,
            self.missing
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MasterState {
    Sealed,
    Unsealed,
    /// Not reached, or not eligible: neither counted nor touched.
    Unusable,
}

/// The masters without a seal, as one observer has seen them so far.
#[derive(Clone, Debug)]
pub struct Quarantine {
    size: QuorumSize,
    fingerprint: Fingerprint,
    seen: Vec<Option<Seen>>,
}

impl Quarantine {
    #[must_use]
    pub fn new(size: QuorumSize, fingerprint: Fingerprint) -> Self {
        Self {
            size,
            fingerprint,
            seen: vec![None; size.masters()],
        }
    }

    /// Records the probe that a master carries. A wait that runs for the same probe continues.
    pub fn note(&mut self, master: usize, probe: &str, received: BootInstant) {
        if let Some(slot) = self.seen.get_mut(master)
            && slot.as_ref().is_none_or(|seen| seen.probe != probe)
        {
            *slot = Some(Seen {
                probe: probe.to_owned(),
                since: received,
            });
        }
    }

    /// Returns the probe under which a master waits.
    pub fn probe(&self, master: usize) -> Option<&str> {
        self.seen.get(master)?.as_ref().map(|seen| seen.probe.as_str())
    }

    /// Records a read and returns the plan.
    pub fn decide(&mut self, read: &Read, identity: &Identity) -> Plan {
        let quorum = identity.choose(read.responses.iter().flatten().map(|response| &response.facts));
        let standings = standings(read, identity.fingerprint(), quorum.as_ref());
        for (master, standing) in standings.iter().enumerate() {
            let response = read.responses.get(master).and_then(Option::as_ref);
            match (
                standing,
                response.filter(|response| carries_probe(&response.facts)),
            ) {
                (MasterState::Unsealed, Some(response)) => {
                    self.note(master, &response.facts.probe, response.received)
                }
                // A lost connection may come back and show the same probe, which the master then carried throughout.
                (MasterState::Unusable, _) if response.is_none() => {}
                _ => self.seen[master] = None,
            }
        }
        self.plan(read, &standings, quorum)
    }

    fn plan(&self, read: &Read, standings: &[MasterState], quorum: Option<QuorumId>) -> Plan {
        let of = |wanted: MasterState| -> Vec<usize> {
            (0..standings.len()).filter(|m| standings[*m] == wanted).collect()
        };
        let (sources, unsealed) = (of(MasterState::Sealed), of(MasterState::Unsealed));
        let majority = self.size.majority();
        let wait = if sources.len() >= majority {
            self.fingerprint.seal_wait()
        } else {
            self.wait_after_loss(read)
        };
        let end = |master: usize| self.seen[master].as_ref().map(|seen| seen.since + wait);
        let mut ends: Vec<BootInstant> = unsealed.iter().filter_map(|m| end(*m)).collect();
        ends.sort_unstable();
        // The end of the wait of f+1 masters that are without a seal at once. All of them show their probes
        // in this read.
        let all_lost = ends.get(majority - 1).copied();
        let blocked = (sources.len() < majority && unsealed.len() < majority).then_some(Blocked {
            needed: majority,
            readable: sources.len(),
            missing: of(MasterState::Unusable).len(),
        });
        let step = |master: usize| {
            let Some(end) = end(master) else {
                return Step::Probe;
            };
            if blocked.is_some() {
                return Step::Blocked { until: end };
            }
            if sources.len() >= majority {
                return if end <= read.sent {
                    Step::Seal
                } else {
                    Step::Wait { until: end }
                };
            }
            match all_lost {
                Some(lost) if lost.max(end) <= read.sent => Step::Fallback,
                Some(lost) => Step::Wait { until: end.max(lost) },
                None => Step::Wait {
                    until: read.sent + wait,
                },
            }
        };
        Plan {
            read_at: read.sent,
            steps: unsealed.iter().map(|m| (*m, step(*m))).collect(),
            sources,
            quorum,
            blocked,
        }
    }

    /// Returns the wait when no majority carries the seals of this quorum: the longest wait of any quorum that left
    /// traces, because a majority may have granted leases of that length until it lost its memory. With a sealed
    /// majority that is impossible, so a server from another quorum does not lengthen the wait.
    fn wait_after_loss(&self, read: &Read) -> Duration {
        let traces = read.responses.iter().flatten();
        traces
            .filter_map(|response| response.facts.fingerprint.parse::<Fingerprint>().ok())
            .map(|other| other.seal_wait())
            .fold(self.fingerprint.seal_wait(), Duration::max)
    }
}

fn standings(read: &Read, fingerprint: &str, quorum: Option<&QuorumId>) -> Vec<MasterState> {
    let responses = || read.responses.iter().flatten();
    let standing = |response: &Option<Response>| {
        let Some(Response { facts, .. }) = response else {
            return MasterState::Unusable;
        };
        let twice = responses()
            .filter(|other| other.facts.run_id == facts.run_id)
            .count()
            > 1;
        match eligibility::check(facts, fingerprint, quorum) {
            Some(_) => MasterState::Unusable,
            None if twice => MasterState::Unusable,
            None if facts.sealed() => MasterState::Sealed,
            None => MasterState::Unsealed,
        }
    };
    read.responses.iter().map(standing).collect()
}

/// Reports whether a master carries a probe of its present run, whichever process wrote it; a probe of `init` counts
/// like any other.
fn carries_probe(facts: &MasterFacts) -> bool {
    facts
        .probe
        .strip_prefix(&facts.run_id)
        .is_some_and(|rest| rest.starts_with('|'))
}

#[cfg(test)]
mod tests;
