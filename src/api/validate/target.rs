//! The rules of a lock's targets.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::graces::{Grace, Graces};
use super::name::{check_label, check_subdomain, is_api_version};
use super::patch::patch;
use super::problems::{FieldError, Problems, Quoted};
use super::selector::check_selector;
use crate::api::leader_lock::{Candidates, Fencing, LeaderLockSpec};
use crate::api::plan::{LEASE_STOP, TargetPlan, TargetWork};
use crate::api::reasons;
use crate::api::target::{Action, TARGET_LIMIT, Target, TargetRef};

/// Added to the grace period of pods: the time until their end is seen.
const STOP_MARGIN: Duration = Duration::from_secs(5);
/// The stop time of a target whose pod template was not read: Kubernetes' default grace period and 5 s.
pub(super) const DEFAULT_STOP: Duration = Duration::from_secs(35);

const DEFAULT_MAX_SLOT_AGE: Duration = Duration::from_secs(3_600);
const LONGEST_SLOT_AGE: i64 = 7 * 86_400;
const LONGEST_STOP: i64 = 86_400;
const KIND_LIMIT: usize = 63;

/// Returns the valid targets, with the content of their pod templates; the problems of the others are added to
/// `problems`.
pub(super) fn targets(problems: &mut Problems, spec: &LeaderLockSpec, graces: &Graces) -> Vec<TargetPlan> {
    let (given, candidates, fenced) = (&spec.targets, spec.candidates, spec.fencing == Fencing::Node);
    if given.len() > TARGET_LIMIT {
        let reason = format!("are too many targets: declare at most {TARGET_LIMIT}");
        problems.add(FieldError::new("spec.targets", given.len(), reason));
    }
    let mut names = BTreeSet::new();
    let mut plans = Vec::new();
    for (index, target) in given.iter().enumerate() {
        let field = format!("spec.targets[{index}]");
        let name_field = format!("{field}.name");
        if let Some(problem) = check_label(&name_field, &target.name) {
            problems.add(problem);
        } else if !names.insert(&target.name) {
            let reason = "is already the name of another target: give each target a unique name";
            problems.add(FieldError::new(name_field, Quoted(&target.name), reason));
        }
        if candidates == Candidates::Agents && target.action != Action::LabelPods {
            problems.add(FieldError::new(
                format!("{field}.action"),
                format!("{:?}", target.action),
                reasons::AGENTS_ONLY_LABEL,
            ));
        }
        if fenced && !matches!(target.action, Action::Scale | Action::Suspend) {
            let action = format!("{:?}", target.action);
            problems.add(FieldError::new(
                format!("{field}.action"),
                action,
                reasons::FENCED_ACTIONS,
            ));
        }
        check_blocks(problems, &field, target);
        let stop = stop(problems, &field, target);
        let grace = target.reference.as_ref().and_then(|object| graces.of(object));
        let awaits = target
            .reference
            .as_ref()
            .and_then(|object| graces.awaited(object));
        let pods = pods_to_stop(target);
        let derived = match target.action {
            Action::Lease => LEASE_STOP,
            _ => derived_stop(grace, pods),
        };
        // The lease of a fenced lock does not depend on the stop time, so that the pods may take as long as they need.
        let limit = if fenced { Duration::MAX } else { DEFAULT_STOP };
        if let Some(work) = work(problems, &field, target, stop) {
            plans.push(TargetPlan {
                name: target.name.clone(),
                work,
                stop: stop.unwrap_or(derived.min(limit)),
                awaits: awaits.filter(|_| stop.is_none() && !fenced),
                too_short: Some(derived).filter(|derived| stop.is_none() && *derived > limit),
                one_by_one: grace.filter(|grace| grace.one_by_one).map(|_| pods),
                declared: Arc::new(target.clone()),
            });
        }
    }
    plans
}

/// A block that the action does not read would be a setting without effect.
fn check_blocks(problems: &mut Problems, field: &str, target: &Target) {
    let blocks = [
        ("scale", target.scale.is_some(), Action::Scale),
        (
            "oncePerSchedule",
            target.once_per_schedule.is_some(),
            Action::OncePerSchedule,
        ),
        ("labelPods", target.label_pods.is_some(), Action::LabelPods),
        ("patch", target.patch.is_some(), Action::Patch),
    ];
    for (block, given, action) in blocks {
        if given && target.action != action {
            let reason = format!(
                "is used only with action: {action:?}, and the action is {:?}",
                target.action
            );
            problems.add(FieldError::missing(format!("{field}.{block}"), reason));
        }
    }
}

/// Returns `None` where the pod template has it.
fn stop(problems: &mut Problems, field: &str, target: &Target) -> Option<Duration> {
    let stop_field = format!("{field}.stopSeconds");
    let given = problems.seconds(&stop_field, target.stop_seconds, 0..=LONGEST_STOP);
    match target.action {
        Action::Scale | Action::Suspend | Action::Lease | Action::Patch => given,
        Action::OncePerSchedule | Action::LabelPods => {
            if let Some(seconds) = target.stop_seconds {
                let reason = format!("has no effect: {:?} stops nothing; remove it", target.action);
                problems.add(FieldError::new(stop_field, seconds, reason));
            }
            Some(Duration::ZERO)
        }
    }
}

/// Returns the stop time that the pod template asks for. A longer one than the default applies only if `stopSeconds`
/// sets it: it would shorten the time for renewals, and other clusters, which use their own templates, would not wait
/// so long.
fn derived_stop(grace: Option<Grace>, pods: u32) -> Duration {
    grace.map_or(DEFAULT_STOP, |grace| {
        grace.of_pods(pods).saturating_add(STOP_MARGIN)
    })
}

