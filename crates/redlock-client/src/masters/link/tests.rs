use super::*;
use crate::lease::QuorumSize;

fn link() -> Link {
    let clocks = SharedClocks::new(QuorumSize::new(3).unwrap(), Duration::from_secs(60));
    one_of(0, clocks)
}

fn one_of(index: usize, clocks: Arc<SharedClocks>) -> Link {
    Link::new(
        index,
        format!("m{index}"),
        Dial::new(
            "redis://127.0.0.1:1".into(),
            redis::Client::open("redis://127.0.0.1:1").unwrap(),
        ),
        Keyspace::new("redlock"),
        Arc::new(Identity::new("f".into(), None)),
        CommandTimeout::new(Duration::from_millis(100)),
        clocks,
    )
}

/// A reply by the master's clock, one millisecond after it was asked for.
fn reply(link: &Link, admission: Admission, master_ms: u64, sent_ms: u64) -> Result<Reply, Unknown> {
    let at = |ms: u64| Moment::from_nanos(ms * 1_000_000);
    let reply = Reply {
        code: Code::Ok,
        time: master_ms * 1_000,
        counter: 0,
        items: Vec::new(),
    };
    link.note(admission, Ok(reply), 0, at(sent_ms), at(sent_ms + 1)).0
}

#[test]
fn a_vote_that_shows_a_clock_step_does_not_count() {
    let link = link();
    assert!(reply(&link, Admission::Voting, 1_000_000, 0).is_ok());
    // The clock went an hour ahead: every lease there has ended, and the grant says so by its own time.
    let vote = reply(&link, Admission::Voting, 4_600_500, 500);
    assert!(matches!(vote, Err(Unknown::Unfit(_))), "{vote:?}");
    // Asked for before the step was known.
    let vote = reply(&link, Admission::Voting, 4_600_501, 499);
    assert!(matches!(vote, Err(Unknown::Unfit(_))), "{vote:?}");
    assert!(
        reply(&link, Admission::Connected, 4_600_502, 502).is_ok(),
        "clean-up and looks are no votes"
    );
    assert!(reply(&link, Admission::Voting, 4_661_800, 61_800).is_ok());
}

/// The same of one of three masters that share the clocks of their quorum; what is doubted, too.
fn vote_of(link: &Link, master_ms: u64, sent_ms: u64) -> (Result<Reply, Unknown>, Option<Reply>) {
    let at = |ms: u64| Moment::from_nanos(ms * 1_000_000);
    let reply = Reply {
        code: Code::Ok,
        time: master_ms * 1_000,
        counter: 0,
        items: vec![Value::Int(1)],
    };
    link.note(Admission::Voting, Ok(reply), 0, at(sent_ms), at(sent_ms + 1))
}

#[test]
fn what_shows_a_clock_step_is_kept_for_its_refusals() {
    let link = link();
    let (vote, doubted) = vote_of(&link, 1_000_000, 0);
    assert!(vote.is_ok() && doubted.is_none());
    let (vote, doubted) = vote_of(&link, 4_600_500, 500);
    assert!(matches!(vote, Err(Unknown::Unfit(_))), "{vote:?}");
    assert_eq!(doubted.map(|reply| reply.items), Some(vec![Value::Int(1)]));
    // Of a master that has no vote for another reason, nothing counts.
    link.set_duplicate(true);
    assert_eq!(vote_of(&link, 4_600_501, 501).1, None);
}

#[test]
fn a_step_of_the_local_clock_blames_no_master() {
    let clocks = SharedClocks::new(QuorumSize::new(3).unwrap(), Duration::from_secs(60));
    let links: Vec<Link> = (0..3).map(|index| one_of(index, clocks.clone())).collect();
    for link in &links {
        assert!(vote_of(link, 1_000_000, 0).0.is_ok());
    }
    // Ten seconds that the local clock did not count.
    let (first, _) = vote_of(&links[0], 1_010_500, 500);
    assert!(first.is_err() && clocks.local_steps() == 0);
    let (second, doubted) = vote_of(&links[1], 1_010_500, 500);
    assert!(matches!(second, Err(Unknown::LocalClock)), "{second:?}");
    assert!(doubted.is_some());
    assert_eq!(clocks.local_steps(), 1);
    for link in &links {
        let (vote, _) = vote_of(link, 1_010_510, 510);
        assert!(vote.is_ok(), "{vote:?}");
        assert_eq!(link.status().unfit, None);
    }
}

#[test]
fn a_vote_of_a_master_that_turned_out_unfit_meanwhile_does_not_count() {
    let link = link();
    link.set_duplicate(true);
    let vote = reply(&link, Admission::Voting, 1_000_000, 0);
    assert!(matches!(vote, Err(Unknown::Unfit(_))), "{vote:?}");
}

#[test]
fn a_vote_of_a_server_that_is_this_master_no_more_does_not_count() {
    let link = link();
    assert!(reply(&link, Admission::Voting, 1_000_000, 0).is_ok());
    let url = "redis://127.0.0.1:2";
    link.redial(url.into(), redis::Client::open(url).unwrap());
    assert_eq!(link.url(), url);
    let vote = reply(&link, Admission::Voting, 1_000_500, 500);
    assert!(matches!(vote, Err(Unknown::NotConnected(_))), "{vote:?}");
}

#[test]
fn a_retirement_is_recalled_until_the_url_changes() {
    let link = link();
    let said_in = |run_id: &str, seal: &str, text: &str, server| {
        let mut facts = Facts {
            run_id: run_id.into(),
            seal: seal.into(),
            fingerprint: text.into(),
            ..Facts::default()
        };
        link.recall_retirement(&mut facts, server);
        facts.fingerprint
    };
    let said = |text: &str, server| said_in("a1", "", text, server);
    assert_eq!(said("", 0), "");
    assert_eq!(
        said("retired: m0 is the server b1 now", 0),
        "retired: m0 is the server b1 now"
    );
    assert_eq!(said("", 0), "retired: m0 is the server b1 now");
    assert_eq!(
        said("f", 0),
        "retired: m0 is the server b1 now",
        "an older snapshot"
    );
    assert_eq!(said_in("b1", "", "", 0), "", "the successor");
    assert_eq!(said_in("c1", "c1", "f", 0), "f", "sealed by others");
    let url = "redis://127.0.0.1:2";
    link.redial(url.into(), redis::Client::open(url).unwrap());
    // An answer of the server before.
    assert_eq!(
        said("retired: m0 is the server b1 now", 0),
        "retired: m0 is the server b1 now"
    );
    assert_eq!(said("", 1), "");
}

#[test]
fn facts_that_are_older_than_three_seconds_give_no_vote() {
    let link = link();
    let mut state = link.state();
    state.looked = Moment::from_nanos(5_000_000_000);
    state.facts = Some(Facts {
        run_id: "a1".into(),
        seal: "a1".into(),
        ..Facts::default()
    });
    for (after_ms, stale) in [(0, false), (3_000, false), (3_001, true), (60_000, true)] {
        let now = state.looked + Duration::from_millis(after_ms);
        assert_eq!(state.is_stale(now), stale, "{after_ms} ms");
        let expected = if stale { Err(Unknown::NotLookedAt) } else { Ok(()) };
        assert_eq!(state.may_vote(now), expected, "{after_ms} ms");
    }
}
