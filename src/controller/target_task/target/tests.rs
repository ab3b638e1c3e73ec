use super::*;
use TargetState::{Active, Changing, Standby, Unknown};

fn at(seconds: u64) -> BootInstant {
    BootInstant::from_nanos(seconds * 1_000_000_000)
}

#[test]
fn a_stop_waits_for_its_turn_unless_the_target_runs_or_another_cluster_may_begin() {
    for deadline in [Deadline::None, Deadline::StopTime(at(9))] {
        for (observed, contested, urgent) in [
            (Active, false, true),
            (Changing, false, true),
            (Active, true, false),
            (Standby, false, false),
            (Unknown, false, false),
        ] {
            assert_eq!(is_urgent(deadline, observed, contested), urgent, "{observed:?}");
        }
    }
    assert!(is_urgent(Deadline::Promised(at(9)), Unknown, true));
}

#[test]
fn a_step_towards_a_deadline_leaves_time_for_another_try() {
    assert_eq!(step_limit(None, at(0)), PATIENCE);
    for (left, limit) in [(60, PATIENCE), (4, Duration::from_secs(2)), (0, SHORTEST)] {
        assert_eq!(step_limit(Some(at(100 + left)), at(100)), limit, "{left} s left");
    }
    assert_eq!(step_limit(Some(at(90)), at(100)), SHORTEST, "late");
}
