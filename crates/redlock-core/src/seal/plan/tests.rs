//! Tests the plan, with one table row for each rule. Times are milliseconds; the wait of this quorum is 2,440.

use super::*;

mod knowledge;

const RUNS: [&str; 5] = ["a0", "b1", "c2", "d3", "e4"];

fn quorum(masters: usize) -> (QuorumSize, Fingerprint) {
    let names = (0..masters).map(|m| format!("m{m}")).collect();
    let fingerprint = Fingerprint::new(names, Duration::from_secs(2), Duration::from_millis(200));
    (QuorumSize::new(masters).unwrap(), fingerprint)
}

fn at(milliseconds: u64) -> BootInstant {
    BootInstant::from_nanos(milliseconds * 1_000_000)
}

/// The state of a master in a read.
#[derive(Clone, Debug)]
enum Shows {
    Nothing,
    Sealed,
    NoSeal,
    Probe(&'static str),
    /// A probe, after a restart.
    Restarted(&'static str),
    Odd(fn(&mut MasterFacts)),
}
use Shows::{NoSeal, Nothing, Odd, Probe, Restarted, Sealed};

fn facts(master: usize, shows: &Shows, fingerprint: &Fingerprint) -> Option<MasterFacts> {
    let mut facts = MasterFacts {
        run_id: RUNS[master].into(),
        server: crate::Server::Redis("7.0.15".into()),
        role: "master".into(),
        eviction_policy: "noeviction".into(),
        replication_id: "b".repeat(40),
        replication_at_seal: "b".repeat(40) + "|0",
        ..MasterFacts::default()
    };
    match shows {
        Nothing => return None,
        Sealed => {
            facts.seal = facts.run_id.clone();
            facts.fingerprint = fingerprint.to_string();
            facts.quorum = QuorumId::parse(&"a".repeat(32));
        }
        NoSeal => {}
        Probe(uuid) => facts.probe = facts.probe_prefix() + uuid,
        Restarted(uuid) => {
            facts.run_id.push_str("ff");
            facts.probe = facts.probe_prefix() + uuid;
        }
        Odd(change) => {
            facts.probe = facts.probe_prefix() + "x";
            change(&mut facts);
        }
    }
    Some(facts)
}

/// Reads at these times, with the answers a millisecond later; returns the last plan. The process saw all masters sealed
/// before that.
fn watched(reads: &[(u64, &[Shows])]) -> Plan {
    let (_, fingerprint) = quorum(reads[0].1.len());
    let mut identity = Identity::new(fingerprint.to_string(), None);
    for master in 0..reads[0].1.len() {
        identity.note(master, &facts(master, &Sealed, &fingerprint).unwrap());
    }
    plan_of(&identity, SealedBy::Process, reads)
}

fn plan_of(identity: &Identity, by: SealedBy, reads: &[(u64, &[Shows])]) -> Plan {
    let (size, fingerprint) = quorum(reads[0].1.len());
    let mut quarantine = Quarantine::new(size, fingerprint.clone(), by);
    let mut plan = None;
    for (time, shows) in reads {
        let response = |(master, shows)| {
            let received = at(time + 1);
            facts(master, shows, &fingerprint).map(|facts| Response { facts, received })
        };
        let read = Read {
            sent: at(*time),
            responses: shows.iter().enumerate().map(response).collect(),
        };
        plan = Some(quarantine.decide(&read, identity));
    }
    plan.unwrap()
}

fn steps(reads: &[(u64, &[Shows])]) -> Vec<(usize, Step)> {
    watched(reads).steps
}

fn wait(until: u64) -> Step {
    Step::Wait { until: at(until) }
}

const P: Shows = Probe("x");

#[test]
fn nothing_to_do_while_all_are_sealed_or_gone() {
    let plan = watched(&[(0, &[Sealed, Sealed, Nothing])]);
    assert_eq!((plan.steps, plan.sources), (vec![], vec![0, 1]));
}

#[test]
fn a_master_without_a_probe_of_its_run_gets_one() {
    assert_eq!(steps(&[(0, &[NoSeal, Sealed, Sealed])]), [(0, Step::Probe)]);
    let of_an_earlier_run = Odd(|f| f.probe = "a|x".into());
    assert_eq!(
        steps(&[(0, &[of_an_earlier_run, Sealed, Sealed])]),
        [(0, Step::Probe)]
    );
}

#[test]
fn wait_first_then_read() {
    // The probe is first seen at 1, when the answer arrives. The wait is over for a read that begins at
    // 2,441.
    for (time, expected) in [(2_440, wait(2_441)), (2_441, Step::Seal), (9_000, Step::Seal)] {
        let plan = watched(&[(0, &[P, Sealed, Sealed]), (time, &[P, Sealed, Sealed])]);
        assert_eq!(plan.steps, [(0, expected)], "at {time}");
        assert_eq!(plan.sources, [1, 2], "read after this plan, so after the wait");
    }
}

#[test]
fn the_wait_counts_from_the_own_first_sight_however_old_the_probe_is() {
    let another_reads_late = [P, Sealed, Sealed];
    assert_eq!(steps(&[(1_000_000, &another_reads_late)]), [(0, wait(1_002_441))]);
}

#[test]
fn a_changed_probe_a_restart_or_a_probe_gone_starts_again() {
    let sealed = |first| [first, Sealed, Sealed];
    for (between, last, expected) in [
        (sealed(P), sealed(Probe("y")), wait(5_441)),
        (sealed(P), sealed(Restarted("x")), wait(5_441)),
        (sealed(NoSeal), sealed(P), wait(5_441)),
        (sealed(Sealed), sealed(P), wait(5_441)),
        (sealed(P), sealed(NoSeal), Step::Probe),
        (sealed(Nothing), sealed(P), Step::Seal),
    ] {
        let case = format!("{between:?} {last:?}");
        let got = steps(&[(0, &sealed(P)), (1_000, &between), (3_000, &last)]);
        assert_eq!(got, [(0, expected)], "{case}");
    }
}

#[test]
fn a_probe_of_init_takes_the_same_full_wait() {
    let probe = || Probe("init|x");
    for (time, expected) in [(2_440, wait(2_441)), (2_441, Step::Seal)] {
        let got = steps(&[
            (0, &[probe(), Sealed, Sealed]),
            (time, &[probe(), Sealed, Sealed]),
        ]);
        assert_eq!(got, [(0, expected)]);
    }
    let replaced = steps(&[(0, &[P, Sealed, Sealed]), (2_500, &[probe(), Sealed, Sealed])]);
    assert_eq!(replaced, [(0, wait(4_941))], "init's probe is another one");
}

#[test]
fn unreachable_is_not_unsealed() {
    let all = [P, P, P];
    let two_vanish = [P, Nothing, Nothing];
    let plan = watched(&[(0, &all), (9_000, &two_vanish)]);
    assert_eq!(plan.steps, [(0, Step::Blocked { until: at(2_441) })]);
    let blocked = Blocked::TooFew {
        needed: 2,
        readable: 0,
        missing: 2,
    };
    assert_eq!(plan.blocked, Some(blocked));
    let one_sealed = watched(&[(0, &[P, Sealed, Nothing]), (9_000, &[P, Sealed, Nothing])]);
    assert_eq!(one_sealed.steps, [(0, Step::Blocked { until: at(2_441) })]);
    assert_eq!(
        one_sealed.blocked.unwrap().to_string(),
        "waiting until 1 more sealed masters can be read (1 of 2 needed can be read; 1 masters do not answer or are \
         refused)"
    );
}

#[test]
fn the_fallback_needs_f_plus_1_unsealed_at_once_for_the_whole_wait() {
    for (last, expected) in [
        (
            (2_441, [P, P, P]),
            vec![(0, Step::Fallback), (1, Step::Fallback), (2, Step::Fallback)],
        ),
        (
            (2_441, [P, P, Nothing]),
            vec![(0, Step::Fallback), (1, Step::Fallback)],
        ),
        (
            (2_441, [P, P, Sealed]),
            vec![(0, Step::Fallback), (1, Step::Fallback)],
        ),
        // Two masters have waited. The third has shown another probe, and has a wait of its own.
        (
            (2_441, [P, P, Probe("y")]),
            vec![(0, Step::Fallback), (1, Step::Fallback), (2, wait(4_882))],
        ),
        // Only one has waited.
        (
            (2_441, [P, Probe("y"), Probe("y")]),
            vec![(0, wait(4_882)), (1, wait(4_882)), (2, wait(4_882))],
        ),
        (
            (2_440, [P, P, P]),
            vec![(0, wait(2_441)), (1, wait(2_441)), (2, wait(2_441))],
        ),
        // One of them was sealed in the meantime: the other master alone is too few for either way.
        (
            (2_441, [P, Sealed, Nothing]),
            vec![(0, Step::Blocked { until: at(2_441) })],
        ),
        // With two sealed masters the ordinary way is open.
        ((2_441, [P, Sealed, Sealed]), vec![(0, Step::Seal)]),
    ] {
        let got = steps(&[(0, &[P, P, P]), (last.0, &last.1)]);
        assert_eq!(got, expected, "{last:?}");
    }
}

#[test]
fn one_read_shows_all_of_them() {
    // Two masters were without a seal for the whole wait, but no read after the wait shows both.
    let reads: [(u64, &[Shows]); 3] = [
        (0, &[P, P, P]),
        (3_000, &[P, Nothing, Nothing]),
        (3_100, &[Nothing, P, Nothing]),
    ];
    assert_eq!(steps(&reads), [(1, Step::Blocked { until: at(2_441) })]);
}

#[test]
fn five_masters_of_which_two_lost_their_memory_while_another_is_down_are_sealed_only_by_three() {
    let down = [P, P, Sealed, Sealed, Nothing];
    let until = at(2_441);
    let blocked = [(0, Step::Blocked { until }), (1, Step::Blocked { until })];
    assert_eq!(steps(&[(0, &down), (9_000, &down)]), blocked);
    let back = [P, P, Sealed, Sealed, Sealed];
    assert_eq!(
        steps(&[(0, &down), (9_000, &back)]),
        [(0, Step::Seal), (1, Step::Seal)]
    );
}

#[test]
fn a_refused_server_is_never_sealed_and_never_a_source() {
    let changes: [fn(&mut MasterFacts); 6] = [
        |f| f.role = "slave".into(),
        |f| f.cluster_mode = true,
        |f| f.server = crate::Server::Redis("6.0.16".into()),
        |f| f.eviction_policy = "allkeys-lru".into(),
        // Two names of one server: neither counts.
        |f| f.run_id = RUNS[0].into(),
        |f| {
            f.seal = f.run_id.clone();
            f.fingerprint = "v=1 of another quorum".into();
        },
    ];
    for (case, change) in changes.into_iter().enumerate() {
        let odd = || Odd(change);
        let plan = watched(&[(0, &[P, odd(), Sealed]), (9_000, &[P, odd(), Sealed])]);
        let is_twin = case == 4;
        let expected: &[(usize, Step)] = &[(0, Step::Blocked { until: at(2_441) })];
        assert_eq!(plan.steps, if is_twin { &[] } else { expected }, "case {case}");
        assert_eq!(plan.sources, [2], "case {case}");
    }
    for change in changes {
        let plan = watched(&[
            (0, &[P, Odd(change), Nothing]),
            (9_000, &[P, Odd(change), Nothing]),
        ]);
        assert!(
            !plan.steps.iter().any(|(_, step)| *step == Step::Fallback),
            "{plan:?}"
        );
    }
}

#[test]
fn a_sealed_master_of_another_quorum_is_never_resealed() {
    let other: fn(&mut MasterFacts) = |f| {
        f.seal = f.run_id.clone();
        f.fingerprint = "other".into();
    };
    let masters = [Odd(other), Odd(other), Odd(other)];
    assert_eq!(steps(&[(0, &masters), (9_000, &masters)]), []);
}

fn trace_of_longer_leases(facts: &mut MasterFacts) {
    let names = vec!["m0".into(), "m1".into(), "m2".into()];
    facts.fingerprint = Fingerprint::new(names, Duration::from_secs(10), Duration::from_secs(1)).to_string();
}

/// A server of another quorum, without its seal, among masters of which a majority is sealed in this quorum.
#[test]
fn server_of_another_quorum_waits_as_long_as_this_quorum_leases() {
    let masters = || [Odd(trace_of_longer_leases), Sealed, Sealed];
    assert_eq!(steps(&[(0, &masters()), (2_440, &masters())]), [(0, wait(2_441))]);
    assert_eq!(steps(&[(0, &masters()), (2_441, &masters())]), [(0, Step::Seal)]);
}

#[test]
fn traces_of_a_quorum_with_longer_leases_make_the_wait_after_a_loss_longer() {
    let trace: fn(&mut MasterFacts) = trace_of_longer_leases;
    let masters = || [Odd(trace), P, P];
    let got = steps(&[(0, &masters()), (9_000, &masters())]);
    assert_eq!(got, [(0, wait(12_201)), (1, wait(12_201)), (2, wait(12_201))]);
    assert!(matches!(
        steps(&[(0, &masters()), (12_201, &masters())])[..],
        [(_, Step::Fallback), ..]
    ));
}

fn of_another_quorum(facts: &mut MasterFacts) {
    facts.seal.clone_from(&facts.run_id);
    facts.fingerprint = quorum(3).1.to_string();
    facts.quorum = QuorumId::parse(&"b".repeat(32));
}

#[test]
fn server_of_another_quorum_is_no_source_and_gets_no_seal() {
    let plan = watched(&[(0, &[Sealed, Sealed, Odd(of_another_quorum)])]);
    assert_eq!((plan.steps, plan.sources), (Vec::new(), vec![0, 1]));
    assert_eq!(plan.quorum, QuorumId::parse(&"a".repeat(32)));
}

#[test]
fn masters_are_sealed_under_the_id_that_is_left() {
    let shows: &[Shows] = &[Odd(of_another_quorum), Probe("x"), Probe("y")];
    let plan = watched(&[(0, shows), (3_000, shows)]);
    assert_eq!(plan.of(&Step::Fallback), [1, 2]);
    assert_eq!(plan.quorum, QuorumId::parse(&"b".repeat(32)));
}

/// No majority has one id and too few are without a seal: an administrator has to decide.
#[test]
fn two_ids_without_a_majority_block_the_seal() {
    let shows: &[Shows] = &[Sealed, Odd(of_another_quorum), Probe("x")];
    let plan = watched(&[(0, shows), (3_000, shows)]);
    assert!(plan.blocked.is_some(), "{plan:?}");
}
