use super::*;
use crate::api::leader_lock::{Candidates, DeletionPolicy, Enforcement, OnQuorumLoss};
use crate::api::redis_quorum::{RedisQuorum, SharedLockNames};
use crate::api::validate::{Grace, validate_quorum};

fn quorum() -> QuorumPlan {
    let object: RedisQuorum = serde_yaml::from_str(
        "{apiVersion: redlock.dev/v1alpha1, kind: RedisQuorum, metadata: {name: default}, spec: {masters: \
         [{name: a, url: redis://a}, {name: b, url: redis://b}, {name: c, url: redis://c}]}}",
    )
    .unwrap();
    validate_quorum(&object).unwrap()
}

fn lock(more: &str) -> LeaderLock {
    serde_yaml::from_str(&format!(
        "{{apiVersion: redlock.dev/v1alpha1, kind: LeaderLock, metadata: {{name: report, namespace: billing}}, \
         spec: {{quorumRef: {{name: default}}{more}}}}}"
    ))
    .unwrap()
}

fn plan(more: &str) -> LockPlan {
    validate_lock(
        &lock(more),
        &quorum(),
        LockNames::OfTheNamespace,
        &Graces::default(),
    )
    .unwrap()
}

fn problems(more: &str) -> Vec<FieldError> {
    validate_lock(
        &lock(more),
        &quorum(),
        LockNames::OfTheNamespace,
        &Graces::default(),
    )
    .err()
    .unwrap_or_default()
}

const SCALE: &str = "{name: t, action: Scale, ref: {apiVersion: apps/v1, kind: Deployment, name: d}";

#[test]
fn defaults_are_filled_in() {
    let plan = plan("");
    assert_eq!(
        (plan.object().as_str(), plan.lock_name.as_str()),
        ("billing/report", "billing/report")
    );
    assert_eq!(plan.timings, Timings::derive(Duration::ZERO));
    assert_eq!(
        (plan.candidates, plan.state, plan.enforcement),
        (Candidates::Operator, LockState::Enabled, Enforcement::Enforce)
    );
    assert_eq!(
        (plan.on_quorum_loss, plan.deletion_policy),
        (OnQuorumLoss::Stop, DeletionPolicy::StopThenRelease)
    );
    assert_eq!(
        (plan.preference_delay, plan.takeover_delay),
        (Duration::from_secs(2), Duration::ZERO)
    );
    assert_eq!((plan.failover_after_unready, plan.reason), (None, None));
}

#[test]
fn the_example_of_the_documentation_is_valid() {
    let plan = plan(
        ", lockName: billing/nightly-report, leaseDurationSeconds: 60, renewDeadlineSeconds: 17,
        retryPeriodSeconds: 3, candidates: Operator, state: Enabled, enforcement: Enforce,
        clusterPreference: [eu-1, us-1], preferenceDelaySeconds: 2, takeoverDelaySeconds: 40, onQuorumLoss: Stop,
        failoverAfterUnreadySeconds: 0, deletionPolicy: StopThenRelease, targets: [{name: report,
        ref: {apiVersion: apps/v1, kind: Deployment, name: report}, action: Scale, stopSeconds: 35,
        scale: {activeReplicas: 1, standbyReplicas: 0}}]",
    );
    assert_eq!(plan.timings.renew_deadline, Duration::from_secs(17));
    assert_eq!(plan.takeover_delay, Duration::from_secs(40));
    assert_eq!(plan.explicit_takeover_delay, Some(Duration::from_secs(40)));
    assert_eq!(plan.preference_wait("eu-1"), Duration::ZERO);
    assert_eq!(plan.preference_wait("us-1"), Duration::from_secs(2));
    assert_eq!(plan.preference_wait("elsewhere"), Duration::from_secs(4));
}

