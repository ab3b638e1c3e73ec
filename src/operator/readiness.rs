//! Whether this process can take part, and what is missing if not. Never whether it is active.

use serde::Serialize;

use super::state::{InUse, InUseQuorum};
use crate::masters::MasterStatus;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Readiness {
    pub(crate) ready: bool,
    /// One sentence for people.
    message: String,
    quorums: Vec<QuorumReadiness>,
    /// What is wrong with the manifests; does not keep the others from being ready.
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct QuorumReadiness {
    name: String,
    ready: bool,
    masters: usize,
    /// Masters whose votes count.
    voting: usize,
    required: usize,
    /// Until a majority is sealed, where that is all that is missing.
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
    pub(crate) fn of(in_use: &InUse) -> Self {
        let mut quorums: Vec<QuorumReadiness> = in_use.quorums.iter().map(QuorumReadiness::of).collect();
        quorums.extend(in_use.opening.iter().map(|name| QuorumReadiness::opening(name)));
        let waiting: Vec<String> = quorums
            .iter()
            .filter(|quorum| !quorum.ready)
            .map(QuorumReadiness::sentence)
            .collect();
        let nothing_usable = quorums.is_empty() && !in_use.problems.is_empty();
        let message = if in_use.stopping {
            "stopping".to_owned()
        } else if !in_use.awaited.is_empty() {
            format!("waits for the first list of: {}", in_use.awaited.join(", "))
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
            ready: in_use.awaited.is_empty()
                && !in_use.stopping
                && (in_use.caches_only || (waiting.is_empty() && !nothing_usable)),
            message,
            quorums,
            problems: in_use.problems.clone(),
        }
    }
}

impl QuorumReadiness {
    fn of(quorum: &InUseQuorum) -> Self {
        let (status, size) = (quorum.masters.status(), quorum.masters.size());
        let voting = status.iter().filter(|master| master.votes()).count();
        let missing: Vec<Missing> = status
            .iter()
            .filter(|master| !master.votes())
            .map(Missing::of)
            .collect();
        let mut left: Vec<u64> = missing
            .iter()
            .filter_map(|missing| missing.seconds_left)
            .collect();
        left.sort_unstable();
        // The seal that completes the majority, if as many are on their way.
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
            return format!("quorum {name} is being opened anew");
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
        } else if let Some(unfit) = &status.unfit {
            unfit.to_string()
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
