//! Tests statuses against the rules of clients: kstatus (sigs.k8s.io/cli-utils), as used by Flux and Argo CD.

mod blind;
mod conditions;
mod guarded;
mod holders;
mod surges;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};

use super::*;
use crate::{
    api::{
        lock_status::{LeaderLockStatus, Role, TargetState, TargetStatus},
        plan::{LockPlan, tests::plan_of as plan},
        quorum_status::RedisQuorumStatus,
    },
    controller::{
        object::ObjectKey,
        problem::{Problem, Reason},
        target_task::TargetReport,
        templates::Surges,
    },
};

const GENERATION: i64 = 4;
const TOKEN: u64 = 1_763_719_203_551;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kstatus {
    InProgress,
    Failed,
    Current,
}

/// Reimplements `status.Compute` for a kind without a specific rule in kstatus: the generation, then the
/// first of `Reconciling` and `Stalled` that is true, then `Ready`.
fn kstatus(generation: i64, observed: Option<i64>, conditions: &[Condition]) -> Kstatus {
    if observed.is_some_and(|observed| observed != generation) {
        return Kstatus::InProgress;
    }
    for condition in conditions.iter().filter(|condition| condition.status == "True") {
        match condition.type_.as_str() {
            "Reconciling" => return Kstatus::InProgress,
            "Stalled" => return Kstatus::Failed,
            _ => {}
        }
    }
    match conditions.iter().find(|condition| condition.type_ == "Ready") {
        Some(ready) if ready.status != "True" => Kstatus::InProgress,
        _ => Kstatus::Current,
    }
}

fn status_of<'a>(conditions: &'a [Condition], kind: &str) -> (&'a str, &'a str) {
    let found = conditions.iter().find(|condition| condition.type_ == kind);
    found.map_or(("", ""), |condition| (&condition.status, &condition.reason))
}

/// Asserts that the CRD accepts the conditions, and that exactly one of `Ready`, `Reconciling` and `Stalled` is true.
fn assert_valid(conditions: &[Condition], what: &str) {
    let is_true = |kind: &str| status_of(conditions, kind).0 == "True";
    let states = ["Ready", "Reconciling", "Stalled"].map(is_true);
    let exactly_one = states.iter().filter(|state| **state).count() == 1;
    assert!(exactly_one, "Ready, Reconciling, Stalled {states:?}: {what}");
    for condition in conditions {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let reason = &condition.reason;
        assert!(
            !reason.is_empty() && reason.len() <= 1024 && reason.chars().all(word),
            "{reason}: {what}"
        );
        assert!(
            reason.starts_with(|c: char| c.is_ascii_alphabetic()),
            "{reason}: {what}"
        );
        assert!(condition.message.chars().count() <= 1_024, "{what}");
        assert_eq!(condition.observed_generation, Some(GENERATION), "{what}");
        let twice = conditions
            .iter()
            .filter(|other| other.type_ == condition.type_)
            .count();
        assert_eq!(twice, 1, "{} twice: {what}", condition.type_);
    }
}

const TARGET: &str =
    ", targets: [{name: t, action: Scale, ref: {apiVersion: apps/v1, kind: Deployment, name: d}}]";

fn report(desired: TargetState, observed: TargetState, trouble: Option<Reason>) -> TargetReport {
    let known = matches!(observed, TargetState::Active | TargetState::Standby);
    TargetReport {
        key: ObjectKey {
            namespace: "n".into(),
            name: "l".into(),
        },
        targets: vec![TargetStatus {
            name: "t".into(),
            desired,
            observed,
        }],
        removed: Vec::new(),
        has: Vec::new(),
        runs: observed != TargetState::Standby,
        wants_guard: false,
        wants_read: None,
        takeover: None,
        settled: known && desired == observed && trouble.is_none(),
        trouble: trouble.map(|reason| Problem::new(reason, format!("target t: {}", reason.name()))),
        unswitchable: false,
        unready: false,
        nodes: None,
        notes: Vec::new(),
    }
}

fn holder(cluster: &str) -> HolderFacts {
    HolderFacts {
        identity: "pod".into(),
        cluster: cluster.into(),
        cluster_uid: format!("uid-of-{cluster}"),
        own_cluster: cluster == "eu-1",
        token: Some(TOKEN),
        acquired: None,
        takeover: None,
    }
}

fn no_guards() -> &'static super::super::node_guards::NodeGuards {
    static NONE: std::sync::LazyLock<super::super::node_guards::NodeGuards> =
        std::sync::LazyLock::new(Default::default);
    &NONE
}

fn facts<'a>(
    before: &'a LeaderLockStatus,
    plan: Result<&'a LockPlan, &'a Problem>,
    targets: Option<&'a TargetReport>,
    holder: Option<HolderFacts>,
) -> LockFacts<'a> {
    LockFacts {
        before,
        generation: GENERATION,
        plan,
        author: Author::Holder,
        implausible: false,
        holder,
        masters: 3,
        no_majority: None,
        paused: None,
        abstains: None,
        last_holder: None,
        may_be_in_force: false,
        observes: false,
        leftovers: false,
        targets,
        surges: &Surges::NotJudged,
        guards: no_guards(),
        now: Timestamp::from_second(1_763_719_300).unwrap(),
    }
}

