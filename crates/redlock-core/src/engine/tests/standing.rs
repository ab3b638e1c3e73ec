//! Tests the standing of a master and its reports.

use super::*;

/// Returns the reported standings of master 0, and whether each is a refusal.
fn changes(outputs: Vec<Output>) -> Vec<(String, bool)> {
    let changes = outputs.into_iter().filter_map(|output| match output {
        Output::MasterChanged {
            master: 0,
            standing,
            refused,
        } => Some((standing, refused)),
        _ => None,
    });
    changes.collect()
}

fn change(standing: &str, refused: bool) -> Vec<(String, bool)> {
    vec![(standing.to_owned(), refused)]
}

/// Polls these facts of master 0 at `ms`, and returns the resulting changes of its standing.
fn shows(engine: &mut Engine, facts: MasterFacts, ms: u64) -> Vec<(String, bool)> {
    let (master, connection) = (0, ConnectionId(1));
    engine.handle(
        Input::Polled {
            master,
            connection,
            facts,
        },
        at(ms),
    );
    changes(drain(engine, at(ms)))
}

fn poll_fails(engine: &mut Engine, ms: u64) -> Vec<(String, bool)> {
    let reason = Unknown::TimedOut(100);
    engine.handle(Input::PollFailed { master: 0, reason }, at(ms));
    changes(drain(engine, at(ms)))
}

#[test]
fn each_change_of_a_standing_is_reported_once() {
    let mut engine = Engine::new(config());
    let connection = ConnectionId(1);
    engine.handle(
        Input::Connected {
            master: 0,
            connection,
        },
        at(0),
    );
    assert_eq!(poll_fails(&mut engine, 1), change("unknown", false));
    assert_eq!(shows(&mut engine, facts(0), 1), change("sealed", false));
    assert_eq!(shows(&mut engine, facts(0), 1), []);
    let unsealed = MasterFacts {
        seal: String::new(),
        ..facts(0)
    };
    assert_eq!(shows(&mut engine, unsealed, 2), change("not sealed", false));
    let evicts = MasterFacts {
        eviction_policy: "allkeys-lru".into(),
        ..facts(0)
    };
    let refused = Ineligible::EvictionPolicy("allkeys-lru".into());
    let standing = format!("refused: {refused}");
    assert_eq!(shows(&mut engine, evicts, 3), change(&standing, true));
    assert_eq!(engine.master(0, at(3)).ineligible, Some(refused));
    assert!(!engine.votes(0, at(3)));
    assert_eq!(shows(&mut engine, facts(0), 4), change("sealed", false));
    // Facts that are too old are reported, and so is their return.
    assert_eq!(poll_fails(&mut engine, 3_005), change("not polled", false));
    assert_eq!(shows(&mut engine, facts(0), 3_006), change("sealed", false));
}

#[test]
fn master_whose_facts_were_too_old_is_reported_again_although_its_standing_is_the_same() {
    let mut engine = engine_at(0);
    assert_eq!(shows(&mut engine, facts(0), 3_000), []);
    assert_eq!(shows(&mut engine, facts(0), 6_001), change("sealed", false));
}

#[test]
fn master_that_leaves_a_request_unanswered_is_reported_until_it_answers() {
    let mut engine = engine_at(0);
    let timeout = Duration::from_millis(100);
    let unanswered = engine.begin_call(0, Admission::Voting, timeout, at(10)).unwrap();
    let _ = engine.finish_call(0, &unanswered, Err(Unknown::TimedOut(100)), at(110));
    assert_eq!(engine.master(0, at(110)).no_vote, Some(Unknown::Silent));
    assert_eq!(engine.quiet(0, at(110)), Duration::from_millis(110));
    assert_eq!(poll_fails(&mut engine, 111), change("does not answer", false));
    assert!(call(&mut engine, POLL, 1_000_000, 120).reply.is_ok());
    assert_eq!(engine.quiet(0, at(131)), Duration::from_millis(10));
    assert_eq!(shows(&mut engine, facts(0), 131), change("sealed", false));
}

