//! Tests the results of `validate`.

use redlock::api::validate::{validate_lock_update, validate_quorum_update};
use redlock::api::{LeaderLock, RedisQuorum};

use crate::judge::{field_errors, judge, parse};
use crate::table::{Kind, Wanted, cases, changes, object};

#[test]
fn validate_answers_as_in_the_table() {
    let mut wrong = Vec::new();
    for (kind, case) in cases() {
        let errors = judge(kind, &case.spec);
        if let Some(problem) = case.wanted_of_validate().missing_in(&errors) {
            wrong.push(format!("{}: {problem}", case.case));
        }
        let repeated = case.never.filter(|secret| format!("{errors:?}").contains(secret));
        assert_eq!(repeated, None, "{}", case.case);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn validate_answers_changes_as_in_the_table() {
    for change in changes() {
        let spec = |spec| object(change.kind, "x", spec);
        let (before, after) = (spec(&change.before), spec(&change.after));
        let errors = match change.kind {
            Kind::LeaderLock => {
                let read = |value| parse::<LeaderLock>(value).unwrap().spec;
                validate_lock_update(&read(&before), &read(&after))
            }
            Kind::RedisQuorum => {
                let read = |value| parse::<RedisQuorum>(value).unwrap().spec;
                validate_quorum_update(&read(&before), &read(&after))
            }
        };
        let errors = errors.err().map(field_errors).unwrap_or_default();
        assert_eq!(change.wanted().missing_in(&errors), None, "{}", change.case);
    }
}

#[test]
fn the_table_is_as_long_as_the_rules_need() {
    let count = |accepted: bool| {
        let cases = cases();
        cases
            .iter()
            .filter(|(_, case)| (case.wanted_of_server() == Wanted::Accepted) == accepted)
            .count()
    };
    assert!(count(true) >= 15 && count(false) >= 40);
}
