use super::*;

fn judged(milliseconds: &[Option<u64>]) -> Level {
    let took = milliseconds.iter().map(|took| took.map(Duration::from_millis));
    let round_trips: Vec<_> = took.collect();
    latency(&round_trips, Duration::from_millis(500), Duration::from_secs(15)).level
}

fn reachable(trouble: Option<Unknown>, answered: usize) -> Level {
    checks(trouble, answered, false)[0].level
}

fn checks(trouble: Option<Unknown>, answered: usize, is_only_one: bool) -> Vec<Check> {
    checks_of(MasterFacts::default(), trouble, answered, is_only_one)
}

fn checks_of(facts: MasterFacts, trouble: Option<Unknown>, answered: usize, is_only_one: bool) -> Vec<Check> {
    let status = MasterStatus {
        name: "m0".into(),
        url: "redis://m0".into(),
        connected: true,
        facts: Some(facts),
        trouble,
        ..MasterStatus::default()
    };
    let round_trips: Vec<_> = (0..9).map(|n| (n < answered).then_some(Duration::ZERO)).collect();
    let seen = MasterEvidence {
        status: &status,
        round_trips: &round_trips,
        preflight: Ok(&()),
        seal_wait: Duration::ZERO,
        unix_now: Duration::ZERO,
        lease_duration: Duration::from_secs(15),
        command_timeout: Duration::from_millis(500),
        is_only_one,
    };
    of(&seen)
}

#[test]
fn only_master_of_a_quorum_is_a_warning() {
    let warns = |checks: Vec<Check>| {
        let mut checks = checks.into_iter();
        checks.any(|check| check.name == "quorum" && check.level == Level::Warning)
    };
    assert!(warns(checks(None, 9, true)));
    assert!(
        warns(checks(Some(Unknown::Silent), 0, true)),
        "a server that is away"
    );
    assert!(!warns(checks(None, 9, false)));
}

#[test]
fn seal_that_ends_with_a_backlog_is_a_warning() {
    let level = |end: &str| {
        let facts = MasterFacts {
            run_id: "a".into(),
            server: server::Server::Redis("7.0.15".into()),
            role: "master".into(),
            seal: "a".into(),
            replication_id: "b".repeat(40),
            replication_at_seal: "b".repeat(40) + end,
            ..MasterFacts::default()
        };
        let mut checks = checks_of(facts, None, 9, false).into_iter();
        checks.find(|check| check.name == "sealed").unwrap().level
    };
    assert_eq!(level("|0"), Level::Good);
    assert_eq!(level("|0|backlog"), Level::Warning);
}

#[test]
fn one_poll_that_timed_out_does_not_make_a_master_unreachable() {
    let late = || Some(Unknown::TimedOut(500));
    assert_eq!(reachable(None, 0), Level::Good);
    assert_eq!(reachable(late(), 8), Level::Good);
    assert_eq!(reachable(late(), 5), Level::Good);
    assert_eq!(reachable(late(), 4), Level::Bad);
    assert_eq!(reachable(Some(Unknown::Silent), 9), Level::Bad);
}

#[test]
fn one_slow_sample_does_not_decide_the_latency_verdict() {
    let fast = Some(1);
    assert_eq!(judged(&[fast; 9]), Level::Good);
    let one = |odd| [fast, odd, fast, fast, fast, fast, fast, fast, fast];
    assert_eq!(judged(&one(Some(490))), Level::Warning);
    assert_eq!(judged(&one(None)), Level::Warning);
    let half = [None, None, None, None, fast, fast, fast, fast, fast];
    assert_eq!(judged(&half), Level::Warning);
    let most = [None, None, None, None, None, fast, fast, fast, fast];
    assert_eq!(judged(&most), Level::Bad);
    assert_eq!(judged(&[None; 9]), Level::Bad);
    assert_eq!(judged(&[Some(500); 9]), Level::Bad);
    assert_eq!(judged(&[]), Level::Bad);
}
