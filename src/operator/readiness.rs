//! Computes whether this process can take part, and the obstacles if not. Readiness does not depend on being active.

use serde::Serialize;

use super::state::{InUse, InUseQuorum, ReadinessHistory, ReadinessRule};
use crate::masters::MasterStatus;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Readiness {
    pub(crate) ready: bool,
    /// One sentence for human readers.
    pub(crate) message: String,
    quorums: Vec<QuorumReadiness>,
    /// The quorums whose first majority is still awaited.
    #[serde(skip)]
    pub(crate) unseen: Vec<String>,
    /// The problems of declared objects; they do not affect the readiness of the other objects.
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct QuorumReadiness {
    name: String,
    ready: bool,
    masters: usize,
    /// The number of masters whose votes count.
    voting: usize,
    required: usize,
    /// The time until a majority is sealed, if nothing else is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds_left: Option<u64>,
    missing: Vec<Missing>,
}

/// A master without a vote.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Missing {
    master: String,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds_left: Option<u64>,
}

impl Readiness {
    pub(crate) fn of(in_use: &InUse, seen: &ReadinessHistory) -> Self {
        let mut quorums: Vec<QuorumReadiness> = in_use.quorums.iter().map(QuorumReadiness::of).collect();
        quorums.extend(in_use.opening.iter().map(|name| QuorumReadiness::opening(name)));
        let waiting: Vec<String> = quorums
            .iter()
            .filter(|quorum| !quorum.ready)
            .map(QuorumReadiness::sentence)
            .collect();
        let nothing_usable = quorums.is_empty() && !in_use.problems.is_empty();
        // The quorums without a majority so far, whether or not they are open.
        let unseen: Vec<String> = match &in_use.readiness_rule {
            ReadinessRule::Once(needed) if !seen.ready => {
                let unseen = needed.difference(&seen.majorities);
                unseen.cloned().collect()
            }
            ReadinessRule::Once(_) | ReadinessRule::Now => Vec::new(),
        };
        let waits = match in_use.readiness_rule {
            ReadinessRule::Once(_) => !unseen.is_empty(),
            ReadinessRule::Now => !waiting.is_empty() || nothing_usable,
        };
        let message = if in_use.stopping {
            "stopping".to_owned()
        } else if !in_use.awaited.is_empty() {
            format!("waiting for the first list of: {}", in_use.awaited.join(", "))
        } else if !unseen.is_empty() {
            let why = waiting
                .iter()
                .chain(&in_use.problems)
                .cloned()
                .collect::<Vec<_>>();
            format!(
                "waiting until this replica has seen a majority of the masters once, of: {} ({})",
                unseen.join(", "),
                why.join("; ")
            )
        } else if nothing_usable {
            "no quorum can be used: see the problems".to_owned()
        } else if quorums.is_empty() {
            "nothing is declared".to_owned()
        } else if waiting.is_empty() {
            "can take part".to_owned()
        } else {
            waiting.join("; ")
        };
        Self {
            ready: in_use.awaited.is_empty() && !in_use.stopping && !waits,
            message,
            unseen,
            quorums,
            problems: in_use.problems.clone(),
        }
    }
}

impl QuorumReadiness {
    fn of(quorum: &InUseQuorum) -> Self {
        let (status, size) = (quorum.masters.status(), quorum.masters.size());
        let voting = status.iter().filter(|master| master.accepts_writes()).count();
        let missing: Vec<Missing> = status
            .iter()
            .filter(|master| !master.accepts_writes())
            .map(Missing::of)
            .collect();
        let mut left: Vec<u64> = missing
            .iter()
            .filter_map(|missing| missing.seconds_left)
            .collect();
        left.sort_unstable();
        // The time of the seal that completes the majority, if enough seals are pending.
        let seconds_left = size
            .majority()
            .checked_sub(voting + 1)
            .and_then(|nth| left.get(nth))
            .copied();
        Self {
            name: quorum.name.clone(),
            ready: voting >= size.majority(),
            masters: size.masters(),
            voting,
            required: size.majority(),
            seconds_left,
            missing,
        }
    }

    fn opening(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ready: false,
            masters: 0,
            voting: 0,
            required: 0,
            seconds_left: None,
            missing: Vec::new(),
        }
    }

    fn sentence(&self) -> String {
        let name = &self.name;
        if self.masters == 0 {
            return format!("quorum {name} is being reopened");
        }
        let missing: Vec<String> = self
            .missing
            .iter()
            .map(|missing| format!("{}: {}", missing.master, missing.reason))
            .collect();
        let wait = self
            .seconds_left
            .map(|left| format!("sealing, {left} s left; "))
            .unwrap_or_default();
        format!(
            "quorum {name}: {wait}{} of {} masters vote, {} are needed ({})",
            self.voting,
            self.masters,
            self.required,
            missing.join(", ")
        )
    }
}

impl Missing {
    fn of(status: &MasterStatus) -> Self {
        let seconds_left = status
            .sealing_left
            .filter(|_| status.seal_blocked.is_none())
            .map(|left| left.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX));
        let reason = if !status.connected {
            status
                .trouble
                .as_ref()
                .map_or_else(|| "not connected yet".to_owned(), ToString::to_string)
        } else if let Some(unfit) = &status.ineligible {
            unfit.to_string()
        } else if let Some(refusal) = &status.not_permitted {
            refusal.to_string()
        } else if let Some(refusal) = &status.refused_write {
            format!("refuses writes: {refusal}")
        } else if let Some(blocked) = &status.seal_blocked {
            format!("cannot be sealed: {blocked}")
        } else if let Some(left) = seconds_left {
            format!("sealing, {left} s left")
        } else {
            status
                .no_vote
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default()
        };
        Self {
            master: status.name.clone(),
            reason,
            seconds_left,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn seen(majorities: &[&str], ready: bool) -> ReadinessHistory {
        ReadinessHistory {
            majorities: majorities.iter().map(|name| (*name).to_owned()).collect(),
            ready,
        }
    }

    fn needing(names: &[&str]) -> InUse {
        InUse {
            readiness_rule: ReadinessRule::Once(names.iter().map(|name| (*name).to_owned()).collect()),
            problems: vec!["RedisQuorum b: SecretNotFound: ...".into()],
            ..InUse::default()
        }
    }

    #[test]
    fn first_readiness_needs_a_majority_of_every_needed_quorum() {
        let of = |needed: &[&str], seen: &ReadinessHistory| Readiness::of(&needing(needed), seen);
        assert!(
            of(&[], &ReadinessHistory::default()).ready,
            "nothing is declared yet"
        );
        let waits = of(&["a", "b"], &seen(&["a"], false));
        assert!(!waits.ready);
        assert!(waits.message.contains("of: b (") && waits.message.contains("SecretNotFound"));
        assert!(of(&["a", "b"], &seen(&["a", "b"], false)).ready);
        // A quorum that is declared later does not revoke readiness.
        assert!(of(&["a", "c"], &seen(&["a"], true)).ready);
    }

    #[test]
    fn readiness_waits_for_the_caches_first() {
        let awaiting = InUse::awaiting_caches();
        assert!(!Readiness::of(&awaiting, &seen(&[], true)).ready);
        assert_eq!(awaiting.readiness_rule, ReadinessRule::Once(BTreeSet::new()));
    }
}
