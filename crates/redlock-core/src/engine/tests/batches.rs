//! Tests requests under way: batches, deadlines, clean-up, order.

use super::*;
use crate::{HolderIdentity, LeaseStem, LockName, Nonce, command::Command};

pub(super) fn attempt(nonce: u128) -> Arc<LeaseAttempt> {
    let stem = LeaseStem::new(&cluster(), &HolderIdentity::parse("c").unwrap(), Nonce(nonce));
    Arc::new(LeaseAttempt::new(stem, LEASE))
}

pub(super) fn request(engine: &mut Engine, id: u64, lock: &str, command: Command, now: BootInstant) {
    let lock = Keyspace::new("p").lock(&LockName::any(lock).unwrap());
    let id = RequestId(id);
    engine.handle(Input::Request(Request { id, lock, command }), now);
}

pub(super) fn acquire(nonce: u128) -> Command {
    Command::Acquire {
        attempt: attempt(nonce),
        lease_duration: Duration::from_secs(10),
    }
}

fn acquire_locks(engine: &mut Engine, locks: u64) {
    for lock in 0..locks {
        let name = format!("l{lock}");
        request(engine, lock, &name, acquire(lock.into()), at(2));
    }
}

pub(super) fn granted() -> Value {
    let text = |text: &str| Value::from(text);
    Value::Array(vec![
        text("granted"),
        7_u64.into(),
        0_u64.into(),
        0_u64.into(),
        text("0|0"),
    ])
}

/// Returns an engine that has sampled the clock of each master, so that no command is too late.
pub(super) fn with_clocks() -> Engine {
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
    acquire_locks(&mut engine, 200);
    let sent = transmits(&mut engine, at(2));
    let sizes: Vec<usize> = sent.iter().map(|transmit| transmit.members.len()).collect();
    assert_eq!(sizes, [128, 128, 128, 72, 72, 72]);
    // While those are under way, a request waits for at most a millisecond.
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
    for (transmit, expected) in sent.iter().zip([0, 1, 0]) {
        let outputs = answer(&mut engine, transmit, 3, granted());
        assert_eq!(completions(outputs).len(), expected);
    }
    assert!(engine.is_idle());
}

