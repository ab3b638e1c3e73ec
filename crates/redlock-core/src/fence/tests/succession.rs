//! Tests what a win shows of the previous holders, and which pods its holder knows.

use Begun::{AfterCleanEnd, AfterUncleanEnd, Marked};

use super::*;

fn found(registers: &[MarkRegister], held: u64) -> Succession {
    Succession::of(registers, &here(), (held, FencingToken(9)), at(100))
}

#[test]
fn a_holder_continues_the_lineage_of_its_cluster_and_no_other() {
    let first = |register: &MarkRegister, held| found(std::slice::from_ref(register), held).first.0;
    let own = mark(7, 5, &here());
    assert_eq!(first(&own, 7), 5);
    assert_eq!(first(&own, 3), 5);
    // A holder that does not fence, or the fallback after a total loss, came in between.
    assert_eq!(first(&own, 8), 9);
    assert_eq!(first(&mark(7, 5, &there()), 7), 9);
    assert_eq!(first(&MarkRegister::Never, 0), 9);
    assert_eq!(first(&MarkRegister::Split(FencingToken(7)), 7), 9);
}

#[test]
fn a_sibling_is_the_cluster_of_the_mark_with_the_greatest_held() {
    let predecessor = |registers: &[MarkRegister], held| found(registers, held).predecessor;
    let own = mark(7, 5, &here());
    assert_eq!(predecessor(std::slice::from_ref(&own), 7), Predecessor::Sibling);
    assert_eq!(
        predecessor(&[mark(6, 6, &there()), own.clone()], 7),
        Predecessor::Sibling
    );
    // A mark with the token of the lease itself is not a later one.
    assert_eq!(predecessor(&[mark(9, 5, &here())], 9), Predecessor::Sibling);
    // The mark was written, but `held` is not known.
    assert_eq!(predecessor(&[own], 6), Predecessor::Own);
    for held in [0, 7, 8] {
        let elsewhere = [MarkRegister::Never, mark(7, 5, &there())];
        for registers in [&elsewhere[..], &elsewhere[..1], &[]] {
            assert_eq!(predecessor(registers, held), Predecessor::Elsewhere);
        }
    }
}

#[test]
fn marks_of_the_own_cluster_that_are_not_the_last_or_split_do_not_show_that_no_pod_runs() {
    let (own, split) = (mark(7, 5, &here()), MarkRegister::Split(FencingToken(7)));
    for (registers, held) in [
        // A holder that does not fence, or a seal after a loss of memory.
        (vec![own.clone()], 8),
        (vec![split.clone()], 7),
        (vec![split.clone()], 0),
        // A mark of a later lease than the one that was won.
        (vec![mark(10, 5, &here())], 10),
        (vec![mark(10, 5, &here())], 7),
        // A mark of another cluster that is not on a majority.
        (vec![own, mark(8, 8, &there())], 8),
        (vec![mark(8, 8, &there()), split], 8),
    ] {
        let succession = found(&registers, held);
        assert_eq!(
            (succession.first.0, succession.predecessor),
            (9, Predecessor::Unknown)
        );
    }
}

/// Returns the reach of the holder of `token`, whose watch of pods is at 2.
fn reach(token: u64, first: u64, begun: Begun, before: Option<Reach<u64>>) -> Option<Reach<u64>> {
    let token = FencingToken(token);
    let succession = Succession {
        first: FencingToken(first),
        predecessor: if first == token.0 {
            Predecessor::Elsewhere
        } else {
            Predecessor::Sibling
        },
        earlier_until: at(200),
    };
    Reach::of(token, succession, begun, before, Some(2))
}

