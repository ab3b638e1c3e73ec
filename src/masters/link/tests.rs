use super::*;

fn link() -> Link {
    Link::new(
        0,
        "m0".into(),
        Dial::new(
            "redis://127.0.0.1:1".into(),
            redis::Client::open("redis://127.0.0.1:1").unwrap(),
        ),
        Keyspace::new("redlock"),
        "f".into(),
        CommandTimeout::new(Duration::from_millis(100)),
        Duration::from_secs(60),
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
    link.note(admission, Ok(reply), 0, at(sent_ms), at(sent_ms + 1))
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
