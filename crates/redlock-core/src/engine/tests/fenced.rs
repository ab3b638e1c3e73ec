//! Tests the calls for leases of fenced locks: those that are sent, and those that are not.

use super::*;
use crate::{
    FencingToken, HolderIdentity, LeaseStem, LockName, Mark, Nonce, Won,
    command::{Command, Item},
    fence::Removal,
    script::{self, tests::Written},
};

fn fenced() -> Arc<LeaseAttempt> {
    let stem = LeaseStem::new(&cluster(), &HolderIdentity::parse("c").unwrap(), Nonce(1));
    Arc::new(LeaseAttempt::fenced(stem, LEASE, cluster()))
}

fn request(engine: &mut Engine, command: Command, now: BootInstant) {
    let lock = Keyspace::new("p").lock(&LockName::any("l").unwrap());
    let id = RequestId(1);
    engine.handle(Input::Request(Request { id, lock, command }), now);
}

/// Returns the calls for a request, and its completion if all masters return this answer.
fn ask(engine: &mut Engine, command: Command, ms: u64, answer: &Value) -> (Vec<Transmit>, Vec<Completion>) {
    request(engine, command, at(ms));
    let outputs = drain(engine, at(ms));
    let (mut sent, mut completed) = (Vec::new(), Vec::new());
    for output in outputs {
        match output {
            Output::Transmit(transmit) => sent.push(transmit),
            Output::Completed { completion, .. } => completed.push(completion),
            _ => {}
        }
    }
    for transmit in &sent {
        let items = vec![answer.clone(); transmit.members.len()];
        let input = Input::Reply {
            transmit: transmit.id,
            result: Ok(reply(1_000_000 + ms + 1, items)),
        };
        engine.handle(input, at(ms + 1));
    }
    completed.extend(completions(drain(engine, at(ms + 1))));
    (sent, completed)
}

fn granted(mark: &str) -> Value {
    Value::Array(vec![
        "granted".into(),
        7_u64.into(),
        5_u64.into(),
        0_u64.into(),
        "5|20".into(),
        mark.into(),
    ])
}

/// Returns an engine that has won a lease, with token 7, after a lease of the own cluster.
fn holder() -> (Engine, Arc<LeaseAttempt>, Won) {
    let (mut engine, attempt) = (engine_at(0), fenced());
    for master in 0..3 {
        let _ = call(&mut engine, (master, Admission::Connected), 1_000_000, 0);
    }
    drain(&mut engine, at(1));
    let acquire = Command::Acquire {
        attempt: attempt.clone(),
        lease_duration: Duration::from_secs(10),
    };
    let before = granted(&format!("5|3,b,{}", Nonce(5)));
    let (sent, completed) = ask(&mut engine, acquire, 2, &before);
    assert_eq!(sent[0].payload.script().name, "GRANT_FENCED");
    match &completed[..] {
        [Completion::Won(won)] => (engine, attempt, *won),
        other => panic!("{other:?}"),
    }
}

fn held(attempt: &Arc<LeaseAttempt>) -> Command {
    marks(
        attempt,
        Mark::Held {
            delay: Duration::from_secs(1),
        },
    )
}

fn marks(attempt: &Arc<LeaseAttempt>, mark: Mark) -> Command {
    Command::Mark {
        attempt: attempt.clone(),
        token: FencingToken(7),
        mark,
    }
}

fn renew(attempt: &Arc<LeaseAttempt>) -> Command {
    Command::Renew {
        attempt: attempt.clone(),
        token: FencingToken(7),
        lease_duration: Duration::from_secs(10),
    }
}

fn release(attempt: &Arc<LeaseAttempt>) -> Command {
    let attempt = attempt.clone();
    Command::Release { attempt }
}

fn reserve(attempt: &Arc<LeaseAttempt>, cluster: &str) -> Command {
    Command::Reserve {
        attempt: attempt.clone(),
        cluster: ClusterId::new(cluster, cluster).unwrap(),
    }
}

/// Returns the arguments of the last lock.
fn arguments(transmit: &Transmit) -> Vec<String> {
    let mut written = Written::default();
    transmit.write(&mut written);
    let layout = transmit.payload.script().layout.unwrap();
    written.0.split_off(written.0.len() - layout.arguments.len())
}

const DONE: Value = Value::Int(1);

