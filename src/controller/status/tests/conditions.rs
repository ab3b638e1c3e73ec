//! Tests the conditions of other controllers.

use super::*;

#[test]
fn conditions_of_other_controllers_stay() {
    let plan = plan("");
    let mut before = lock_status(&facts(&LeaderLockStatus::default(), Ok(&plan), None, None));
    let mut foreign = before.conditions[0].clone();
    foreign.type_ = "example.com/Audited".into();
    before.conditions.insert(0, foreign.clone());
    let after = lock_status(&facts(&before, Ok(&plan), None, None));
    assert_eq!(after.conditions.len(), before.conditions.len());
    assert!(after.conditions.contains(&foreign));
}

/// The API server would refuse a longer list, and with it every status of the lock.
#[test]
fn conditions_of_other_controllers_leave_room_for_those_of_the_operator() {
    let plan = plan("");
    let mut before = lock_status(&facts(&LeaderLockStatus::default(), Ok(&plan), None, None));
    let own: Vec<String> = before.conditions.iter().map(|one| one.type_.clone()).collect();
    let foreign = before.conditions[0].clone();
    before.conditions.clear();
    before.conditions.extend((0..32).map(|number| {
        let mut foreign = foreign.clone();
        foreign.type_ = format!("example.com/Audited{number}");
        foreign
    }));
    let after = lock_status(&facts(&before, Ok(&plan), None, None));
    assert_eq!(after.conditions.len(), 32);
    for kind in own {
        assert!(after.conditions.iter().any(|one| one.type_ == kind), "{kind}");
    }
}
