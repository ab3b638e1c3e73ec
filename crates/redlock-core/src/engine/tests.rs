mod batches;
mod fenced;
mod repeats;
mod shapes;
mod standing;

use super::*;
use crate::{
    Admission, Ineligible,
    eligibility::fit,
    reply::{Code, Value},
};

const LEASE: Duration = Duration::from_secs(60);

fn at(ms: u64) -> BootInstant {
    BootInstant::from_nanos(ms * 1_000_000)
}

fn cluster() -> ClusterId {
    ClusterId::new("a", "b").unwrap()
}

fn config() -> Config {
    Config {
        size: QuorumSize::new(3).unwrap(),
        fingerprint: "f".into(),
        quorum: fit().quorum,
        keys: Keyspace::new("p"),
        cluster: cluster(),
        longest_lease: LEASE,
        acquire_limit: Duration::from_secs(2),
        command_timeout: Duration::from_millis(100),
    }
}

fn facts(master: usize) -> MasterFacts {
    let run_id = format!("a{master}");
    MasterFacts {
        seal: run_id.clone(),
        run_id,
        ..fit()
    }
}

/// Returns an engine with three masters that were connected and polled at `ms`.
fn engine_at(ms: u64) -> Engine {
    let mut engine = Engine::new(config());
    for master in 0..3 {
        connect(&mut engine, master, 1, ms);
    }
    drain(&mut engine, at(ms));
    engine
}

fn connect(engine: &mut Engine, master: usize, connection: u32, ms: u64) {
    let connection = ConnectionId(connection);
    engine.handle(Input::Connected { master, connection }, at(ms));
    poll(engine, master, connection, ms);
}

fn poll(engine: &mut Engine, master: usize, connection: ConnectionId, ms: u64) {
    let facts = facts(master);
    engine.handle(
        Input::Polled {
            master,
            connection,
            facts,
        },
        at(ms),
    );
}

fn drain(engine: &mut Engine, now: BootInstant) -> Vec<Output> {
    std::iter::from_fn(|| engine.poll(now)).collect()
}

fn transmits(engine: &mut Engine, now: BootInstant) -> Vec<Transmit> {
    let outputs = drain(engine, now).into_iter();
    outputs
        .filter_map(|output| match output {
            Output::Transmit(transmit) => Some(transmit),
            _ => None,
        })
        .collect()
}

fn completions(outputs: Vec<Output>) -> Vec<Completion> {
    let completed = outputs.into_iter().filter_map(|output| match output {
        Output::Completed { completion, .. } => Some(completion),
        _ => None,
    });
    completed.collect()
}

fn reply(master_ms: u64, items: Vec<Value>) -> Reply {
    Reply {
        code: Code::Ok,
        time: master_ms * 1_000,
        counter: 1_000,
        items,
    }
}

/// Makes a call to a master, sent at `sent_ms` and answered a millisecond later, at `master_ms` of its own
/// clock.
fn call(
    engine: &mut Engine,
    (master, admission): (usize, Admission),
    master_ms: u64,
    sent_ms: u64,
) -> Finished {
    let timeout = Duration::from_millis(100);
    // The facts are fresh whenever a call is made.
    engine.masters[master].touch(at(sent_ms));
    let call = engine
        .begin_call(master, admission, timeout, at(sent_ms))
        .unwrap();
    engine.finish_call(
        master,
        &call,
        Ok(reply(master_ms, vec![Value::Int(1)])),
        at(sent_ms + 1),
    )
}

const VOTE: (usize, Admission) = (0, Admission::Voting);
const POLL: (usize, Admission) = (0, Admission::Connected);

#[test]
fn vote_that_shows_a_clock_step_does_not_count() {
    let mut engine = engine_at(0);
    assert!(call(&mut engine, VOTE, 1_000_000, 0).reply.is_ok());
    let asked_before = engine
        .begin_call(0, Admission::Voting, Duration::from_millis(100), at(499))
        .unwrap();
    // The clock went an hour ahead: every lease there has ended, and the grant shows it by its own time.
    let vote = call(&mut engine, VOTE, 4_600_500, 500);
    assert!(matches!(vote.reply, Err(Unknown::Ineligible(_))), "{vote:?}");
    assert_eq!(vote.doubted.map(|reply| reply.items), Some(vec![Value::Int(1)]));
    // This vote was asked for before the step was known.
    let late = Ok(reply(4_600_501, Vec::new()));
    let vote = engine.finish_call(0, &asked_before, late, at(502)).reply;
    assert!(matches!(vote, Err(Unknown::Ineligible(_))), "{vote:?}");
    assert!(
        call(&mut engine, POLL, 4_600_502, 502).reply.is_ok(),
        "clean-up and polls are no votes"
    );
    assert!(call(&mut engine, VOTE, 4_661_800, 61_800).reply.is_ok());
}

