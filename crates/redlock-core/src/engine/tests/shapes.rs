//! Tests that a master is believed only in the shape that the script of the operation returns.

use super::{
    batches::{acquire, answer, attempt, granted, renew, request, with_clocks},
    *,
};
use crate::{Loss, Mark, command::Command};

/// Returns the completion of a command that all masters answer with this item.
fn completion(command: Command, item: &Value) -> Completion {
    let mut engine = with_clocks();
    request(&mut engine, 1, "l", command, at(2));
    let mut completed = Vec::new();
    for transmit in transmits(&mut engine, at(2)) {
        completed.extend(completions(answer(&mut engine, &transmit, 3, item.clone())));
    }
    completed.pop().unwrap()
}

fn texts(items: &[&str]) -> Value {
    Value::Array(items.iter().map(|text| Value::from(*text)).collect())
}

#[test]
fn an_attempt_is_not_won_by_answers_that_are_no_grants() {
    for item in [Value::Int(1), texts(&["slot", "60|uid@a", "5"]), texts(&["ours"])] {
        let completion = completion(acquire(1), &item);
        assert!(
            matches!(completion, Completion::NotWon(Loss::NoQuorum(_))),
            "{item:?}: {completion:?}"
        );
    }
}

#[test]
fn a_renewal_counts_no_answer_of_another_operation() {
    for item in [
        granted(),
        texts(&["slot", "60|uid@a", "5"]),
        texts(&["ours"]),
        Value::Int(0),
    ] {
        let completion = completion(renew(&attempt(1)), &item);
        assert!(
            matches!(completion, Completion::RenewalUndecided),
            "{item:?}: {completion:?}"
        );
    }
}

#[test]
fn an_observation_takes_no_grant_for_a_free_lock() {
    for item in [granted(), Value::Int(0), texts(&["slot", "60|uid@a", "5"])] {
        let Completion::Observed(view) = completion(Command::Observe, &item) else {
            panic!("{item:?}")
        };
        assert_eq!(view.unknown(), 3, "{item:?}");
    }
}

#[test]
fn claims_marks_releases_and_breaks_are_done_or_not_done() {
    let claim = Command::Claim {
        object: "o".into(),
        slot: 60,
        job: "uid@a".into(),
    };
    let mark = Command::Mark {
        attempt: attempt(1),
        token: crate::FencingToken(7),
        mark: Mark::Clean,
    };
    let release = Command::Release { attempt: attempt(1) };
    let longest_lease = LEASE;
    for command in [claim, mark, release, Command::Break { longest_lease }] {
        for item in [
            granted(),
            texts(&["slot", "60|uid@a", "5"]),
            texts(&["reserved", "a/b", "9"]),
        ] {
            let completion = completion(command.clone(), &item);
            let Completion::Done {
                majority, refused, ..
            } = completion
            else {
                panic!("{command:?} {item:?}")
            };
            assert!(!majority && !refused, "{command:?} {item:?}");
        }
    }
}
