//! The rules of a `LeaderLock`, without those between its timings.

use kube::core::Rule;
use schemars::Schema;

use super::{message_expression, of_items, required, rule};
use crate::api::reasons;

/// White space and control characters as Rust knows them, and the invisible characters that the names of the core refuse, in
/// the words of RE2.
const REFUSED: &str = r"\\p{Z}\\p{Cc}\\x{ad}\\x{61c}\\x{180e}\\x{200b}-\\x{200f}\\x{202a}-\\x{202e}\\x{2060}-\\x{206f}\\x{feff}";

pub(in crate::api) fn lock_name_characters() -> Rule {
    rule(
        "lockName",
        format!("!has(self.lockName) || !self.lockName.matches('[|{REFUSED}]')"),
        "contains a character that is not allowed: do not use \"|\", white space or control characters",
    )
}

pub(in crate::api) fn lock_name_not_internal() -> Rule {
    rule(
        "lockName",
        "!has(self.lockName) || !self.lockName.startsWith('_')",
        "begins with \"_\": such names are reserved for the locks of redlock itself",
    )
}

/// At the spec, not at the field: a rule of a field is not asked when the field comes or goes.
pub(in crate::api) fn lock_name_stays() -> Rule {
    rule(
        "lockName",
        "has(self.lockName) == has(oldSelf.lockName) && (!has(self.lockName) || self.lockName == oldSelf.lockName)",
        reasons::LOCK_NAME_CHANGED,
    )
}

pub(in crate::api) fn reason_given() -> Rule {
    required(
        "reason",
        "self.state == 'Enabled' || (has(self.reason) && self.reason.trim() != '')",
        message_expression("'is required with state: ' + self.state + ': give the reason'"),
    )
}

pub(in crate::api) fn preferred_once() -> Rule {
    rule(
        "clusterPreference",
        "!has(self.clusterPreference) || self.clusterPreference.all(c, self.clusterPreference.exists_one(d, d == c))",
        reasons::TWICE_PREFERRED,
    )
}

pub(in crate::api) fn cluster_names(list: &mut Schema) {
    let rule = Rule::new(format!("!self.matches('[:|/{REFUSED}]')")).message(reasons::CLUSTER_NAME);
    of_items(list, &rule);
}

pub(in crate::api) fn agents_only_label() -> Rule {
    rule(
        "targets",
        "self.candidates != 'Agents' || !has(self.targets) || self.targets.all(t, t.action == 'LabelPods')",
        reasons::AGENTS_ONLY_LABEL,
    )
}

/// Returns a rule of a fenced lock.
fn fenced(field: &str, expression: &str, reason: &'static str) -> Rule {
    rule(field, format!("self.fencing != 'Node' || {expression}"), reason)
}

pub(in crate::api) fn fenced_candidates() -> Rule {
    fenced(
        "candidates",
        "self.candidates != 'Agents'",
        reasons::FENCED_CANDIDATES,
    )
}

pub(in crate::api) fn fenced_actions() -> Rule {
    fenced(
        "targets",
        "!has(self.targets) || self.targets.all(t, t.action in ['Scale', 'Suspend'])",
        reasons::FENCED_ACTIONS,
    )
}

pub(in crate::api) fn fenced_stops() -> Rule {
    fenced(
        "onQuorumLoss",
        "self.onQuorumLoss != 'KeepRunning'",
        reasons::FENCED_STOPS,
    )
}

pub(in crate::api) fn fenced_enforces() -> Rule {
    fenced(
        "enforcement",
        "self.enforcement != 'Observe'",
        reasons::FENCED_ENFORCES,
    )
}

pub(in crate::api) fn fenced_not_orphaned() -> Rule {
    fenced(
        "deletionPolicy",
        "self.deletionPolicy != 'Orphan'",
        reasons::FENCED_NOT_ORPHANED,
    )
}