#[test]
fn the_slowest_target_sets_the_timings() {
    let two = plan(&format!(
        ", targets: [{SCALE}, stopSeconds: 5}}, {}]",
        format!("{SCALE}}}").replace("name: t", "name: u")
    ));
    assert_eq!(two.timings, Timings::derive(Duration::from_secs(35)));
    assert_eq!(two.takeover_delay, Duration::from_secs(40));
    let none = plan(
        ", targets: [{name: t, action: OncePerSchedule, ref: {apiVersion: batch/v1, kind: CronJob, name: c}}]",
    );
    assert_eq!(none.timings, Timings::derive(Duration::ZERO));
    assert_eq!(none.takeover_delay, Duration::ZERO);
}

#[test]
fn each_rule_names_its_field() {
    let long = "x".repeat(513);
    let too_long = format!(", state: Frozen, reason: {long}");
    let long_stop = format!(", targets: [{SCALE}, stopSeconds: 36}}]");
    let table: &[(&str, Option<&str>)] = &[
        (", leaseDurationSeconds: 3", None),
        // The masters of the quorum may take half a second to answer.
        (", leaseDurationSeconds: 2", Some("spec.renewDeadlineSeconds")),
        (", renewDeadlineSeconds: 1", Some("spec.renewDeadlineSeconds")),
        (", renewDeadlineSeconds: 2", None),
        (", leaseDurationSeconds: 1", Some("spec.leaseDurationSeconds")),
        (", leaseDurationSeconds: 0", Some("spec.leaseDurationSeconds")),
        (", leaseDurationSeconds: -1", Some("spec.leaseDurationSeconds")),
        (", leaseDurationSeconds: 60", None),
        (", leaseDurationSeconds: 61", Some("spec.leaseDurationSeconds")),
        (
            ", leaseDurationSeconds: 9223372036854775807",
            Some("spec.leaseDurationSeconds"),
        ),
        (
            ", leaseDurationSeconds: 15, renewDeadlineSeconds: 14",
            Some("spec.renewDeadlineSeconds"),
        ),
        (
            ", leaseDurationSeconds: 15, retryPeriodSeconds: 15",
            Some("spec.retryPeriodSeconds"),
        ),
        (", retryPeriodSeconds: 0", Some("spec.retryPeriodSeconds")),
        (&long_stop, Some("spec.leaseDurationSeconds")),
        (", state: Frozen", Some("spec.reason")),
        (", state: SteppedDown, reason: '  '", Some("spec.reason")),
        (", state: Frozen, reason: change freeze", None),
        (&too_long, Some("spec.reason")),
        (", preferenceDelaySeconds: 3600", None),
        (
            ", preferenceDelaySeconds: 3601",
            Some("spec.preferenceDelaySeconds"),
        ),
        (", takeoverDelaySeconds: -1", Some("spec.takeoverDelaySeconds")),
        (
            ", failoverAfterUnreadySeconds: 86401",
            Some("spec.failoverAfterUnreadySeconds"),
        ),
        (
            ", clusterPreference: [a, b, a]",
            Some("spec.clusterPreference[2]"),
        ),
        (", clusterPreference: ['a|b']", Some("spec.clusterPreference[0]")),
        (", clusterPreference: ['']", Some("spec.clusterPreference[0]")),
        (", lockName: ''", Some("spec.lockName")),
        (", lockName: billing/", Some("spec.lockName")),
        (", lockName: billing/x", None),
        (", lockName: 'billing/x y'", Some("spec.lockName")),
        (", lockName: _reporter/x", Some("spec.lockName")),
        (", lockName: other/x", Some("spec.lockName")),
        (", lockName: billingx", Some("spec.lockName")),
    ];
    for (more, field) in table {
        let found: Vec<String> = problems(more).into_iter().map(|p| p.field).collect();
        assert_eq!(
            found,
            field.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "{more}"
        );
    }
}

#[test]
fn a_timing_problem_reads_as_a_sentence() {
    let found = problems(", leaseDurationSeconds: 1");
    assert_eq!(
        found[0].to_string(),
        "spec.leaseDurationSeconds: 1 is out of bounds: use 2 to 86400 seconds"
    );
    let found = problems(&format!(", targets: [{SCALE}, stopSeconds: 36}}]"));
    for part in ["a lease of 65 s would be enough", "the quorum's longest is 60 s"] {
        assert!(found[0].reason.contains(part), "{}", found[0]);
    }
}

