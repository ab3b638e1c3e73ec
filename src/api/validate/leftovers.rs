//! Plans the stop of targets that an invalid lock may have left running.

use super::{graces::Graces, lock::takeover_delay, problems::Problems, target::targets};
use crate::api::{
    leader_lock::{Candidates, Fencing, LeaderLock, LeaderLockSpec, LockState},
    plan::{LockPlan, TargetPlan, longest_stop},
    target::Target,
};
use crate::lease::{Timings, identity::LockName};
use std::time::Duration;

/// Returns a plan with two uses: to observe the lock, and to stop its targets. Invalid parts are left out, so that they
/// do not keep the other targets running. `None` if even the name of the lock cannot be read.
pub fn leftovers(object: &LeaderLock, graces: &Graces) -> Option<LockPlan> {
    let (spec, metadata) = (&object.spec, &object.metadata);
    let namespace = metadata.namespace.clone()?;
    let name = metadata.name.clone()?;
    let own = || LockName::parse(&format!("{namespace}/{name}")).ok();
    let given = spec.lock_name.as_deref().map(LockName::parse);
    let sound = LeaderLockSpec {
        candidates: Candidates::Operator,
        fencing: Fencing::None,
        ..spec.clone()
    };
    let targets = targets(&mut Problems::default(), &sound, graces);
    let stop = longest_stop(&targets);
    let given_delay = spec
        .takeover_delay_seconds
        .and_then(|seconds| u64::try_from(seconds).ok())
        .map(Duration::from_secs);
    Some(LockPlan {
        lock_name: given.map_or_else(own, Result::ok)?,
        quorum: spec.quorum_ref.name.clone(),
        timings: Timings::derive(stop),
        candidates: spec.candidates,
        state: LockState::SteppedDown,
        reason: None,
        enforcement: spec.enforcement,
        cluster_preference: Vec::new(),
        preference_delay: Duration::ZERO,
        fencing: spec.fencing,
        takeover_delay: given_delay.unwrap_or_else(|| takeover_delay(&targets)),
        explicit_takeover_delay: given_delay,
        on_quorum_loss: spec.on_quorum_loss,
        failover_after_unready: None,
        deletion_policy: spec.deletion_policy,
        targets,
        abstains: false,
        has_leftovers: false,
        leftovers: Vec::new(),
        awaits_confirmation: false,
        namespace,
        name,
    })
}

/// Returns the plans of targets that were declared earlier, without those that this version cannot use.
pub fn recorded_targets(object: &LeaderLock, recorded: &[Target], graces: &Graces) -> Vec<TargetPlan> {
    let sound = LeaderLockSpec {
        candidates: Candidates::Operator,
        fencing: Fencing::None,
        targets: recorded.to_vec(),
        ..object.spec.clone()
    };
    targets(&mut Problems::default(), &sound, graces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_problem_does_not_hide_the_others() {
        let object: LeaderLock = serde_yaml::from_str(
            "{apiVersion: redlock.dev/v1alpha1, kind: LeaderLock, metadata: {name: l, namespace: n}, spec: {\
             quorumRef: {name: gone}, leaseDurationSeconds: 1, takeoverDelaySeconds: -1, targets: [\
             {name: bad, action: Scale}, \
             {name: good, action: Scale, stopSeconds: 3, ref: {apiVersion: apps/v1, kind: Deployment, name: d}}]}}",
        )
        .unwrap();
        let plan = leftovers(&object, &Graces::default()).unwrap();
        let names: Vec<&str> = plan.targets.iter().map(|target| target.name.as_str()).collect();
        assert_eq!(names, ["good"]);
        assert_eq!(plan.lock_name.as_str(), "n/l");
        assert_eq!(plan.timings.stop, Duration::from_secs(3));
        assert_eq!(plan.takeover_delay, Duration::from_secs(8));
    }
}