const PROBLEMS: [(Reason, Kstatus); 15] = [
    (Reason::InvalidSpec, Kstatus::Failed),
    (Reason::ImmutableField, Kstatus::Failed),
    (Reason::StopBudgetTooShort, Kstatus::Failed),
    (Reason::DuplicateLockName, Kstatus::Failed),
    (Reason::TargetTaken, Kstatus::Failed),
    (Reason::ClusterNameNotUnique, Kstatus::Failed),
    (Reason::MastersShared, Kstatus::Failed),
    (Reason::QuorumNotFound, Kstatus::InProgress),
    (Reason::QuorumNotUsable, Kstatus::InProgress),
    (Reason::SecretNotFound, Kstatus::InProgress),
    (Reason::SecretKeyMissing, Kstatus::InProgress),
    (Reason::SecretNotReadable, Kstatus::InProgress),
    (Reason::OldMasterStillReachable, Kstatus::InProgress),
    (Reason::ChangingUrl, Kstatus::InProgress),
    (Reason::Opening, Kstatus::InProgress),
];

const TROUBLES: [(Reason, Kstatus); 13] = [
    (Reason::EnforcementConflict, Kstatus::Failed),
    (Reason::KindUnknown, Kstatus::Failed),
    (Reason::KindClusterScoped, Kstatus::Failed),
    (Reason::NoScaleSubresource, Kstatus::Failed),
    (Reason::Forbidden, Kstatus::Failed),
    (Reason::TargetNotSafe, Kstatus::Failed),
    (Reason::SelectorInvalid, Kstatus::Failed),
    (Reason::HolderNotSelected, Kstatus::Failed),
    (Reason::TargetNotFound, Kstatus::InProgress),
    (Reason::NoReadyPod, Kstatus::InProgress),
    (Reason::TargetUnreachable, Kstatus::InProgress),
    (Reason::RequestDenied, Kstatus::InProgress),
    (Reason::NotMarked, Kstatus::InProgress),
];

fn computed(status: &LeaderLockStatus) -> Kstatus {
    kstatus(GENERATION, status.observed_generation, &status.conditions)
}

#[test]
fn kstatus_computes_failed_where_only_a_person_can_help_and_in_progress_elsewhere() {
    use TargetState::{Active, Changing, Standby};
    let before = LeaderLockStatus::default();
    let plan = plan(TARGET);
    for (reason, wanted) in PROBLEMS {
        let problem = Problem::new(reason, "why");
        let status = lock_status(&facts(&before, Err(&problem), None, None));
        assert_eq!(computed(&status), wanted, "{reason:?}");
    }
    for (trouble, wanted) in TROUBLES {
        for desired in [Active, Standby] {
            let report = report(desired, Changing, Some(trouble));
            let held = (desired == Active).then(|| holder("eu-1"));
            let status = lock_status(&facts(&before, Ok(&plan), Some(&report), held));
            assert_eq!(computed(&status), wanted, "{trouble:?} {desired:?}");
            assert_eq!(status_of(&status.conditions, "Ready"), ("False", trouble.name()));
        }
    }
    for (desired, observed, held, role, wanted) in [
        (Active, Active, "eu-1", Role::Active, Kstatus::Current),
        (Active, Standby, "eu-1", Role::Activating, Kstatus::InProgress),
        (Active, Changing, "eu-1", Role::Activating, Kstatus::InProgress),
        (Standby, Changing, "us-1", Role::Stopping, Kstatus::InProgress),
        (Standby, Standby, "us-1", Role::Standby, Kstatus::Current),
    ] {
        let report = report(desired, observed, None);
        let status = lock_status(&facts(&before, Ok(&plan), Some(&report), Some(holder(held))));
        let what = format!("{desired:?} {observed:?} {held}");
        assert_eq!((status.role, computed(&status)), (Some(role), wanted), "{what}");
        if role == Role::Activating {
            assert_eq!(
                status_of(&status.conditions, "Reconciling"),
                ("True", "Activating"),
                "{what}"
            );
        }
    }
    let unvisited = LeaderLockStatus {
        observed_generation: Some(-1),
        ..LeaderLockStatus::default()
    };
    assert_eq!(computed(&unvisited), Kstatus::InProgress);
}

