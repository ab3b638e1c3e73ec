//! Tests what a process must know of the quorum before it seals after a loss of a majority.

use super::{super::super::seen::init_probe, *};

const ALL: [Shows; 3] = [P, P, P];
/// 1.02 × 86,400 s + 2 × 60 s.
const LONGEST_WAIT: u64 = 88_248_000;

fn process() -> Identity {
    Identity::new(quorum(3).1.to_string(), None)
}

fn other_quorum(facts: &mut MasterFacts) {
    facts.seal.clone_from(&facts.run_id);
    trace_of_longer_leases(facts);
}

/// A process that starts when all masters have lost their memory knows nothing about the leases that were granted.
#[test]
fn a_process_that_never_saw_the_fingerprint_of_a_majority_waits_for_the_longest_lease_that_any_quorum_allows()
{
    let at_time = |time| plan_of(&process(), SealedBy::Process, &[(0, &ALL), (time, &ALL)]);
    let early = at_time(LONGEST_WAIT);
    assert_eq!(early.blocked, Some(Blocked::NeverSeen));
    assert!(early.of(&Step::Fallback).is_empty(), "{early:?}");
    assert!(early.blocked.unwrap().to_string().contains("`redlock init`"));
    let late = at_time(LONGEST_WAIT + 1);
    assert_eq!((late.of(&Step::Fallback), late.blocked), (vec![0, 1, 2], None));
    // One master does not show what a majority carried.
    let one = [Sealed, P, P];
    let plan = plan_of(&process(), SealedBy::Process, &[(0, &one), (9_000, &one)]);
    assert_eq!(plan.blocked, Some(Blocked::NeverSeen));
    // The id was stored outside the masters, under this fingerprint.
    let stored = Identity::new(quorum(3).1.to_string(), QuorumId::parse(&"a".repeat(32)));
    let plan = plan_of(&stored, SealedBy::Process, &[(0, &ALL), (2_441, &ALL)]);
    assert_eq!(plan.of(&Step::Fallback), [0, 1, 2]);
}

#[test]
fn a_process_that_saw_another_fingerprint_never_seals_after_a_total_loss() {
    let before = [Odd(other_quorum), Odd(other_quorum), Nothing];
    let later = 10 * LONGEST_WAIT;
    for by in [SealedBy::Process, SealedBy::Person] {
        let plan = plan_of(&process(), by, &[(0, &before), (1, &ALL), (later, &ALL)]);
        let Some(Blocked::OtherFingerprint { found, own }) = &plan.blocked else {
            panic!("{plan:?}");
        };
        assert!(found.contains("longestLeaseMilliseconds=10000"), "{found}");
        assert_eq!(*own, quorum(3).1.to_string());
        assert!(plan.of(&Step::Fallback).is_empty(), "{plan:?}");
    }
}

#[test]
fn the_wait_after_a_loss_covers_a_fingerprint_that_was_seen_before_it() {
    let before = [Odd(other_quorum), Sealed, Sealed];
    for (time, expected) in [(12_200, vec![]), (12_202, vec![0, 1, 2])] {
        let plan = plan_of(
            &process(),
            SealedBy::Process,
            &[(0, &before), (1, &ALL), (time, &ALL)],
        );
        assert_eq!(
            (plan.of(&Step::Fallback), plan.blocked),
            (expected, None),
            "{time}"
        );
    }
}

/// A person may know what no process does.
#[test]
fn a_person_seals_after_the_wait_of_the_own_fingerprint() {
    let plan = plan_of(&process(), SealedBy::Person, &[(0, &ALL), (2_441, &ALL)]);
    assert_eq!(plan.blocked, Some(Blocked::NeverSeen));
    assert_eq!(plan.of(&Step::Blocked { until: at(2_441) }), [0, 1, 2]);
}

fn begun_under(facts: &mut MasterFacts, fingerprint: &Fingerprint) {
    facts.probe = init_probe(facts, &fingerprint.to_string()) + "x";
}

fn begun(facts: &mut MasterFacts) {
    begun_under(facts, &quorum(3).1);
}

fn begun_with_longer_leases(facts: &mut MasterFacts) {
    let names = vec!["m0".into(), "m1".into(), "m2".into()];
    begun_under(
        facts,
        &Fingerprint::new(names, Duration::from_secs(40), Duration::from_millis(200)),
    );
}

fn restarted(facts: &mut MasterFacts) {
    begun(facts);
    facts.run_id.push_str("ff");
    facts.probe = facts.probe_prefix() + "x";
}

/// An `init` that ends after its probes leaves masters that were never sealed. The probes name the fingerprint.
#[test]
fn the_probes_of_an_init_that_ended_half_way_show_the_fingerprint_while_a_majority_carries_them() {
    let plan_at = |shows: [Shows; 3]| plan_of(&process(), SealedBy::Process, &[(0, &shows), (2_441, &shows)]);
    let two = plan_at([Odd(begun), Odd(begun), P]);
    assert_eq!((two.of(&Step::Fallback), two.blocked), (vec![0, 1, 2], None));
    let sealed = plan_at([Sealed, Odd(begun), P]);
    assert_eq!(sealed.of(&Step::Fallback), [1, 2]);
    for shows in [[Odd(begun), P, P], [Odd(begun_with_longer_leases), Odd(begun), P]] {
        assert_eq!(plan_at(shows).blocked, Some(Blocked::NeverSeen));
    }
    // What a probe shows is not remembered: another `init` may have sealed the masters since.
    let before = [Odd(begun), Odd(begun), Odd(begun)];
    let after = [Odd(restarted), Odd(restarted), Odd(restarted)];
    let plan = plan_of(
        &process(),
        SealedBy::Process,
        &[(0, &before), (1, &after), (9_000, &after)],
    );
    assert_eq!(plan.blocked, Some(Blocked::NeverSeen));
}
