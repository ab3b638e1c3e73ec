//! The rules of a `LeaderLock` by itself and against the quorum that it names.

use std::collections::BTreeSet;
use std::time::Duration;

use super::graces::Graces;
use super::name::{check_label, check_subdomain};
use super::problems::{FieldError, Problems, Quoted};
use super::target::targets;
use crate::api::leader_lock::{
    Candidates, DeletionPolicy, Enforcement, Fencing, LeaderLock, LeaderLockSpec, LockState, OnQuorumLoss,
};
use crate::api::plan::{LockPlan, QuorumPlan, TAKEOVER_MARGIN, TargetPlan, longest_stop};
use crate::api::reasons;
use crate::lease::identity::{ClusterId, LockName};
use crate::lease::timing::{GivenTimings, TimingError, Timings};

/// A day. No use needs a longer time, and no sum of such times overflows.
const LONGEST: i64 = 86_400;
const LONGEST_PREFERENCE_DELAY: i64 = 3_600;
const DEFAULT_PREFERENCE_DELAY: Duration = Duration::from_secs(2);
const PREFERENCE_LIMIT: usize = 32;
const REASON_LIMIT: usize = 512;
const NO_NAMESPACE: &str = "default";

/// The lock names that a namespace may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockNames {
    /// Names that begin with the namespace, and names that the quorum shares with it: namespaces belong to different
    /// people.
    OfTheNamespace,
    /// All names: outside Kubernetes, the author of one manifest can write every manifest.
    Any,
}

/// Checks one lock by itself and against its quorum. [`super::duplicate_lock_names`] checks for conflicts between
/// locks. `graces` holds the grace periods of the pod templates of its targets.
pub fn validate_lock(
    object: &LeaderLock,
    quorum: &QuorumPlan,
    lock_names: LockNames,
    graces: &Graces,
) -> Result<LockPlan, Vec<FieldError>> {
    let mut problems = Problems::default();
    let spec = &object.spec;

    let (namespace, name) = names(&mut problems, object);
    let lock_name = lock_name(&mut problems, spec, &namespace, &name, quorum, lock_names);
    let fenced = spec.fencing == Fencing::Node;
    let targets = targets(&mut problems, spec, graces);
    check_fencing(&mut problems, spec);
    // The agents of the nodes stop the pods of a fenced lock in time, so its lease leaves no time for that.
    let stop = if fenced {
        Duration::ZERO
    } else {
        longest_stop(&targets)
    };
    let timings = timings(&mut problems, spec, stop, quorum);
    let reason = reason(&mut problems, spec);
    check_preference(&mut problems, &spec.cluster_preference);

    let preference_delay = problems.seconds(
        "spec.preferenceDelaySeconds",
        spec.preference_delay_seconds,
        0..=LONGEST_PREFERENCE_DELAY,
    );
    let given_delay = problems.seconds(
        "spec.takeoverDelaySeconds",
        spec.takeover_delay_seconds,
        0..=LONGEST,
    );
    let failover = problems.seconds(
        "spec.failoverAfterUnreadySeconds",
        spec.failover_after_unready_seconds,
        0..=LONGEST,
    );

    let found = problems.into_inner();
    match (lock_name, timings) {
        (Some(lock_name), Some(timings)) if found.is_empty() => Ok(LockPlan {
            namespace,
            name,
            quorum: quorum.name.clone(),
            lock_name,
            timings,
            candidates: spec.candidates,
            state: spec.state,
            reason,
            enforcement: spec.enforcement,
            cluster_preference: spec.cluster_preference.clone(),
            preference_delay: preference_delay.unwrap_or(DEFAULT_PREFERENCE_DELAY),
            fencing: spec.fencing,
            takeover_delay: given_delay.unwrap_or_else(|| takeover_delay(&targets)),
            explicit_takeover_delay: given_delay,
            on_quorum_loss: spec.on_quorum_loss,
            failover_after_unready: failover.filter(|after| !after.is_zero()),
            deletion_policy: spec.deletion_policy,
            targets,
            abstains: false,
            has_leftovers: false,
            leftovers: Vec::new(),
            awaits_confirmation: false,
        }),
        _ => Err(found),
    }
}

/// Returns the namespace and the name of the object.
fn names(problems: &mut Problems, object: &LeaderLock) -> (String, String) {
    let metadata = &object.metadata;
    let name = metadata.name.clone().unwrap_or_default();
    let namespace = metadata.namespace.clone();
    let namespace = namespace.unwrap_or_else(|| NO_NAMESPACE.to_owned());
    let quorum = &object.spec.quorum_ref.name;
    let found = [
        check_subdomain("metadata.name", &name),
        check_label("metadata.namespace", &namespace),
        check_subdomain("spec.quorumRef.name", quorum),
    ];
    problems.extend(found.into_iter().flatten().collect());
    (namespace, name)
}

/// Returns the delay that the targets of this cluster need, for a lock that does not give one.
pub(super) fn takeover_delay(targets: &[TargetPlan]) -> Duration {
    let undone = || targets.iter().filter(|target| target.work.is_undone());
    let known = undone().filter(|target| target.awaits.is_none());
    // A target whose template is awaited is not started: its assumed time counts only where no time is known.
    let longest = known.map(|target| target.stop).max();
    let longest = longest.or_else(|| undone().map(|target| target.stop).max());
    longest.map_or(Duration::ZERO, |longest| longest + TAKEOVER_MARGIN)
}