#[test]
fn nothing_counts_of_a_master_that_is_ineligible_for_another_reason() {
    let mut engine = engine_at(0);
    assert!(call(&mut engine, VOTE, 1_000_000, 0).reply.is_ok());
    let timeout = Duration::from_millis(100);
    let asked_before = engine.begin_call(0, Admission::Voting, timeout, at(1)).unwrap();
    // The second master turns out to be the same server.
    let connection = ConnectionId(1);
    engine.handle(
        Input::Polled {
            master: 1,
            connection,
            facts: facts(0),
        },
        at(2),
    );
    assert_eq!(engine.master(0, at(2)).ineligible, Some(Ineligible::Duplicate));
    let finished = engine.finish_call(0, &asked_before, Ok(reply(1_000_002, Vec::new())), at(3));
    assert!(matches!(finished.reply, Err(Unknown::Ineligible(_))) && finished.doubted.is_none());
}

#[test]
fn step_of_the_local_clock_blames_no_master() {
    let mut engine = engine_at(0);
    for master in 0..3 {
        let first = call(&mut engine, (master, Admission::Voting), 1_000_000, 0);
        assert!(first.reply.is_ok());
    }
    // The local clock did not count ten seconds.
    let first = call(&mut engine, VOTE, 1_010_500, 500);
    assert!(first.reply.is_err() && engine.local_steps() == 0);
    let second = call(&mut engine, (1, Admission::Voting), 1_010_500, 500);
    assert!(
        matches!(second.reply, Err(Unknown::LocalClock)) && second.doubted.is_some(),
        "{second:?}"
    );
    assert_eq!(engine.local_steps(), 1);
    for master in 0..3 {
        let vote = call(&mut engine, (master, Admission::Voting), 1_010_510, 510);
        assert!(vote.reply.is_ok(), "{vote:?}");
        assert_eq!(engine.master(master, at(511)).ineligible, None);
    }
}

#[test]
fn vote_of_a_server_that_is_this_master_no_more_does_not_count() {
    let mut engine = engine_at(0);
    let timeout = Duration::from_millis(100);
    let before = engine.begin_call(0, Admission::Voting, timeout, at(1)).unwrap();
    engine.handle(Input::ServerChanged { master: 0 }, at(2));
    let vote = engine
        .finish_call(0, &before, Ok(reply(1_000_000, Vec::new())), at(3))
        .reply;
    assert!(matches!(vote, Err(Unknown::NotConnected(_))), "{vote:?}");
    assert!(!engine.votes(0, at(3)));
}

#[test]
fn poll_on_an_earlier_connection_changes_nothing() {
    let mut engine = engine_at(0);
    engine.handle(Input::Disconnected { master: 0 }, at(1));
    let polled = |connection| Input::Polled {
        master: 0,
        connection: ConnectionId(connection),
        facts: facts(0),
    };
    engine.handle(polled(1), at(2));
    let connection = ConnectionId(2);
    engine.handle(
        Input::Connected {
            master: 0,
            connection,
        },
        at(3),
    );
    engine.handle(polled(1), at(4));
    assert!(!engine.votes(0, at(4)), "no vote before the first poll");
    engine.handle(polled(2), at(5));
    assert!(engine.votes(0, at(5)));
}

