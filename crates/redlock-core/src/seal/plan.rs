//! Plans the next step for masters without a seal, from the reads of all masters and their times.
//!
//! Pure. Owns the memory of the probes and the two ways to a seal: the ordinary one, from the registers of f+1 sealed
//! masters, and the fallback, when f+1 masters are without a seal at once. Silence proves nothing: a master that does
//! not answer counts neither as sealed nor as unsealed.
//!
//! Wait first, then read: the wait outlives every lease that the master may have granted before it lost its memory, and
//! every attempt in which its vote may still count. Registers read earlier would miss what such an attempt decides.

use std::{fmt, time::Duration};

use super::seen::{Knowledge, Seen};
use crate::{BootInstant, Fingerprint, Identity, MasterFacts, QuorumId, QuorumSize, eligibility, timing};

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
struct Probed {
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
    /// Read the registers of the sources now, after the wait (P-68), and seal the master with their maximum.
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

/// The reason why a master cannot be sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// Too few sealed masters answer, and too few are without a seal for a total loss.
    TooFew {
        /// f+1.
        needed: usize,
        /// Sealed masters that can be read.
        readable: usize,
        /// Masters that do not answer, or are refused.
        missing: usize,
    },
    /// The masters carried another fingerprint before they lost their memory.
    OtherFingerprint { found: String, own: String },
    /// This process has not seen a majority carry any fingerprint: the longest lease of the quorum is unknown to it.
    NeverSeen,
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFew {
                needed,
                readable,
                missing,
            } => write!(
                f,
                "waiting until {} more sealed masters can be read ({readable} of {needed} needed can be read; \
                 {missing} masters do not answer or are refused)",
                needed.saturating_sub(*readable),
            ),
            Self::OtherFingerprint { found, own } => write!(
                f,
                "the masters were sealed for {found}, and this process is configured for {own}; use the names and the \
                 longest lease of the quorum here. Processes that have them seal the masters"
            ),
            Self::NeverSeen => write!(
                f,
                "this process never saw which longest lease the quorum has, and assumes {} h. New masters, and masters \
                 for which no lease can be valid, are sealed at once by `redlock init` (`firstStart: Immediate` in a \
                 RedisQuorum); processes that have used this quorum before seal them by themselves",
                timing::LONGEST_LEASE_ALLOWED.as_secs() / 3_600
            ),
        }
    }
}

/// The origin of the decision to seal after a total loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealedBy {
    /// A process by itself: it must know the fingerprint of the quorum.
    Process,
    /// A person, who states that no lease is longer than those of the own fingerprint and of all that were seen (P-77).
    Person,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MasterState {
    Sealed,
    Unsealed,
    /// Not reached, or not eligible: neither counted nor touched (P-27, P-73).
    Unusable,
}

/// The way to a seal without f+1 sealed masters.
#[derive(Clone, Debug)]
enum AfterLoss {
    Open {
        wait: Duration,
    },
    Blocked {
        by: Blocked,
        wait: Duration,
        /// Whether the way is open after the wait.
        ends: bool,
    },
}

impl AfterLoss {
    const fn wait(&self) -> Duration {
        match self {
            Self::Open { wait } | Self::Blocked { wait, .. } => *wait,
        }
    }

    /// Returns the reason why no master may be sealed now. Another fingerprint is the one to report first: no further
    /// master changes it.
    fn blocked(&self, too_few: Option<Blocked>, waited: bool) -> Option<Blocked> {
        match self {
            Self::Open { .. } => too_few,
            Self::Blocked {
                by: by @ Blocked::OtherFingerprint { .. },
                ..
            } => Some(by.clone()),
            Self::Blocked { by, ends, .. } => too_few.or_else(|| (!(*ends && waited)).then(|| by.clone())),
        }
    }
}

/// The masters without a seal, as one observer has seen them so far.
#[derive(Clone, Debug)]
pub struct Quarantine {
    size: QuorumSize,
    fingerprint: Fingerprint,
    by: SealedBy,
    probes: Vec<Option<Probed>>,
    fingerprints: Seen,
}

impl Quarantine {
    #[must_use]
    pub fn new(size: QuorumSize, fingerprint: Fingerprint, by: SealedBy) -> Self {
        Self {
            size,
            fingerprint,
            by,
            probes: vec![None; size.masters()],
            fingerprints: Seen::default(),
        }
    }