/// Refuses settings that leave pods running without the lock: the agents of the nodes freeze them.
fn check_fencing(problems: &mut Problems, spec: &LeaderLockSpec) {
    if spec.fencing == Fencing::None {
        return;
    }
    let refused = [
        (
            spec.candidates == Candidates::Agents,
            "candidates",
            "Agents",
            reasons::FENCED_CANDIDATES,
        ),
        (
            spec.on_quorum_loss == OnQuorumLoss::KeepRunning,
            "onQuorumLoss",
            "KeepRunning",
            reasons::FENCED_STOPS,
        ),
        (
            spec.enforcement == Enforcement::Observe,
            "enforcement",
            "Observe",
            reasons::FENCED_ENFORCES,
        ),
        (
            spec.deletion_policy == DeletionPolicy::Orphan,
            "deletionPolicy",
            "Orphan",
            reasons::FENCED_NOT_ORPHANED,
        ),
    ];
    for (_, field, value, reason) in refused.into_iter().filter(|(found, ..)| *found) {
        problems.add(FieldError::new(format!("spec.{field}"), value, reason));
    }
}

/// Returns the name of the lock on the masters. `None` comes with a problem.
fn lock_name(
    problems: &mut Problems,
    spec: &LeaderLockSpec,
    namespace: &str,
    name: &str,
    quorum: &QuorumPlan,
    lock_names: LockNames,
) -> Option<LockName> {
    let field = "spec.lockName";
    let own = format!("{namespace}/");
    let text = spec.lock_name.clone().unwrap_or_else(|| format!("{own}{name}"));
    let lock_name = match LockName::parse(&text) {
        Ok(lock_name) => lock_name,
        Err(cause) => {
            problems.add(FieldError::missing(field, cause.to_string()));
            return None;
        }
    };
    let begins_with = |prefix: &str| text.len() > prefix.len() && text.starts_with(prefix);
    let shared = quorum
        .shared_lock_names
        .iter()
        .any(|shared| begins_with(&shared.prefix) && shared.namespaces.iter().any(|n| n == namespace));
    if lock_names == LockNames::OfTheNamespace && !begins_with(&own) && !shared {
        let reason = format!(
            "is not allowed for namespace {namespace}: begin the name with \"{own}\", or allow it in the \
             sharedLockNames of RedisQuorum {}",
            quorum.name
        );
        problems.add(FieldError::new(field, Quoted(&text), reason));
    }
    Some(lock_name)
}

/// Returns the timings. `None` comes with a problem.
fn timings(
    problems: &mut Problems,
    spec: &LeaderLockSpec,
    stop: Duration,
    quorum: &QuorumPlan,
) -> Option<Timings> {
    // Only the bounds of each value are checked here. The rules between the values are those of the lease.
    let mut sound = true;
    let mut length = |field: &str, value: Option<i64>, least: i64| {
        let length = problems.seconds(field, value, least..=LONGEST);
        sound &= value.is_some() == length.is_some();
        length
    };
    let given = GivenTimings {
        lease_duration: length("spec.leaseDurationSeconds", spec.lease_duration_seconds, 2),
        renew_deadline: length("spec.renewDeadlineSeconds", spec.renew_deadline_seconds, 1),
        retry_period: length("spec.retryPeriodSeconds", spec.retry_period_seconds, 1),
    };
    if !sound {
        return None;
    }
    Timings::resolve(given, stop, Some(quorum.command_timeout), quorum.longest_lease)
        .map_err(|cause| {
            let field = format!("spec.{}", cause.field().wire_name());
            let mut error = FieldError::new(field, cause.value().as_secs_f64(), cause.reason());
            error.stop_budget = matches!(cause, TimingError::StopBudgetTooShort { .. });
            problems.add(error);
        })
        .ok()
}

fn reason(problems: &mut Problems, spec: &LeaderLockSpec) -> Option<String> {
    let given = spec
        .reason
        .as_deref()
        .map(str::trim)
        .filter(|reason| !reason.is_empty());
    if spec.state != LockState::Enabled && given.is_none() {
        let reason = format!("is required with state: {:?}: give the reason", spec.state);
        problems.add(FieldError::missing("spec.reason", reason));
    }
    if let Some(text) = &spec.reason
        && text.chars().count() > REASON_LIMIT
    {
        let reason = format!("is too long: use at most {REASON_LIMIT} characters");
        problems.add(FieldError::new("spec.reason", Quoted(text), reason));
    }
    given.map(str::to_owned)
}

fn check_preference(problems: &mut Problems, clusters: &[String]) {
    if clusters.len() > PREFERENCE_LIMIT {
        let reason = format!("are too many clusters: list at most {PREFERENCE_LIMIT}");
        problems.add(FieldError::new("spec.clusterPreference", clusters.len(), reason));
    }
    let mut seen = BTreeSet::new();
    for (index, cluster) in clusters.iter().enumerate() {
        let field = format!("spec.clusterPreference[{index}]");
        if let Err(cause) = ClusterId::new(cluster, "uid") {
            problems.add(FieldError::missing(field, cause.to_string()));
        } else if cluster.contains(':') {
            problems.add(FieldError::new(field, Quoted(cluster), reasons::CLUSTER_NAME));
        } else if !seen.insert(cluster) {
            problems.add(FieldError::new(field, Quoted(cluster), reasons::TWICE_PREFERRED));
        }
    }
}

#[cfg(test)]
mod tests;
