use super::*;
use crate::operator::sibling::{LockAnswer, QuorumAnswer};

fn at(seconds: u64) -> BootInstant {
    BootInstant::from_nanos(seconds * 1_000_000_000)
}

fn lease(own: bool, own_cluster: bool, token: u64, seconds: u64) -> LockAnswer {
    LockAnswer {
        contends: true,
        lease: Some(LeaseAnswer {
            own,
            own_cluster,
            of_asker: false,
            fencing_token: token,
            valid_for_milliseconds: seconds * 1_000,
        }),
    }
}

fn free(contends: bool) -> LockAnswer {
    LockAnswer {
        contends,
        lease: None,
    }
}

fn answer(identity: &str, majority: bool, lock: LockAnswer) -> Answer {
    let locks = BTreeMap::from([("n/l".to_owned(), lock)]);
    let quorum = QuorumAnswer { majority, locks };
    Answer {
        cluster: "here".into(),
        identity: identity.into(),
        finalizer: "redlock.dev/in-use-all".into(),
        api_contact_age_milliseconds: Some(0),
        stopping: false,
        uses: BTreeSet::from(["q".to_owned()]),
        quorums: BTreeMap::from([("q".to_owned(), quorum)]),
    }
}

fn combined_answer(answers: Vec<Answer>) -> Option<CombinedAnswer> {
    let round = Round::new(at(100), answers, "here", "me");
    round.combined_answer("q", &LockName::parse("n/l").unwrap())
}

#[test]
fn a_finalizer_is_needed_by_a_sibling_that_uses_the_quorum_or_does_not_answer() {
    let asked = || Asked::from([("q".to_owned(), BTreeSet::new())]);
    let round = |answers, silent| Round::new(at(100), answers, "here", "me").about(asked(), silent);
    let sibling = answer("a", true, free(true));
    let used = round(vec![sibling.clone()], false);
    assert!(used.needs("q", "redlock.dev/in-use-all"));
    assert!(!used.needs("q", "redlock.dev/in-use-other") && !used.needs("p", "redlock.dev/in-use-all"));
    let mut left = sibling;
    left.uses.clear();
    assert!(!round(vec![left.clone()], false).needs("q", "redlock.dev/in-use-all"));
    assert!(
        round(vec![left], true).needs("q", "redlock.dev/in-use-all"),
        "one is silent"
    );
    assert!(!round(Vec::new(), false).needs("q", "redlock.dev/in-use-all"));
    let mut earlier = answer("a", true, free(true));
    earlier.finalizer.clear();
    earlier.uses.clear();
    assert!(
        round(vec![earlier], false).needs("q", "redlock.dev/in-use-all"),
        "of a build that reports neither"
    );
}

#[test]
fn the_last_replica_is_beside_siblings_that_end_or_do_not_run() {
    let is_last = |stopping: &[bool], ended| {
        let answers = stopping.iter().map(|stopping| Answer {
            stopping: *stopping,
            ..answer("a", false, free(false))
        });
        Round::new(at(100), answers.collect(), "here", "me")
            .beside_ended(ended)
            .is_last()
    };
    assert!(is_last(&[], true) && is_last(&[true, true], true));
    assert!(!is_last(&[], false), "a replica that did not answer may run");
    assert!(!is_last(&[true, false], true), "one runs on");
    assert!(!Round::default().is_last());
}