    /// Records the probe that a master carries. A wait that runs for the same probe continues; another probe starts it
    /// again (P-70).
    pub fn note(&mut self, master: usize, probe: &str, received: BootInstant) {
        if let Some(slot) = self.probes.get_mut(master)
            && slot.as_ref().is_none_or(|probed| probed.probe != probe)
        {
            *slot = Some(Probed {
                probe: probe.to_owned(),
                since: received,
            });
        }
    }

    /// Returns the probe under which a master waits.
    pub fn probe(&self, master: usize) -> Option<&str> {
        self.probes
            .get(master)?
            .as_ref()
            .map(|probed| probed.probe.as_str())
    }

    /// Records a read and returns the plan.
    pub fn decide(&mut self, read: &Read, identity: &Identity) -> Plan {
        let quorum = identity.choose(read.responses.iter().flatten().map(|response| &response.facts));
        let standings = standings(read, identity.fingerprint(), quorum.as_ref());
        for (master, standing) in standings.iter().enumerate() {
            let response = read.responses.get(master).and_then(Option::as_ref);
            match (
                standing,
                response.filter(|response| response.facts.carries_probe()),
            ) {
                (MasterState::Unsealed, Some(response)) => {
                    self.note(master, &response.facts.probe, response.received)
                }
                // A lost connection may come back and show the same probe, which the master then carried throughout.
                (MasterState::Unusable, _) if response.is_none() => {}
                _ => self.probes[master] = None,
            }
            if let Some(response) = response {
                self.fingerprints.note(master, &response.facts);
            }
        }
        let after_loss = self.after_loss(read, identity);
        self.plan(read, &standings, quorum, &after_loss)
    }

    /// A majority may have granted leases of any length that was seen until it lost its memory (P-74).
    fn after_loss(&self, read: &Read, identity: &Identity) -> AfterLoss {
        let mut seen = self.fingerprints.and(identity.seen());
        let own = identity.fingerprint();
        for (master, response) in read.responses.iter().enumerate() {
            if let Some(response) = response {
                seen.note_begun_init(master, &response.facts, own);
            }
        }
        let wait = seen.seal_wait(&self.fingerprint);
        match seen.knowledge(own, identity.id().is_some(), self.size.majority()) {
            Knowledge::OfThisQuorum => AfterLoss::Open { wait },
            Knowledge::Unknown if self.by == SealedBy::Process => AfterLoss::Blocked {
                by: Blocked::NeverSeen,
                wait: self.fingerprint.longest_seal_wait(),
                ends: true,
            },
            Knowledge::Unknown => AfterLoss::Blocked {
                by: Blocked::NeverSeen,
                wait,
                ends: false,
            },
            Knowledge::Other { found } => AfterLoss::Blocked {
                by: Blocked::OtherFingerprint {
                    found,
                    own: own.to_owned(),
                },
                wait,
                ends: false,
            },
        }
    }

    fn plan(
        &self,
        read: &Read,
        standings: &[MasterState],
        quorum: Option<QuorumId>,
        after_loss: &AfterLoss,
    ) -> Plan {
        let of = |wanted: MasterState| -> Vec<usize> {
            (0..standings.len()).filter(|m| standings[*m] == wanted).collect()
        };
        let (sources, unsealed) = (of(MasterState::Sealed), of(MasterState::Unsealed));
        let majority = self.size.majority();
        // A sealed majority excludes longer leases of another quorum: a server from there does not lengthen the wait.
        let wait = if sources.len() >= majority {
            self.fingerprint.seal_wait()
        } else {
            after_loss.wait()
        };
        let end = |master: usize| self.probes[master].as_ref().map(|probed| probed.since + wait);
        let mut ends: Vec<BootInstant> = unsealed.iter().filter_map(|m| end(*m)).collect();
        ends.sort_unstable();
        // The end of the wait of f+1 masters that are without a seal at once. All of them show their probes
        // in this read (P-74).
        let all_lost = ends.get(majority - 1).copied();
        let too_few = (unsealed.len() < majority).then_some(Blocked::TooFew {
            needed: majority,
            readable: sources.len(),
            missing: of(MasterState::Unusable).len(),
        });
        let waited = all_lost.is_some_and(|lost| lost <= read.sent);
        let blocked = match sources.len() < majority {
            true => after_loss.blocked(too_few, waited),
            false => None,
        };
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

#[cfg(test)]
mod tests;