#[test]
fn all_problems_show_at_once() {
    let found = problems(
        ", leaseDurationSeconds: 1, state: Frozen, lockName: other/x, targets: [{name: T, action: Scale}]",
    );
    let fields: Vec<&str> = found.iter().map(|p| p.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "spec.lockName",
            "spec.targets[0].name",
            "spec.targets[0].ref",
            "spec.leaseDurationSeconds",
            "spec.reason"
        ]
    );
}

#[test]
fn names_of_others_need_the_quorums_leave() {
    let mut quorum = quorum();
    quorum.shared_lock_names = vec![SharedLockNames {
        prefix: "shared/".into(),
        namespaces: vec!["billing".into()],
    }];
    let allowed = |more: &str, namespace: &str, names| {
        let mut object = lock(more);
        object.metadata.namespace = Some(namespace.into());
        validate_lock(&object, &quorum, names, &Graces::default()).is_ok()
    };
    for (name, namespace, ok) in [
        ("shared/x", "billing", true),
        ("shared/x", "other", false),
        ("shared/", "billing", false),
        ("shared", "billing", false),
        ("sharedx", "billing", false),
        ("other/x", "other", true),
        ("other/x", "billing", false),
    ] {
        let more = format!(", lockName: {name}");
        assert_eq!(
            allowed(&more, namespace, LockNames::OfTheNamespace),
            ok,
            "{name} in {namespace}"
        );
        assert!(allowed(&more, namespace, LockNames::Any), "{name} in {namespace}");
    }
    assert!(!allowed(", lockName: _reporter/x", "billing", LockNames::Any));
}

#[test]
fn the_names_of_the_object_are_checked() {
    let mut object = lock("");
    object.metadata.name = None;
    object.metadata.namespace = Some("a|b".into());
    let found = validate_lock(&object, &quorum(), LockNames::Any, &Graces::default()).unwrap_err();
    assert_eq!(
        (found[0].field.as_str(), found[1].field.as_str()),
        ("metadata.name", "metadata.namespace")
    );
    object.metadata.name = Some("report".into());
    object.metadata.namespace = None;
    assert_eq!(
        validate_lock(&object, &quorum(), LockNames::Any, &Graces::default())
            .unwrap()
            .namespace,
        "default"
    );
}

/// Returns the plan of a lock whose target `t` has a pod template with this grace period, on a quorum with this longest
/// lease.
fn plan_by_template(more: &str, grace: u64, longest: u64) -> Result<LockPlan, Vec<FieldError>> {
    let (mut quorum, lock) = (quorum(), lock(more));
    quorum.longest_lease = Duration::from_secs(longest);
    let object = lock.spec.targets[0].reference.clone().unwrap();
    let graces = [(object, Duration::from_secs(grace))].into_iter().collect();
    validate_lock(&lock, &quorum, LockNames::OfTheNamespace, &graces)
}

#[test]
fn pods_that_end_one_by_one_need_the_time_of_all() {
    let s = Duration::from_secs;
    // Settings and grace period; the stop time, and the wanted one if it is too short.
    for (settings, grace, stop, wanted) in [
        ("", 5, 10, None),
        (", scale: {activeReplicas: 3}", 5, 20, None),
        (", scale: {activeReplicas: 3, standbyReplicas: 1}", 5, 15, None),
        (", scale: {activeReplicas: 6}", 5, 35, None),
        (", scale: {activeReplicas: 3}", 30, 35, Some(95)),
        (", scale: {activeReplicas: 3}, stopSeconds: 50", 30, 50, None),
    ] {
        let (mut quorum, lock) = (quorum(), lock(&format!(", targets: [{SCALE}{settings}}}]")));
        quorum.longest_lease = s(600);
        let object = lock.spec.targets[0].reference.clone().unwrap();
        let ordered = Grace {
            period: s(grace),
            one_by_one: true,
        };
        let graces = [(object, ordered)].into_iter().collect();
        let plan = validate_lock(&lock, &quorum, LockNames::OfTheNamespace, &graces).unwrap();
        let target = &plan.targets[0];
        assert_eq!(
            (target.stop, target.too_short),
            (s(stop), wanted.map(s)),
            "{settings}"
        );
    }
}