#[test]
fn only_a_holder_that_knows_the_pods_since_the_lineage_began_may_confirm_their_end() {
    let first = found(&[mark(7, 7, &there())], 7);
    let began = Reach::of(FencingToken(9), first, AfterUncleanEnd, None, Some(1));
    let adopted = reach(11, 9, AfterUncleanEnd, None);
    let marked = reach(9, 9, Marked, None);
    for (reach, expected, what) in [
        (began, Some(1), "the first lease of a lineage"),
        (
            reach(11, 9, AfterUncleanEnd, began),
            Some(1),
            "of the same lineage",
        ),
        (adopted, None, "an adopter"),
        (reach(11, 10, AfterUncleanEnd, began), None, "of another lineage"),
        (reach(13, 9, AfterUncleanEnd, adopted), None, "after an adopter"),
        (
            reach(14, 9, AfterCleanEnd, adopted),
            Some(2),
            "after a confirmed end",
        ),
        (marked, None, "marked before, of a lineage that began with it"),
        (
            reach(9, 5, Marked, None),
            None,
            "marked before, of an earlier lineage",
        ),
        (
            reach(11, 9, AfterUncleanEnd, marked),
            None,
            "after a lease that was marked before",
        ),
    ] {
        assert_eq!(
            reach.unwrap().since(at(0)),
            expected.ok_or(UnknownPods::Always),
            "{what}"
        );
    }
    let unlisted = |begun| Reach::<u64>::of(FencingToken(9), first, begun, None, None);
    assert_eq!(unlisted(AfterUncleanEnd), None, "the pods are not known yet");
    assert_eq!(unlisted(Marked), marked, "they need not be");
}

#[test]
fn a_lineage_that_may_begin_beside_earlier_pods_confirms_no_end_before_their_permits_have_ended() {
    for begun in [AfterUncleanEnd, AfterCleanEnd] {
        let began = Reach::of(
            FencingToken(9),
            found(&[mark(7, 5, &here())], 8),
            begun,
            reach(7, 7, AfterUncleanEnd, None),
            Some(2),
        );
        let waits = |ms| {
            Err(UnknownPods::Until {
                since: 2,
                until: at(ms),
            })
        };
        let knows = Ok(2);
        let own = began.unwrap();
        assert_eq!((own.since(at(99)), own.since(at(100))), (waits(100), knows));
        // The previous mark may be on a minority.
        let next = reach(11, 9, AfterUncleanEnd, began).unwrap();
        assert_eq!((next.since(at(199)), next.since(at(200))), (waits(200), knows));
        let other_replica = reach(11, 9, AfterUncleanEnd, None).unwrap();
        assert_eq!(other_replica.since(at(200)), Err(UnknownPods::Always));
    }
}

/// Tests every set of registers of three masters, with every majority that a round or a win can reach. If a
/// win continues a lineage of its cluster, its holder confirms an end by the pods that it knows of that
/// lineage.
#[test]
fn no_round_gives_a_permit_beside_a_win_that_shows_that_no_pod_runs() {
    let registers = [
        MarkRegister::Never,
        MarkRegister::Split(FencingToken(8)),
        mark(7, 5, &here()),
        mark(8, 8, &here()),
        mark(6, 6, &there()),
        mark(8, 8, &there()),
    ];
    let reading = |(register, held): (usize, u64)| Reading {
        reservation: Some((here().to_string(), Left::For(ms(1_000)))),
        mark: registers[register].clone(),
        held,
        ..free()
    };
    let shown: Vec<Reading> = (0..registers.len())
        .flat_map(|register| [0, 7, 8].map(|held| reading((register, held))))
        .collect();
    let mut permits = 0;
    for state in 0..shown.len().pow(3) {
        let masters = [1, shown.len(), shown.len().pow(2)].map(|place| &shown[state / place % shown.len()]);
        // Without one of the masters, or with all.
        let majorities = [0, 1, 2, 3].map(|without| {
            let reached = masters
                .iter()
                .enumerate()
                .filter(move |(master, _)| *master != without);
            reached.map(|(_, reading)| (*reading).clone()).collect::<Vec<_>>()
        });
        let permit = |readings: &Vec<Reading>| {
            let readings: Vec<_> = readings.iter().cloned().map(Some).chain([None]).take(3).collect();
            matches!(finding(&readings), Finding::Permit(_))
        };
        if !majorities.iter().any(permit) {
            continue;
        }
        permits += 1;
        for granted in &majorities {
            let registers: Vec<MarkRegister> = granted.iter().map(|reading| reading.mark.clone()).collect();
            let held = granted
                .iter()
                .map(|reading| reading.held)
                .max()
                .unwrap_or_default();
            let succession = found(&registers, held);
            assert_ne!(
                succession.predecessor,
                Predecessor::Elsewhere,
                "{masters:?} {granted:?}"
            );
        }
    }
    assert!(permits > 100, "{permits}");
}