#[test]
fn retirement_is_recalled_until_the_server_changes() {
    let mut engine = engine_at(0);
    let shown_by = |engine: &mut Engine, run_id: &str, seal: &str, text: &str| {
        let timeout = Duration::from_millis(100);
        let poll = engine
            .begin_call(0, Admission::Connected, timeout, at(1))
            .unwrap();
        let mut facts = MasterFacts {
            run_id: run_id.into(),
            seal: seal.into(),
            fingerprint: text.into(),
            ..MasterFacts::default()
        };
        engine.recall_retirement(0, &poll, &mut facts);
        (facts.fingerprint, poll)
    };
    let shown = |engine: &mut Engine, text: &str| shown_by(engine, "a1", "", text).0;
    let retired = "retired: m0 is the server b1 now";
    assert_eq!(shown(&mut engine, ""), "");
    assert_eq!(shown(&mut engine, retired), retired);
    assert_eq!(shown(&mut engine, ""), retired);
    assert_eq!(shown(&mut engine, "f"), retired, "an older snapshot");
    assert_eq!(shown_by(&mut engine, "b1", "", "").0, "", "the successor");
    assert_eq!(shown_by(&mut engine, "c1", "c1", "f").0, "f", "sealed by others");
    let (_, of_the_former) = shown_by(&mut engine, "a1", "", "");
    engine.handle(Input::ServerChanged { master: 0 }, at(2));
    connect(&mut engine, 0, 2, 3);
    let mut facts = MasterFacts {
        fingerprint: retired.into(),
        ..MasterFacts::default()
    };
    engine.recall_retirement(0, &of_the_former, &mut facts);
    assert_eq!(shown_by(&mut engine, "a1", "", "").0, "");
}

#[test]
fn facts_that_are_older_than_three_seconds_give_no_vote() {
    let engine = engine_at(5_000);
    for (after_ms, stale) in [(0, false), (3_000, false), (3_001, true), (60_000, true)] {
        let now = at(5_000 + after_ms);
        let expected = stale.then_some(Unknown::NotPolled);
        assert_eq!(engine.master(0, now).no_vote, expected, "{after_ms} ms");
    }
}

/// Polls all masters.
fn poll_all(engine: &mut Engine, ms: u64) -> Duration {
    for master in 0..3 {
        poll(engine, master, ConnectionId(1), ms);
    }
    drain(engine, at(ms));
    engine.poll_after(0)
}

#[test]
fn masters_of_which_nothing_is_asked_are_polled_every_five_seconds() {
    let second = Duration::from_secs(1);
    let mut engine = engine_at(0);
    assert_eq!(poll_all(&mut engine, 60_000), second, "connected a lease ago");
    assert_eq!(poll_all(&mut engine, 60_001), 5 * second);
    let votes = |engine: &Engine, ms| engine.votes(0, at(ms));
    assert!(votes(&engine, 67_001), "the next poll is late by 2 s");
    assert!(!votes(&engine, 67_002));
    assert_eq!(poll_all(&mut engine, 67_002), 5 * second);
    // A failed poll is repeated soon, and the facts last as long as before.
    let reason = Unknown::TimedOut(100);
    engine.handle(Input::PollFailed { master: 0, reason }, at(72_002));
    assert_eq!(engine.poll_after(0), second);
    assert!(votes(&engine, 74_002));
    assert!(!votes(&engine, 74_003));
}

#[test]
fn request_after_a_rest_polls_every_master_at_once_and_each_second_from_then_on() {
    let second = Duration::from_secs(1);
    let mut engine = engine_at(0);
    assert_eq!(poll_all(&mut engine, 70_000), 5 * second);
    let request = |id| {
        Input::Request(Request {
            id: RequestId(id),
            lock: Keyspace::new("p").lock(&crate::LockName::parse("a").unwrap()),
            command: crate::Command::Observe,
        })
    };
    let polled = |outputs: Vec<Output>| {
        let polls = outputs.into_iter().filter_map(|output| match output {
            Output::Poll { master } => Some(master),
            _ => None,
        });
        polls.collect::<Vec<usize>>()
    };
    engine.handle(request(1), at(74_000));
    assert_eq!(polled(drain(&mut engine, at(74_000))), [0, 1, 2]);
    assert!(engine.votes(0, at(74_000)), "by the facts of 4 s ago");
    assert_eq!(poll_all(&mut engine, 74_001), second);
    engine.handle(request(2), at(75_000));
    assert_eq!(polled(drain(&mut engine, at(75_000))), [0_usize; 0]);
    assert_eq!(
        poll_all(&mut engine, 135_000),
        second,
        "what was asked for may be held"
    );
    assert_eq!(poll_all(&mut engine, 135_001), 5 * second);
}