/// As declared, so that it is the same in all clusters, and does not change while the target is started and stopped.
fn pods_to_stop(target: &Target) -> u32 {
    let settings = target.scale.clone().unwrap_or_default();
    let (active, standby) = (
        settings.active_replicas.unwrap_or(1),
        settings.standby_replicas.unwrap_or(0),
    );
    u32::try_from(active.saturating_sub(standby)).map_or(1, |pods| pods.max(1))
}

fn work(problems: &mut Problems, field: &str, target: &Target, stop: Option<Duration>) -> Option<TargetWork> {
    match target.action {
        Action::Scale => {
            let object = object(problems, field, target, None);
            let settings = target.scale.clone().unwrap_or_default();
            let active_replicas = settings.active_replicas.unwrap_or(1);
            let standby_replicas = settings.standby_replicas.unwrap_or(0);
            if active_replicas < 1 {
                let reason = "is too few: at least 1 replica must run where the lock is held";
                problems.add(FieldError::new(
                    format!("{field}.scale.activeReplicas"),
                    active_replicas,
                    reason,
                ));
            } else if !(0..active_replicas).contains(&standby_replicas) {
                let reason = format!("{}, {active_replicas}", reasons::STANDBY_REPLICAS);
                problems.add(FieldError::new(
                    format!("{field}.scale.standbyReplicas"),
                    standby_replicas,
                    reason,
                ));
            }
            Some(TargetWork::Scale {
                object: object?,
                active_replicas,
                standby_replicas,
            })
        }
        Action::Suspend => {
            let object = object(problems, field, target, Some(("batch/v1", &["CronJob", "Job"])))?;
            Some(TargetWork::Suspend { object })
        }
        Action::OncePerSchedule => {
            let object = object(problems, field, target, Some(("batch/v1", &["CronJob"])));
            let given = target
                .once_per_schedule
                .as_ref()
                .and_then(|s| s.max_slot_age_seconds);
            let age_field = format!("{field}.oncePerSchedule.maxSlotAgeSeconds");
            let max_slot_age = problems.seconds(&age_field, given, 1..=LONGEST_SLOT_AGE);
            Some(TargetWork::OncePerSchedule {
                object: object?,
                max_slot_age: max_slot_age.unwrap_or(DEFAULT_MAX_SLOT_AGE),
            })
        }
        Action::LabelPods => label_pods(problems, field, target),
        Action::Lease => {
            let object = object(
                problems,
                field,
                target,
                Some(("coordination.k8s.io/v1", &["Lease"])),
            )?;
            Some(TargetWork::Lease { object, stop })
        }
        Action::Patch => {
            let object = object(problems, field, target, None);
            let patch = patch(problems, field, target);
            Some(TargetWork::Patch {
                object: object?,
                patch: patch?,
                stop: stop?,
            })
        }
    }
}

fn label_pods(problems: &mut Problems, field: &str, target: &Target) -> Option<TargetWork> {
    if target.reference.is_some() {
        problems.add(FieldError::missing(format!("{field}.ref"), reasons::REF_NOT_READ));
    }
    let Some(settings) = &target.label_pods else {
        problems.add(FieldError::missing(
            format!("{field}.labelPods"),
            reasons::NO_PODS,
        ));
        return None;
    };
    let selector = &settings.selector;
    let labels = selector
        .match_labels
        .as_ref()
        .is_some_and(|labels| !labels.is_empty());
    let expressions = selector
        .match_expressions
        .as_ref()
        .is_some_and(|list| !list.is_empty());
    if !labels && !expressions {
        problems.add(FieldError::missing(
            format!("{field}.labelPods.selector"),
            reasons::ALL_PODS,
        ));
    }
    check_selector(problems, &format!("{field}.labelPods.selector"), selector);
    Some(TargetWork::LabelPods {
        selector: selector.clone(),
    })
}

/// Returns the object to switch: of one of the `kinds` of an API version, or of any kind without them.
fn object(
    problems: &mut Problems,
    field: &str,
    target: &Target,
    kinds: Option<(&str, &[&str])>,
) -> Option<TargetRef> {
    let action = target.action;
    let Some(object) = &target.reference else {
        let reason = format!("is required with action: {action:?}: name the object to switch");
        problems.add(FieldError::missing(format!("{field}.ref"), reason));
        return None;
    };
    if !is_api_version(&object.api_version) {
        let field = format!("{field}.ref.apiVersion");
        problems.add(FieldError::new(
            field,
            Quoted(&object.api_version),
            reasons::API_VERSION,
        ));
    }
    if object.kind.is_empty() || object.kind.chars().count() > KIND_LIMIT {
        let reason =
            format!("is empty or longer than {KIND_LIMIT} characters: give a kind such as Deployment");
        problems.add(FieldError::new(
            format!("{field}.ref.kind"),
            Quoted(&object.kind),
            reason,
        ));
    }
    problems.extend(
        check_subdomain(&format!("{field}.ref.name"), &object.name)
            .into_iter()
            .collect(),
    );
    if let Some((version, kinds)) = kinds
        && (object.api_version != version || !kinds.contains(&object.kind.as_str()))
    {
        let value = format!("{} {}", object.api_version, object.kind);
        let reason = format!(
            "cannot be switched by action: {action:?}: use {version} {}",
            kinds.join(" or ")
        );
        problems.add(FieldError::new(format!("{field}.ref"), value, reason));
    }
    Some(object.clone())
}

#[cfg(test)]
mod tests;