fn is_not_done(completed: &[Completion]) -> bool {
    matches!(completed, [Completion::Done { majority: false, .. }])
}

#[test]
fn a_win_of_a_fenced_lock_shows_the_lineage_that_it_continues() {
    let (_, _, won) = holder();
    let succession = won.succession.unwrap();
    assert_eq!((succession.first.0, succession.is_sibling()), (3, true));
}

#[test]
fn a_renewal_repeats_the_mark_from_when_it_was_asked_for() {
    let (mut engine, attempt, _) = holder();
    let (sent, _) = ask(&mut engine, renew(&attempt), 10, &DONE);
    assert_eq!(sent[0].payload.script().name, "RENEW_FENCED");
    assert_eq!(arguments(&sent[0])[3..], ["l", "", "0", "15000"]);
    // No master answers.
    let (sent, completed) = ask(&mut engine, held(&attempt), 20, &Value::Nil);
    let body = format!("3,b,{}", Nonce(1));
    assert_eq!(sent[0].payload.script().name, "MARK_FENCED");
    assert_eq!(arguments(&sent[0])[1..], ["l", "7", &body, "1000"]);
    assert!(is_not_done(&completed), "{completed:?}");
    let (sent, _) = ask(&mut engine, renew(&attempt), 30, &DONE);
    assert_eq!(arguments(&sent[0])[3..], ["l", &body, "1000", "15000"]);
}

#[test]
fn the_release_of_an_unmarked_lease_leaves_the_reservation_of_the_cluster() {
    let (mut engine, attempt, _) = holder();
    let (sent, completed) = ask(&mut engine, release(&attempt), 10, &DONE);
    let item = &sent[0].payload.items[0].1;
    assert!(
        matches!(item, Item::Command(Command::Undo { publish: true, .. })),
        "{item:?}"
    );
    assert!(matches!(completed[..], [Completion::Done { majority: true, .. }]));
}

#[test]
fn a_marked_lease_is_not_removed_before_its_stop_is_confirmed() {
    let (mut engine, attempt, _) = holder();
    // The mark is sent, and no master answers.
    ask(&mut engine, held(&attempt), 10, &Value::Nil);
    let undo = Command::Undo {
        attempt: attempt.clone(),
        publish: true,
    };
    for command in [release(&attempt), undo.clone(), reserve(&attempt, "other")] {
        let (sent, completed) = ask(&mut engine, command, 20, &DONE);
        assert!(sent.is_empty(), "{sent:?}");
        assert!(is_not_done(&completed), "{completed:?}");
    }
    // A stop that was judged before a majority forbids starts is not confirmed.
    ask(&mut engine, marks(&attempt, Mark::Clean), 30, &DONE);
    assert!(ask(&mut engine, release(&attempt), 40, &DONE).0.is_empty());
    ask(&mut engine, marks(&attempt, Mark::Closed), 50, &DONE);
    assert!(ask(&mut engine, release(&attempt), 60, &DONE).0.is_empty());
    ask(&mut engine, marks(&attempt, Mark::Clean), 70, &DONE);
    assert_eq!(attempt.fence().unwrap().removal(), Removal::All);
    let (sent, _) = ask(&mut engine, release(&attempt), 80, &DONE);
    assert_eq!(sent.len(), 3);
    let item = &sent[0].payload.items[0].1;
    assert!(matches!(item, Item::Command(Command::Release { .. })), "{item:?}");
    assert!(ask(&mut engine, undo, 90, &DONE).0.is_empty());
}

#[test]
fn a_lease_that_is_passed_on_keeps_the_own_reservation_unless_the_stop_is_confirmed() {
    let keep = |confirmed: bool, cluster: &str| {
        let (mut engine, attempt, _) = holder();
        if confirmed {
            ask(&mut engine, held(&attempt), 10, &DONE);
            ask(&mut engine, marks(&attempt, Mark::Closed), 20, &DONE);
            ask(&mut engine, marks(&attempt, Mark::Clean), 30, &DONE);
        }
        let (sent, _) = ask(&mut engine, reserve(&attempt, cluster), 40, &DONE);
        assert_eq!(sent[0].payload.script().name, "RESERVE_FENCED");
        arguments(&sent[0])[3].clone()
    };
    assert_eq!(keep(false, "other"), "keep");
    assert_eq!(keep(true, "other"), "");
    // A lease is passed on to a sibling even while pods run by it.
    let (mut engine, attempt, _) = holder();
    ask(&mut engine, held(&attempt), 10, &DONE);
    assert_eq!(ask(&mut engine, reserve(&attempt, "b"), 20, &DONE).0.len(), 3);
}

