//! Requests on their way: batches, deadlines, clean-up, order.

use super::*;
use crate::{HolderIdentity, LeaseStem, LockName, Nonce, command::Command};

fn attempt(nonce: u128) -> Arc<LeaseAttempt> {
    let stem = LeaseStem::new(&cluster(), &HolderIdentity::parse("c").unwrap(), Nonce(nonce));
    Arc::new(LeaseAttempt::new(stem, LEASE))
}

fn request(engine: &mut Engine, id: u64, lock: &str, command: Command, now: BootInstant) {
    let lock = Keyspace::new("p").lock(&LockName::any(lock).unwrap());
    let id = RequestId(id);
    engine.handle(Input::Request(Request { id, lock, command }), now);
}

fn acquire(nonce: u128) -> Command {
    Command::Acquire {
        attempt: attempt(nonce),
        lease_duration: Duration::from_secs(10),
    }
}

fn granted() -> Value {
    let text = |text: &str| Value::from(text);
    Value::Array(vec![
        text("granted"),
        7_u64.into(),
        0_u64.into(),
        0_u64.into(),
        text("0|0"),
    ])
}

/// Gives the clock of each master to the engine, so that nothing is too late.
fn with_clocks() -> Engine {
    let mut engine = engine_at(0);
    for master in 0..3 {
        let _ = call(&mut engine, (master, Admission::Connected), 1_000_000, 0);
    }
    drain(&mut engine, at(1));
    engine
}

#[test]
fn requests_that_arrive_together_travel_together() {
    let mut engine = with_clocks();
    for lock in 0..200_u64 {
        request(
            &mut engine,
            lock,
            &format!("l{lock}"),
            acquire(lock.into()),
            at(2),
        );
    }
    let sent = transmits(&mut engine, at(2));
    let sizes: Vec<usize> = sent.iter().map(|transmit| transmit.members.len()).collect();
    assert_eq!(sizes, [128, 128, 128, 72, 72, 72]);
    // While those are under way, a request waits, no longer than a millisecond.
    request(&mut engine, 300, "late", acquire(300), at(2));
    assert!(transmits(&mut engine, at(2)).is_empty());
    assert_eq!(engine.next_timeout(), Some(at(3)));
    assert_eq!(transmits(&mut engine, at(3)).len(), 3);
}

#[test]
fn majority_wins_and_the_reply_of_the_last_master_is_not_waited_for() {
    let mut engine = with_clocks();
    request(&mut engine, 1, "l", acquire(1), at(2));
    let sent = transmits(&mut engine, at(2));
    let reply = || Ok(reply(1_000_003, vec![granted()]));
    for (transmit, expected) in sent.iter().zip([0, 1, 0]) {
        let transmit = transmit.id;
        engine.handle(
            Input::Reply {
                transmit,
                result: reply(),
            },
            at(3),
        );
        let outputs = drain(&mut engine, at(3));
        assert_eq!(completions(outputs).len(), expected);
    }
    assert!(engine.is_idle());
}

#[test]
fn masters_that_do_not_answer_lose_the_attempt_at_the_deadline_and_are_undone_again() {
    let mut engine = with_clocks();
    request(&mut engine, 1, "l", acquire(1), at(2));
    assert_eq!(transmits(&mut engine, at(2)).len(), 3);
    assert_eq!(engine.next_timeout(), Some(at(102)));
    engine.handle(Input::Timeout, at(102));
    let outputs = drain(&mut engine, at(102));
    let undos = outputs.iter().filter(|output| {
        matches!(output, Output::Transmit(transmit) if transmit.payload.operation == Operation::Undo)
    });
    assert_eq!(undos.count(), 3, "an undo is owed to a silent master, too");
    assert!(matches!(
        completions(outputs)[..],
        [Completion::NotWon(crate::Loss::NoQuorum(_))]
    ));
    assert_eq!(engine.master(0, at(102)).no_vote, Some(Unknown::Silent));
    // The undo that was not answered is repeated after the last `not_after` of the grant.
    engine.handle(Input::Timeout, at(202));
    drain(&mut engine, at(202));
    assert_eq!(engine.repeats_left(), 3);
}

#[test]
fn reply_after_the_deadline_changes_nothing() {
    let mut engine = with_clocks();
    request(&mut engine, 1, "l", acquire(1), at(2));
    let sent = transmits(&mut engine, at(2));
    engine.handle(Input::Timeout, at(102));
    drain(&mut engine, at(102));
    for transmit in sent {
        let result = Ok(reply(1_000_103, vec![granted()]));
        engine.handle(
            Input::Reply {
                transmit: transmit.id,
                result,
            },
            at(103),
        );
    }
    assert!(completions(drain(&mut engine, at(103))).is_empty());
}

#[test]
fn release_never_overtakes_the_renewal_before_it() {
    let mut engine = with_clocks();
    let attempt = attempt(1);
    let renew = Command::Renew {
        attempt: attempt.clone(),
        token: crate::FencingToken(7),
        lease_duration: Duration::from_secs(10),
    };
    request(&mut engine, 1, "l", renew, at(2));
    request(&mut engine, 2, "l", Command::Release { attempt }, at(2));
    let sent = transmits(&mut engine, at(2));
    let order: Vec<Operation> = sent.iter().map(|transmit| transmit.payload.operation).collect();
    assert_eq!(order[..3], [Operation::Renew; 3]);
    assert_eq!(order[3..], [Operation::Release; 3]);
}