#[test]
fn every_status_of_a_lock_has_one_of_ready_reconciling_and_stalled() {
    use TargetState::{Active, Changing, Standby, Unknown};
    let before = LeaderLockStatus::default();
    let plans = [
        "",
        TARGET,
        ", onQuorumLoss: KeepRunning",
        ", enforcement: Observe",
    ]
    .map(|more| {
        plan(&format!(
            "{more}{}",
            if more.contains(':') && more != TARGET {
                TARGET
            } else {
                ""
            }
        ))
    });
    let problems = PROBLEMS.map(|(reason, _)| Problem::new(reason, "why"));
    let verdicts = plans.iter().map(Ok).chain(problems.iter().map(Err));
    let states = [Active, Standby, Changing, Unknown];
    let mut reports: Vec<Option<TargetReport>> = vec![None];
    for (desired, observed) in states
        .iter()
        .flat_map(|desired| states.map(|observed| (*desired, observed)))
    {
        let troubles = TROUBLES.iter().map(|(reason, _)| Some(*reason)).chain([None]);
        reports.extend(troubles.map(|trouble| Some(report(desired, observed, trouble))));
    }
    let mut seen = 0;
    for resolution in verdicts {
        for report in &reports {
            for held in [None, Some(holder("eu-1")), Some(holder("us-1"))] {
                for author in [Author::Holder, Author::Reporter, Author::Former, Author::Anybody] {
                    for (no_majority, paused) in [(false, false), (false, true), (true, false), (true, true)]
                    {
                        let status = lock_status(&LockFacts {
                            author,
                            no_majority: no_majority
                                .then(|| Problem::new(Reason::NoMajority, "1 of 3 masters votes")),
                            paused: paused.then_some("night shift"),
                            ..facts(&before, resolution, report.as_ref(), held.clone())
                        });
                        let what =
                            format!("{author:?} {held:?} {no_majority} {paused} {report:?} {status:?}");
                        assert_valid(&status.conditions, &what);
                        let enforced = status_of(&status.conditions, "Enforced");
                        assert!(
                            status.role != Some(Role::Stopping) || enforced != ("True", "AsDeclared"),
                            "{what}"
                        );
                        let states = |state| status.targets.iter().all(|target| target.observed == state);
                        let as_declared = match status.role {
                            Some(Role::Standby) => states(Standby),
                            Some(Role::Active) => states(Active),
                            _ => true,
                        };
                        assert!(as_declared || enforced != ("True", "AsDeclared"), "{what}");
                        let working = matches!(status.role, Some(Role::Activating | Role::Stopping));
                        assert!(!working || computed(&status) != Kstatus::Current, "{what}");
                        seen += 1;
                    }
                }
            }
        }
    }
    println!("{seen} statuses");
}

#[test]
fn every_status_of_a_quorum_has_one_of_ready_reconciling_and_stalled() {
    let before = RedisQuorumStatus::default();
    let problems = PROBLEMS.map(|(reason, wanted)| (Some(Problem::new(reason, "why")), wanted));
    for (problem, wanted) in problems.into_iter().chain([(None, Kstatus::InProgress)]) {
        for health in [None, Some(Health::of(&[]))] {
            let status = quorum_status(&QuorumFacts {
                before: &before,
                generation: GENERATION,
                problem: problem.as_ref(),
                health: health.as_ref(),
                masters: &[],
                quorum_id: None,
                reporters: Vec::new(),
                not_ready: Vec::new(),
                unanswered: None,
                initialized: None,
                kept_by: Some("a lock names it".to_owned()),
                now: Timestamp::from_second(1_763_719_300).unwrap(),
            });
            assert_valid(&status.conditions, &format!("{problem:?} {health:?}"));
            let computed = kstatus(GENERATION, status.observed_generation, &status.conditions);
            assert_eq!(computed, wanted, "{problem:?}");
        }
    }
}

#[test]
fn a_long_message_is_cut_between_characters() {
    let plan = plan(TARGET);
    for filler in ["x", "ä", "€", "𝄞"] {
        let mut report = report(
            TargetState::Active,
            TargetState::Changing,
            Some(Reason::Forbidden),
        );
        report.trouble = Some(Problem::new(Reason::Forbidden, filler.repeat(3_000)));
        let before = LeaderLockStatus::default();
        let status = lock_status(&facts(&before, Ok(&plan), Some(&report), Some(holder("eu-1"))));
        let ready = status
            .conditions
            .iter()
            .find(|condition| condition.type_ == "Ready")
            .unwrap();
        assert!(ready.message.ends_with('…'));
        assert!(
            (1_000..=1_024).contains(&ready.message.len()),
            "{}",
            ready.message.len()
        );
    }
}

#[test]
fn a_paused_lock_is_current_and_not_activating() {
    let plan = plan(TARGET);
    let before = LeaderLockStatus::default();
    let mut found = report(TargetState::Active, TargetState::Standby, None);
    found.settled = true;
    let status = lock_status(&LockFacts {
        paused: Some("night shift"),
        ..facts(&before, Ok(&plan), Some(&found), Some(holder("eu-1")))
    });
    assert_eq!(status.role, Some(Role::Active));
    assert_eq!(computed(&status), Kstatus::Current);
    assert_eq!(status_of(&status.conditions, "Enforced"), ("False", "Paused"));
}