#[test]
fn replica_without_a_majority_writes_where_no_sibling_can() {
    let lock = LockName::parse("n/l").unwrap();
    let asked = || Asked::from([("q".to_owned(), BTreeSet::from(["n/l".to_owned()]))]);
    let witness = |answers: Vec<Answer>, silent, former: Option<u64>| {
        let round = Round::new(at(100), answers, "here", "me").about(asked(), silent);
        round.witness("q", Some(&lock), former.map(FencingToken))
    };
    assert_eq!(Round::default().witness("q", None, None), Witness::Awaited);
    assert_eq!(witness(vec![], false, None), Witness::Absent);
    assert_eq!(witness(vec![], true, None), Witness::Silent);
    let blind = |lock| answer("a", false, lock);
    assert_eq!(witness(vec![blind(free(true))], false, None), Witness::Absent);
    let sees = answer("a", true, free(true));
    assert_eq!(witness(vec![sees], true, None), Witness::Responsible);
    // A lease is in force until its end even if its holder has no majority now.
    let held = |own, token| blind(lease(own, true, token, 5));
    assert_eq!(witness(vec![held(true, 7)], false, None), Witness::Awaited);
    assert_eq!(witness(vec![held(false, 7)], false, None), Witness::Awaited);
    assert_eq!(witness(vec![held(false, 7)], false, Some(7)), Witness::Absent);
    assert_eq!(witness(vec![held(false, 8)], false, Some(7)), Witness::Awaited);
    // A master that granted too late shows a greater number than the token.
    let mut of_asker = held(false, 8);
    let quorum = of_asker.quorums.get_mut("q").unwrap();
    let lease = quorum.locks.get_mut("n/l").unwrap().lease.as_mut().unwrap();
    lease.of_asker = true;
    assert_eq!(witness(vec![of_asker.clone()], false, Some(7)), Witness::Absent);
    assert_eq!(witness(vec![of_asker], false, None), Witness::Awaited);
    let other = Round::new(at(100), vec![], "here", "me").about(asked(), false);
    let unasked = LockName::parse("n/other").unwrap();
    assert_eq!(other.witness("q", Some(&unasked), None), Witness::Awaited);
    assert_eq!(other.witness("q", None, None), Witness::Absent);
}

#[test]
fn a_lease_ends_after_the_question_was_sent_and_not_after_the_answer_came() {
    let held = |seconds, token| Some(CombinedAnswer::Held(at(seconds), FencingToken(token)));
    assert_eq!(
        combined_answer(vec![answer("a", true, lease(true, true, 7, 5))]),
        held(105, 7)
    );
    // The holder's own lease counts, regardless of the masters that the holder reaches now.
    assert_eq!(
        combined_answer(vec![answer("a", false, lease(true, true, 7, 5))]),
        held(105, 7)
    );
    assert_eq!(
        combined_answer(vec![answer("a", true, lease(false, true, 7, 5))]),
        held(105, 7)
    );
    assert_eq!(
        combined_answer(vec![answer("a", false, lease(false, true, 7, 5))]),
        None
    );
    // The latest lease counts, and of several answers about one lease the latest end.
    let (old, new) = (lease(false, true, 7, 9), lease(true, true, 8, 5));
    assert_eq!(
        combined_answer(vec![answer("a", true, old.clone()), answer("b", true, new)]),
        held(105, 8)
    );
    let later = lease(true, true, 7, 11);
    assert_eq!(
        combined_answer(vec![answer("a", true, old.clone()), answer("b", true, later)]),
        held(111, 7)
    );
    let elsewhere = answer("b", true, lease(false, false, 8, 3));
    let there = Some(CombinedAnswer::Elsewhere(FencingToken(8)));
    assert_eq!(combined_answer(vec![answer("a", true, old), elsewhere]), there);
}

#[test]
fn a_lock_is_free_by_the_answer_of_a_sibling_that_would_take_it() {
    assert_eq!(
        combined_answer(vec![answer("a", true, free(true))]),
        Some(CombinedAnswer::Free)
    );
    assert_eq!(combined_answer(vec![answer("a", true, free(false))]), None);
    assert_eq!(combined_answer(vec![answer("a", false, free(true))]), None);
    assert_eq!(combined_answer(Vec::new()), None);
    let held = answer("b", true, lease(true, true, 1, 5));
    assert!(matches!(
        combined_answer(vec![answer("a", true, free(true)), held]),
        Some(CombinedAnswer::Held(..))
    ));
}

#[test]
fn the_own_answer_and_another_clusters_are_none() {
    let held = || lease(true, true, 7, 5);
    assert_eq!(combined_answer(vec![answer("me", true, held())]), None);
    let mut other = answer("a", true, held());
    other.cluster = "there".into();
    assert_eq!(combined_answer(vec![other]), None);
}

#[test]
fn a_successor_has_a_majority_and_contends() {
    let lock = LockName::parse("n/l").unwrap();
    let round =
        |majority, contends| Round::new(at(100), vec![answer("a", majority, free(contends))], "here", "me");
    assert!(round(true, true).has_successor("q", &lock, false));
    assert!(!round(false, true).has_successor("q", &lock, false));
    assert!(!round(true, false).has_successor("q", &lock, false));
    assert!(
        round(true, false).has_successor("q", &lock, true),
        "agents contend"
    );
    assert!(round(true, false).sibling_is_responsible("q", &lock));
    assert!(!round(true, true).sibling_is_responsible("other", &lock));
    assert!(!Round::default().sibling_is_responsible("q", &lock));
}
