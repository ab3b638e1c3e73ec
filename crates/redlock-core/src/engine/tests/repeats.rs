//! Tests what the repeats of releases and undos publish.

use super::{
    batches::{acquire, answer, attempt, granted, request, with_clocks},
    *,
};
use crate::{command::Command, script::tests::Written};

/// Returns the name that the last lock of a release or undo publishes, or nothing.
fn published(transmit: &Transmit) -> String {
    let mut written = Written::default();
    let (members, master) = (&transmit.members, transmit.id.master);
    transmit.payload.write(&mut written, 0, "s", master, members);
    written.0.pop().unwrap()
}

/// Sends a call that no master answers, and returns what its repeats publish.
fn published_by_repeats(engine: &mut Engine, command: Command, ms: u64) -> Vec<String> {
    request(engine, 2, "l", command, at(ms));
    drain(engine, at(ms));
    repeats(engine)
}

/// Lets all calls time out until the first repeats are sent.
fn repeats(engine: &mut Engine) -> Vec<String> {
    while engine.repeats_left() == 0 {
        let overdue = engine.next_timeout().unwrap();
        engine.handle(Input::Timeout, overdue);
        drain(engine, overdue);
    }
    let due = engine.next_timeout().unwrap();
    engine.handle(Input::Timeout, due);
    transmits(engine, due).iter().map(published).collect()
}

/// A lease that was granted by all masters.
fn held(engine: &mut Engine) -> Arc<LeaseAttempt> {
    let attempt = attempt(1);
    let acquire = Command::Acquire {
        attempt: attempt.clone(),
        lease_duration: Duration::from_secs(10),
    };
    request(engine, 1, "l", acquire, at(2));
    for transmit in transmits(engine, at(2)) {
        answer(engine, &transmit, 3, granted());
    }
    attempt
}

#[test]
fn the_repeat_of_a_release_is_published() {
    let mut engine = with_clocks();
    let attempt = held(&mut engine);
    let again = published_by_repeats(&mut engine, Command::Release { attempt }, 6);
    assert_eq!(again, ["l"; 3]);
    // Nor does a second repeat lose it.
    assert_eq!(repeats(&mut engine), ["l"; 3]);
}

#[test]
fn the_repeat_of_an_undo_is_published_if_the_undo_was() {
    for (publish, expected) in [(true, "l"), (false, "")] {
        let mut engine = with_clocks();
        let attempt = held(&mut engine);
        let undo = Command::Undo { attempt, publish };
        assert_eq!(published_by_repeats(&mut engine, undo, 6), [expected; 3]);
    }
}

#[test]
fn the_repeat_of_the_undo_of_a_lost_attempt_is_not_published() {
    let mut engine = with_clocks();
    request(&mut engine, 1, "l", acquire(1), at(2));
    drain(&mut engine, at(2));
    assert_eq!(repeats(&mut engine), [""; 3]);
}
