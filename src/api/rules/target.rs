//! The rules of a target.

use kube::core::Rule;

use super::{required, rule, said};
use crate::api::reasons;

pub(in crate::api) fn ref_given() -> Rule {
    required(
        "ref",
        "self.action == 'LabelPods' || has(self.ref)",
        said("'is required with action: ' + self.action + ': say which object is switched'"),
    )
}

pub(in crate::api) fn ref_not_with_pods() -> Rule {
    rule(
        "ref",
        "self.action != 'LabelPods' || !has(self.ref)",
        reasons::REF_NOT_READ,
    )
}

/// The action switches objects of these `kinds` of batch/v1 only.
pub(in crate::api) fn switches(action: &str, kinds: &[&str]) -> Rule {
    let list: Vec<String> = kinds.iter().map(|kind| format!("'{kind}'")).collect();
    rule(
        "ref",
        format!(
            "self.action != '{action}' || !has(self.ref) || (self.ref.apiVersion == 'batch/v1' && self.ref.kind in \
             [{}])",
            list.join(", ")
        ),
        format!(
            "cannot be switched by action: {action}: use batch/v1 {}",
            kinds.join(" or ")
        )
        .as_str(),
    )
}

/// A block of settings goes with its own action.
pub(in crate::api) fn block_of(action: &str, block: &str) -> Rule {
    rule(
        block,
        format!("self.action == '{action}' || !has(self.{block})"),
        said(format!(
            "'is read only with action: {action}, and this one is ' + self.action"
        )),
    )
}

pub(in crate::api) fn stop_of_use() -> Rule {
    rule(
        "stopSeconds",
        "self.action in ['Scale', 'Suspend'] || !has(self.stopSeconds)",
        said("'is of no use: ' + self.action + ' stops nothing; leave it out'"),
    )
}

pub(in crate::api) fn pods_given() -> Rule {
    required(
        "labelPods",
        "self.action != 'LabelPods' || has(self.labelPods)",
        reasons::NO_PODS,
    )
}

/// Of the settings of LabelPods.
pub(in crate::api) fn not_all_pods() -> Rule {
    rule(
        "selector",
        "(has(self.selector.matchLabels) && self.selector.matchLabels.size() > 0) || \
         (has(self.selector.matchExpressions) && self.selector.matchExpressions.size() > 0)",
        reasons::ALL_PODS,
    )
}

/// Of the settings of Scale.
pub(in crate::api) fn fewer_on_standby() -> Rule {
    let active = "(has(self.activeReplicas) ? self.activeReplicas : 1)";
    rule(
        "standbyReplicas",
        format!("!has(self.standbyReplicas) || self.standbyReplicas < {active}"),
        reasons::STANDBY_REPLICAS,
    )
}