/// Deleting the lease alone would admit the own cluster to a lock that is kept for another cluster.
#[test]
fn a_repeat_of_a_reserve_leaves_lease_and_own_reservation() {
    let (mut engine, attempt, _) = holder();
    ask(&mut engine, held(&attempt), 10, &DONE);
    ask(&mut engine, marks(&attempt, Mark::Closed), 20, &DONE);
    ask(&mut engine, marks(&attempt, Mark::Clean), 30, &DONE);
    request(&mut engine, reserve(&attempt, "other"), at(40));
    let sent = transmits(&mut engine, at(40));
    assert_eq!(arguments(&sent[0])[3], "");
    // The last master does not answer.
    for transmit in &sent[..2] {
        let input = Input::Reply {
            transmit: transmit.id,
            result: Ok(reply(1_000_041, vec![DONE])),
        };
        engine.handle(input, at(41));
    }
    engine.handle(Input::Timeout, at(140));
    drain(&mut engine, at(140));
    let _ = call(&mut engine, (2, Admission::Connected), 1_000_150, 150);
    let due = engine.next_timeout().unwrap();
    engine.handle(Input::Timeout, due);
    let sent = transmits(&mut engine, due);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].payload.operation, Operation::Reserve);
    assert_eq!(arguments(&sent[0])[3], "keep");
}

#[test]
fn a_lock_without_fencing_forbids_no_starts() {
    let mut engine = engine_at(0);
    let stem = LeaseStem::new(&cluster(), &HolderIdentity::parse("c").unwrap(), Nonce(1));
    let attempt = Arc::new(LeaseAttempt::new(stem, LEASE));
    // Its script would take this for `clean`.
    let (sent, completed) = ask(&mut engine, marks(&attempt, Mark::Closed), 10, &DONE);
    assert!(sent.is_empty() && is_not_done(&completed), "{completed:?}");
}

#[test]
fn fenced_and_other_locks_do_not_travel_in_one_call() {
    let (mut engine, attempt, _) = holder();
    let stem = LeaseStem::new(&cluster(), &HolderIdentity::parse("c").unwrap(), Nonce(2));
    let other = Arc::new(LeaseAttempt::new(stem, LEASE));
    for (name, command) in [
        ("l", renew(&attempt)),
        ("m", renew(&other)),
        ("l", renew(&attempt)),
    ] {
        let lock = Keyspace::new("p").lock(&LockName::any(name).unwrap());
        let id = RequestId(1);
        engine.handle(Input::Request(Request { id, lock, command }), at(10));
    }
    let sent = transmits(&mut engine, at(10));
    let names: Vec<_> = sent
        .iter()
        .filter(|transmit| transmit.id.master == 0)
        .map(|transmit| (transmit.payload.script().name, transmit.members.len()))
        .collect();
    assert_eq!(names, [("RENEW", 1), ("RENEW_FENCED", 2)]);
    assert!(script::ALL.iter().any(|script| script.name == "FENCE"));
}

/// The next holder may be a sibling, whose pods run by that reservation.
#[test]
fn a_repeat_of_the_release_of_a_marked_lease_leaves_the_reservation() {
    let (mut engine, attempt, _) = holder();
    ask(&mut engine, held(&attempt), 10, &DONE);
    ask(&mut engine, marks(&attempt, Mark::Closed), 20, &DONE);
    ask(&mut engine, marks(&attempt, Mark::Clean), 30, &DONE);
    request(&mut engine, release(&attempt), at(40));
    assert_eq!(transmits(&mut engine, at(40)).len(), 3);
    // No master answers.
    engine.handle(Input::Timeout, at(140));
    drain(&mut engine, at(140));
    let due = engine.next_timeout().unwrap();
    engine.handle(Input::Timeout, due);
    let sent = transmits(&mut engine, due);
    assert_eq!(sent.len(), 3);
    for transmit in sent {
        assert_eq!(transmit.payload.operation, Operation::Undo);
    }
}