#[test]
fn clock_step_is_reported_once_and_names_the_seconds_that_are_left_where_it_is_read() {
    let mut engine = engine_at(0);
    let _ = call(&mut engine, POLL, 1_000_000, 0);
    let _ = call(&mut engine, POLL, 4_600_500, 500);
    let stepped = change("refused: the clock of the server stepped", true);
    assert_eq!(shows(&mut engine, facts(0), 501), stepped);
    // The distrust lasts 1.02 × 60 s from the reply.
    let ineligible = |engine: &Engine, ms| engine.master(0, at(ms)).ineligible;
    assert_eq!(ineligible(&engine, 501), Some(Ineligible::ClockStep(62)));
    assert_eq!(ineligible(&engine, 60_701), Some(Ineligible::ClockStep(2)));
    assert_eq!(ineligible(&engine, 60_702), Some(Ineligible::ClockStep(1)));
    assert_eq!(shows(&mut engine, facts(0), 1_501), []);
    assert_eq!(ineligible(&engine, 61_701), None);
}

#[test]
fn connection_that_takes_the_place_of_another_one_votes_by_its_own_facts() {
    let mut engine = engine_at(0);
    let replaced = |connection, facts| Input::Replaced {
        master: 0,
        connection: ConnectionId(connection),
        facts,
    };
    engine.handle(replaced(2, facts(0)), at(2_000));
    let timeout = Duration::from_millis(100);
    let vote = engine
        .begin_call(0, Admission::Voting, timeout, at(5_000))
        .unwrap();
    assert_eq!(vote.connection, ConnectionId(2));
    let unsealed = MasterFacts {
        seal: String::new(),
        ..facts(0)
    };
    engine.handle(replaced(3, unsealed), at(5_001));
    assert_eq!(engine.master(0, at(5_001)).no_vote, Some(Unknown::NotSealed));
}

#[test]
fn facts_are_shown_while_the_connection_on_which_they_were_read_stands() {
    let mut engine = engine_at(0);
    assert_eq!(engine.facts(0), Some(&facts(0)));
    assert!(engine.master(0, at(0)).connected);
    engine.handle(Input::Disconnected { master: 0 }, at(1));
    assert_eq!(engine.facts(0), None);
    assert!(!engine.master(0, at(1)).connected);
    assert_eq!(engine.master(0, at(1)).facts, Some(facts(0)), "of the last poll");
    let reason = Unknown::ConnectionLost("reset".into());
    engine.handle(
        Input::Unreachable {
            master: 0,
            reason: reason.clone(),
        },
        at(2),
    );
    assert_eq!(engine.master(0, at(2)).trouble, Some(reason));
}

#[test]
fn failed_call_has_its_master_polled_unless_the_server_answered_a_poll_with_an_error() {
    let busy = || Unknown::server("BUSY", "a script runs");
    for (admission, error, polled) in [
        (Admission::Voting, busy(), true),
        (Admission::Connected, busy(), false),
        (Admission::Voting, Unknown::TimedOut(100), true),
        (Admission::Connected, Unknown::TimedOut(100), true),
    ] {
        let mut engine = engine_at(0);
        let timeout = Duration::from_millis(100);
        let call = engine.begin_call(0, admission, timeout, at(1)).unwrap();
        let _ = engine.finish_call(0, &call, Err(error.clone()), at(101));
        let polls = drain(&mut engine, at(101));
        let asked = polls
            .iter()
            .any(|output| matches!(output, Output::Poll { master: 0 }));
        assert_eq!(asked, polled, "{admission:?} {error}");
    }
}

#[test]
fn script_that_refuses_to_run_has_its_master_polled_unless_the_call_was_late() {
    for (code, expected, polled) in [
        (Code::Unsealed, Unknown::NotSealed, true),
        (Code::Foreign, Unknown::OtherFingerprint, true),
        (Code::Late, Unknown::TooLate, false),
    ] {
        let mut engine = engine_at(0);
        let timeout = Duration::from_millis(100);
        let call = engine.begin_call(0, Admission::Voting, timeout, at(1)).unwrap();
        let refused = Reply {
            code,
            ..reply(1_000_000, Vec::new())
        };
        let finished = engine.finish_call(0, &call, Ok(refused), at(2));
        assert_eq!(finished.reply.unwrap_err(), expected);
        let polls = drain(&mut engine, at(2));
        let asked = polls
            .iter()
            .any(|output| matches!(output, Output::Poll { master: 0 }));
        assert_eq!(asked, polled, "{expected}");
    }
}
