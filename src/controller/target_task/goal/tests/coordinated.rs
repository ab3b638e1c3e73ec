//! Tests what a replica leaves to the coordinator.

use super::*;

#[test]
fn blind_replica_leaves_to_the_coordinator_what_it_is_neither_asked_nor_bound_to_stop() {
    let silent = TargetFacts {
        coordinated_until: Some(at(300)),
        ..blind(Siblings::Silent)
    };
    let now = at(200);
    assert_eq!(goal(&silent, now), Goal::Keep(Some(at(300))));
    assert!(matches!(goal(&silent, at(300)), Goal::Stop(_)), "not renewed");
    for (what, facts) in [
        (
            "its own lease ends",
            TargetFacts {
                lost: Some(at(210)),
                ..silent
            },
        ),
        (
            "requested",
            TargetFacts {
                stop_by: Some(at(210)),
                ..silent
            },
        ),
        (
            "it sees the masters",
            TargetFacts {
                siblings: Siblings::Unasked,
                other: Some(Other::Elsewhere),
                ..silent
            },
        ),
    ] {
        assert!(matches!(goal(&facts, now), Goal::Stop(_)), "{what}");
    }
}
