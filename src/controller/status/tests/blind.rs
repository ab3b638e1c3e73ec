//! Tests the statuses of replicas without a majority, and of the last replica at its end.

use super::*;
use TargetState::{Active, Changing, Standby};

fn written(before: &LeaderLockStatus, author: Author, targets: Option<&TargetReport>) -> LeaderLockStatus {
    let plan = plan(TARGET);
    lock_status(&LockFacts {
        author,
        no_majority: Some(Problem::new(Reason::NoMajority, "fewer than 2 of 3 masters vote")),
        ..facts(before, Ok(&plan), targets, None)
    })
}

fn held() -> LeaderLockStatus {
    let running = report(Active, Active, None);
    let plan = plan(TARGET);
    let before = LeaderLockStatus::default();
    lock_status(&facts(&before, Ok(&plan), Some(&running), Some(holder("eu-1"))))
}

#[test]
fn former_holder_shows_its_stop_and_claims_no_lease() {
    let before = held();
    let stopping = report(Standby, Changing, None);
    let status = written(&before, Author::Former, Some(&stopping));
    assert_eq!(status.role, Some(Role::Stopping));
    assert_eq!(status_of(&status.conditions, "Enforced"), ("False", "Switching"));
    let stopped = report(Standby, Standby, None);
    let status = written(&status, Author::Former, Some(&stopped));
    assert_eq!((status.role, &status.holder), (Some(Role::Unknown), &None));
    assert_eq!(status_of(&status.conditions, "Held"), ("Unknown", "NoMajority"));
    assert_eq!(status_of(&status.conditions, "Enforced"), ("True", "AsDeclared"));
    assert_eq!(status.targets, stopped.targets);
    let held = status.conditions.iter().find(|one| one.type_ == "Held").unwrap();
    assert!(held.message.contains("eu-1/pod"), "{}", held.message);
    assert_eq!(status.fencing_token, before.fencing_token);
    assert!(!claims(&status));
    assert_eq!(status, written(&status, Author::Former, Some(&stopped)));
}

#[test]
fn targets_that_are_kept_running_are_not_as_declared() {
    let kept = report(Active, Active, None);
    for author in [Author::Former, Author::Anybody] {
        let status = written(&held(), author, Some(&kept));
        assert_eq!(
            status_of(&status.conditions, "Enforced"),
            ("Unknown", "NoMajority")
        );
        assert_eq!(status.role, Some(Role::Unknown));
    }
}

#[test]
fn replicas_without_sight_do_not_replace_each_others_statuses() {
    let before = held();
    let stopped = report(Standby, Standby, None);
    let other = written(&before, Author::Anybody, Some(&stopped));
    assert!(adds(&before, &other));
    let former = written(&before, Author::Former, Some(&stopped));
    let again = written(&former, Author::Anybody, Some(&stopped));
    assert_ne!(former, again, "in their words");
    assert!(!adds(&former, &again));
    let running = written(&former, Author::Anybody, Some(&report(Active, Active, None)));
    assert!(adds(&former, &running), "the targets are otherwise");
    let edited = LeaderLockStatus {
        observed_generation: Some(GENERATION + 1),
        ..again
    };
    assert!(adds(&former, &edited));
}

#[test]
fn the_last_replica_that_ends_leaves_no_holder_and_nothing_enforced() {
    let before = held();
    let running = report(Active, Active, None);
    let stopped = report(Standby, Standby, None);
    for (held, targets, agents, role) in [
        (HeldUntilEnd::Released, Some(&stopped), false, Role::Standby),
        (HeldUntilEnd::Released, None, false, Role::Standby),
        (HeldUntilEnd::No, Some(&stopped), false, Role::Standby),
        (HeldUntilEnd::LeftToRunOut, Some(&running), false, Role::Unknown),
        (HeldUntilEnd::LeftToRunOut, None, false, Role::Unknown),
        (HeldUntilEnd::No, Some(&stopped), true, Role::Unknown),
    ] {
        let status = ended_status(&EndedFacts {
            before: &before,
            generation: GENERATION,
            replica: "eu-1/pod",
            held,
            agents,
            targets,
            now: Timestamp::from_second(1_763_719_300).unwrap(),
        });
        let what = format!("{held:?} {targets:?} {agents}");
        assert_valid(&status.conditions, &what);
        assert_eq!(
            (status.role, &status.holder_identity),
            (Some(role), &None),
            "{what}"
        );
        assert_eq!(
            status_of(&status.conditions, "Ready"),
            ("False", "OperatorStopped")
        );
        assert_eq!(
            status_of(&status.conditions, "Held"),
            ("Unknown", "OperatorStopped")
        );
        assert_eq!(
            status_of(&status.conditions, "Enforced"),
            ("False", "OperatorStopped")
        );
        assert_eq!(status.fencing_token, before.fencing_token);
    }
}

#[test]
fn the_last_replica_shows_that_it_stops_the_targets() {
    let before = held();
    let now = Timestamp::from_second(1_763_719_300).unwrap();
    let status = stopping_status(&before, GENERATION, "eu-1/pod", now);
    assert_valid(&status.conditions, "the lock");
    assert_eq!(
        (status.role, status.observed_generation),
        (Some(Role::Stopping), Some(GENERATION))
    );
    for kind in ["Ready", "Enforced"] {
        assert_eq!(status_of(&status.conditions, kind), ("False", "Stopping"));
    }
    assert_eq!(status_of(&status.conditions, "Reconciling"), ("True", "Stopping"));
    // The lease is not released yet.
    assert_eq!(status.holder_identity, before.holder_identity);
    assert_eq!(
        status_of(&status.conditions, "Held"),
        status_of(&before.conditions, "Held")
    );
    let targets = status.targets.iter();
    assert!(
        targets
            .map(|target| (target.desired, target.observed))
            .all(|state| state == (Standby, Changing))
    );
}

#[test]
fn quorum_of_the_last_replica_that_ends_is_not_observed() {
    let mut before = RedisQuorumStatus {
        votes: Some("3/3".to_owned()),
        quorum_id: Some("1f".to_owned()),
        ..RedisQuorumStatus::default()
    };
    for cluster in ["eu-1/u", "us-1/v"] {
        before.reporters.push(crate::api::quorum_status::ReporterStatus {
            cluster: cluster.to_owned(),
            last_seen_time: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::default()),
        });
    }
    let now = Timestamp::from_second(1_763_719_300).unwrap();
    let status = ended_quorum(
        &before,
        GENERATION,
        &EndedReporter {
            replica: "eu-1/pod",
            cluster: "eu-1/u",
        },
        now,
    );
    assert_valid(&status.conditions, "the quorum");
    assert_eq!(
        status_of(&status.conditions, "Ready"),
        ("False", "OperatorStopped")
    );
    assert_eq!((status.votes, status.quorum_id), (None, before.quorum_id));
    assert_eq!(status.reporters.len(), 1);
    assert_eq!(status.reporters[0].cluster, "us-1/v");
}