#[test]
fn votes_of_one_reply_are_counted_by_their_kind() {
    let mut engine = with_clocks();
    acquire_locks(&mut engine, 3);
    let sent = transmits(&mut engine, at(2));
    let unreadable = Value::from("other");
    let outputs = answer_all(&mut engine, &sent[0], 3, vec![granted(), granted(), unreadable]);
    let counted = outputs.into_iter().find_map(|output| match output {
        Output::Exchanged { votes, .. } => Some(votes),
        _ => None,
    });
    assert_eq!(counted, Some([2, 0, 1]), "granted, refused, unknown");
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

/// Gives the reply of one master to a transmit, at `ms` of both clocks.
pub(super) fn answer(engine: &mut Engine, transmit: &Transmit, ms: u64, item: Value) -> Vec<Output> {
    answer_all(engine, transmit, ms, vec![item])
}

/// Answers a call for several locks, an item for each.
fn answer_all(engine: &mut Engine, transmit: &Transmit, ms: u64, items: Vec<Value>) -> Vec<Output> {
    let transmit = transmit.id;
    let result = Ok(reply(1_000_000 + ms, items));
    engine.handle(Input::Reply { transmit, result }, at(ms));
    drain(engine, at(ms))
}

pub(super) fn renew(attempt: &Arc<LeaseAttempt>) -> Command {
    Command::Renew {
        attempt: attempt.clone(),
        token: crate::FencingToken(7),
        lease_duration: Duration::from_secs(10),
    }
}

#[test]
fn request_waits_for_no_batch_whose_completions_are_certain() {
    let mut engine = with_clocks();
    request(&mut engine, 1, "l", acquire(1), at(2));
    let sent = transmits(&mut engine, at(2));
    for transmit in &sent[..2] {
        answer(&mut engine, transmit, 2, granted());
    }
    // The third master has not answered.
    request(&mut engine, 2, "m", acquire(2), at(2));
    assert_eq!(transmits(&mut engine, at(2)).len(), 3);
}

#[test]
fn request_waits_for_a_batch_whose_completion_is_open_after_one_answer() {
    let mut engine = with_clocks();
    request(&mut engine, 1, "l", acquire(1), at(2));
    let sent = transmits(&mut engine, at(2));
    answer(&mut engine, &sent[0], 2, granted());
    request(&mut engine, 2, "m", acquire(2), at(2));
    assert!(transmits(&mut engine, at(2)).is_empty());
    assert_eq!(transmits(&mut engine, at(3)).len(), 3);
}

#[test]
fn renewal_that_a_majority_refuses_is_refused_and_without_answers_it_is_undecided() {
    let reserved = Value::Array(vec!["reserved".into(), "nobody".into(), 9_000_u64.into()]);
    for (item, expected) in [
        (Some(reserved), Completion::RenewalRefused),
        (Some(Value::Int(1)), Completion::Renewed { started: at(2) }),
        (None, Completion::RenewalUndecided),
    ] {
        let mut engine = with_clocks();
        request(&mut engine, 1, "l", renew(&attempt(1)), at(2));
        let sent = transmits(&mut engine, at(2));
        let mut outputs = Vec::new();
        if let Some(item) = item {
            for transmit in &sent {
                outputs.extend(answer(&mut engine, transmit, 3, item.clone()));
            }
        } else {
            engine.handle(Input::Timeout, at(102));
            outputs = drain(&mut engine, at(102));
        }
        let completed = completions(outputs);
        assert_eq!(format!("{completed:?}"), format!("{:?}", [expected]));
    }
}

#[test]
fn read_of_masters_that_disagree_ends_with_the_last_answer() {
    let lease_for = |nonce: u128, milliseconds: u64| {
        let value = format!("{}4", attempt(nonce).stem.as_str());
        Value::Array(vec!["lease".into(), value.as_str().into(), milliseconds.into()])
    };
    let lease = |nonce| lease_for(nonce, 9_000);
    let slot = |last: &str| Value::Array(vec!["slot".into(), last.into(), 0_u64.into()]);
    let object = || Arc::from("object");
    for (command, items) in [
        (Command::Observe, [lease(1), lease(2), Value::Int(1)]),
        // The clock of one master was set back.
        (
            Command::Observe,
            [lease_for(1, 58_000), lease_for(1, 1_300), lease_for(1, 1_300)],
        ),
        (
            Command::Slots { object: object() },
            [slot("1|a@x"), slot("2|b@x"), slot("3|c@x")],
        ),
    ] {
        let mut engine = with_clocks();
        request(&mut engine, 1, "l", command.clone(), at(2));
        let sent = transmits(&mut engine, at(2));
        let mut completed = Vec::new();
        for (transmit, item) in sent.iter().zip(items) {
            completed.push(completions(answer(&mut engine, transmit, 3, item)).len());
        }
        assert_eq!(completed, [0, 0, 1], "{command:?}");
    }
}

#[test]
fn step_of_the_local_clock_ends_renewals_and_no_clean_up() {
    let mut engine = with_clocks();
    let (renewed, released) = (attempt(1), attempt(2));
    request(&mut engine, 1, "l", renew(&renewed), at(2));
    let renewals = transmits(&mut engine, at(2));
    request(&mut engine, 2, "m", Command::Release { attempt: released }, at(3));
    let releases = transmits(&mut engine, at(3));
    // The polls show ten seconds that the local clock did not count.
    for master in 0..3 {
        let _ = call(&mut engine, (master, Admission::Connected), 1_010_004, 4);
    }
    assert_eq!(engine.local_steps(), 1);
    let mut completed = Vec::new();
    for transmit in renewals.iter().chain(&releases) {
        let transmit = transmit.id;
        let result = Ok(reply(1_010_006, vec![Value::Int(1)]));
        engine.handle(Input::Reply { transmit, result }, at(6));
        completed.extend(completions(drain(&mut engine, at(6))));
    }
    assert!(
        matches!(
            completed[..],
            [
                Completion::RenewalUndecided,
                Completion::Done { majority: true, .. }
            ]
        ),
        "{completed:?}"
    );
}

#[test]
fn release_on_another_connection_than_the_grant_is_repeated_there_once() {
    let mut engine = with_clocks();
    let attempt = attempt(1);
    let acquire = Command::Acquire {
        attempt: attempt.clone(),
        lease_duration: Duration::from_secs(10),
    };
    request(&mut engine, 1, "l", acquire, at(2));
    for transmit in transmits(&mut engine, at(2)) {
        answer(&mut engine, &transmit, 3, granted());
    }
    engine.handle(Input::Disconnected { master: 1 }, at(4));
    connect(&mut engine, 1, 2, 5);
    request(&mut engine, 2, "l", Command::Release { attempt }, at(6));
    for transmit in transmits(&mut engine, at(6)) {
        answer(&mut engine, &transmit, 7, Value::Int(1));
    }
    assert_eq!(engine.repeats_left(), 1);
    // 1.02 × the command timeout and 5 ms later.
    assert_eq!(engine.next_timeout(), Some(at(114)));
    engine.handle(Input::Timeout, at(114));
    let again = transmits(&mut engine, at(114));
    assert_eq!(again.iter().map(|t| t.id.master).collect::<Vec<_>>(), [1]);
    answer(&mut engine, &again[0], 115, Value::Int(1));
    assert_eq!(engine.repeats_left(), 0);
    assert!(engine.is_idle());
}

#[test]
fn engine_is_idle_once_nothing_waits_is_under_way_or_is_to_be_handed_out() {
    let mut engine = with_clocks();
    assert!(engine.is_idle() && !engine.has_output());
    let undo = Command::Undo {
        attempt: attempt(1),
        publish: false,
    };
    request(&mut engine, 1, "l", undo, at(2));
    assert!(!engine.is_idle(), "a request waits");
    assert!(!engine.has_output(), "it has not led to anything yet");
    assert!(engine.poll(at(2)).is_some());
    assert!(engine.has_output(), "transmits to the other masters");
    drain(&mut engine, at(2));
    assert!(!engine.is_idle(), "a batch is under way");
    assert!(!engine.has_output());
    engine.handle(Input::Disconnected { master: 0 }, at(3));
    assert!(engine.has_output());
    drain(&mut engine, at(3));
    engine.handle(Input::Timeout, at(102));
    drain(&mut engine, at(102));
    assert!(
        engine.is_idle() && engine.repeats_left() == 0,
        "no lease was sent"
    );
    engine.handle(Input::ServerChanged { master: 1 }, at(103));
    engine.handle(Input::Disconnected { master: 1 }, at(103));
    assert!(!engine.is_idle(), "outputs are to be handed out");
}

#[test]
fn repeat_that_is_due_is_to_be_sent() {
    let mut engine = with_clocks();
    request(&mut engine, 1, "l", acquire(1), at(2));
    drain(&mut engine, at(2));
    for ms in [102, 202] {
        engine.handle(Input::Timeout, at(ms));
        drain(&mut engine, at(ms));
    }
    assert!(engine.is_idle() && !engine.has_output());
    let due = engine.next_timeout().unwrap();
    engine.handle(Input::Timeout, due);
    assert!(engine.has_output());
    assert!(!engine.is_idle());
}

#[test]
fn read_ends_once_a_majority_is_free_or_shows_one_lease() {
    let value = format!("{}4", attempt(1).stem.as_str());
    let lease = Value::Array(vec!["lease".into(), value.as_str().into(), 9_000_u64.into()]);
    for item in [Value::Int(1), lease] {
        let mut engine = with_clocks();
        request(&mut engine, 1, "l", Command::Observe, at(2));
        let sent = transmits(&mut engine, at(2));
        let mut completed = Vec::new();
        for transmit in &sent {
            completed.push(completions(answer(&mut engine, transmit, 3, item.clone())).len());
        }
        assert_eq!(completed, [0, 1, 0], "{item:?}");
    }
}
