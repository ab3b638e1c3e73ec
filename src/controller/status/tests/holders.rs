//! Tests the holder in consecutive statuses.

use super::*;

#[test]
fn a_spec_that_is_wrong_for_a_while_keeps_the_holder_and_adds_no_transition() {
    let plan = plan("");
    let first = lock_status(&facts(
        &LeaderLockStatus::default(),
        Ok(&plan),
        None,
        Some(holder("eu-1")),
    ));
    let held = LeaderLockStatus {
        lease_transitions: Some(3),
        ..first
    };
    let typo = Problem::new(Reason::InvalidSpec, "spec.retryPeriodSeconds: 99");
    // The replica that holds the lock, and a replica that was started since and does not observe it.
    for seen in [Some(holder("eu-1")), None] {
        let author = if seen.is_some() {
            Author::Holder
        } else {
            Author::Reporter
        };
        let wrong = lock_status(&LockFacts {
            author,
            may_be_in_force: true,
            ..facts(&held, Err(&typo), None, seen)
        });
        assert_eq!(wrong.holder_identity.as_deref(), Some("pod"), "{wrong:?}");
        assert_eq!(wrong.holder_cluster.as_deref(), Some("eu-1"));
        assert_eq!(
            (wrong.acquire_time.clone(), wrong.renew_time.clone()),
            (held.acquire_time.clone(), held.renew_time.clone())
        );
        assert_eq!(wrong.timings, held.timings);
        assert_eq!(wrong.role, Some(Role::Unknown));
        let right = lock_status(&facts(&wrong, Ok(&plan), None, Some(holder("eu-1"))));
        assert_eq!(right.lease_transitions, Some(3));
        assert_eq!(right.role, Some(Role::Active));
    }
}

#[test]
fn a_holder_that_could_not_be_seen_for_a_while_is_the_same_by_its_token() {
    let plan = plan("");
    let first = lock_status(&facts(
        &LeaderLockStatus::default(),
        Ok(&plan),
        None,
        Some(holder("us-1")),
    ));
    assert_eq!(first.lease_transitions, Some(0));
    let unknown = lock_status(&LockFacts {
        author: Author::Anybody,
        no_majority: Some(Problem::new(Reason::NoMajority, "no majority")),
        ..facts(&first, Ok(&plan), None, None)
    });
    assert_eq!(unknown.holder_identity, None);
    for author in [Author::Reporter, Author::Holder] {
        let again = lock_status(&LockFacts {
            author,
            ..facts(&unknown, Ok(&plan), None, Some(holder("us-1")))
        });
        assert_eq!(again.lease_transitions, Some(0), "the same grant");
    }
    let later = HolderFacts {
        token: Some(TOKEN + 1),
        ..holder("us-1")
    };
    let changed = lock_status(&facts(&unknown, Ok(&plan), None, Some(later)));
    assert_eq!(changed.lease_transitions, Some(1), "another grant");
}