#[test]
fn an_unset_stop_time_is_that_of_the_pod_template() {
    let one = format!(", targets: [{SCALE}}}]");
    let given = format!(", targets: [{SCALE}, stopSeconds: 20}}]");
    let short = format!(", leaseDurationSeconds: 20{one}");
    let long = format!(", leaseDurationSeconds: 60{one}");
    let cron = ", targets: [{name: t, action: Suspend, ref: {apiVersion: batch/v1, kind: CronJob, name: c}}]";
    // Spec, grace period and longest lease; the stop time and the lease, and the wanted stop time if it is too short.
    let table = [
        (one.as_str(), 0, 60, (5, 30), None),
        (&one, 5, 60, (10, 35), None),
        (&one, 30, 60, (35, 60), None),
        (&one, 31, 600, (35, 60), Some(36)),
        (&one, 86_400, 60, (35, 60), Some(86_405)),
        (&given, 5, 60, (20, 45), None),
        (&given, 60, 60, (20, 45), None),
        (&short, 5, 60, (10, 20), None),
        (&long, 5, 60, (10, 60), None),
        (&long, 60, 120, (35, 60), Some(65)),
        (cron, 5, 60, (10, 35), None),
    ];
    for (more, grace, longest, (stop, lease), wanted) in table {
        let plan = plan_by_template(more, grace, longest).unwrap();
        let s = Duration::from_secs;
        assert_eq!(
            (plan.timings.stop, plan.timings.lease_duration),
            (s(stop), s(lease)),
            "{more} {grace} {longest}"
        );
        assert_eq!(plan.targets[0].stop, s(stop));
        assert_eq!(plan.targets[0].too_short, wanted.map(s), "{more}");
        assert_eq!(plan.takeover_delay, s(stop + 5));
        assert_eq!(plan.explicit_takeover_delay, None);
    }
    for (grace, part) in [(5, ""), (20, "does not leave 25 s"), (60, "does not leave 35 s")] {
        let errors = plan_by_template(&short, grace, 120).err().unwrap_or_default();
        let text: String = errors.iter().map(ToString::to_string).collect();
        assert_eq!(text.contains("does not leave"), !part.is_empty(), "{text}");
        assert!(text.contains(part), "{text}");
        assert!(errors.iter().all(|error| error.stop_budget));
    }
}

#[test]
fn the_lease_of_a_fenced_lock_leaves_no_time_to_stop() {
    let plan = plan(&format!(
        ", fencing: Node, targets: [{SCALE}, stopSeconds: 600}}]"
    ));
    assert_eq!(plan.timings, Timings::derive(Duration::ZERO));
    assert_eq!(plan.timings.lease_duration, Duration::from_secs(15));
    assert_eq!(plan.timings.renew_deadline, Duration::from_millis(10_387));
    // A planned stop, and pods that are not fenced, get the time that they need.
    assert_eq!(plan.longest_stop(), Duration::from_secs(600));
    assert_eq!(plan.stop_bound(), Duration::from_secs(615));
    assert_eq!(plan.takeover_delay, Duration::from_secs(605));
    assert_eq!(plan.fenced_delay(), Duration::from_secs(1));
    let given = self::plan(", fencing: Node, takeoverDelaySeconds: 20");
    assert_eq!(given.fenced_delay(), Duration::from_secs(20));
}

#[test]
fn pods_of_a_fenced_lock_take_the_time_of_their_template() {
    let object: LeaderLock = lock(&format!(", fencing: Node, targets: [{SCALE}}}]"));
    let reference = object.spec.targets[0].reference.clone().unwrap();
    let graces: Graces = [(reference, Duration::from_secs(300))].into_iter().collect();
    let plan = validate_lock(&object, &quorum(), LockNames::OfTheNamespace, &graces).unwrap();
    assert_eq!(plan.targets[0].stop, Duration::from_secs(305));
    assert_eq!(plan.targets[0].too_short, None);
    assert_eq!(plan.timings.stop, Duration::ZERO);
}
