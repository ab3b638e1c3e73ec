use super::*;

const PACE: Pace = Pace {
    lease_duration: ms(15_000),
    retry_period: ms(2_000),
};

fn held_by_all(left: u64) -> [Option<Reading>; 3] {
    [(); 3].map(|()| Some(held(left)))
}

#[test]
fn a_round_that_began_before_contrary_evidence_gives_no_permit_after_it() {
    let mut watch = Watch::new(here());
    let good = |sent| observation(at(sent), &held_by_all(9_000));
    let ended = observation(at(100), &[Some(free()), Some(free()), None]);
    assert_eq!(watch.on_round(&ended, false, at(110)), Finding::Unheld);
    let overtaken = Finding::Withheld(Withheld::Overtaken);
    assert_eq!(watch.on_round(&good(109), false, at(120)), overtaken);
    assert!(matches!(
        watch.on_round(&good(110), false, at(120)),
        Finding::Permit(_)
    ));
}

#[test]
fn a_clock_that_stood_still_voids_the_round_that_shows_it() {
    let mut watch = Watch::new(here());
    let seen = observation(at(100), &held_by_all(9_000));
    assert_eq!(watch.on_round(&seen, true, at(110)), Finding::ClockStoodStill);
    let overtaken = Finding::Withheld(Withheld::Overtaken);
    assert_eq!(watch.on_round(&seen, false, at(111)), overtaken);
}

#[test]
fn a_mark_that_was_replaced_gives_no_permit_again() {
    let mut watch = Watch::new(here());
    let next = Reading {
        lease: lease(9, &here(), 9_000),
        mark: mark(9, 5, &here()),
        held: 9,
        ..free()
    };
    let newer = observation(at(0), &[Some(next.clone()), Some(next), None]);
    assert!(matches!(
        watch.on_round(&newer, false, at(10)),
        Finding::Permit(_)
    ));
    let older = observation(at(20), &held_by_all(9_000));
    let overtaken = Finding::Withheld(Withheld::Overtaken);
    assert_eq!(watch.on_round(&older, false, at(30)), overtaken);
}

fn running(until: u64) -> Record {
    Record::restored(Stored::Run(run(until)), at(0))
}

fn run(until: u64) -> Run {
    Run {
        lineage: Lineage {
            first: FencingToken(5),
            token: FencingToken(7),
        },
        until: at(until),
    }
}

#[test]
fn the_masters_are_asked_after_a_third_and_sooner_once_a_third_is_missing() {
    for (until, next) in [
        (15_000, 5_000),
        (10_000, 5_000),
        (9_999, 2_000),
        (2_700, 2_000),
        // Before the freeze, and at the expected end.
        (2_200, 1_500),
        (1_200, 500),
        (600, 600),
    ] {
        assert_eq!(PACE.next(at(0), [&running(until)]), at(next), "{until}");
    }
    assert_eq!(PACE.next(at(0), []), at(5_000));
    // The next round begins as soon as any record needs it. A record that waits needs it soon.
    let waiting = Record::new(at(0));
    assert_eq!(PACE.next(at(0), [&running(15_000), &waiting]), at(2_000));
    let hasty = Pace {
        retry_period: ms(9_000),
        ..PACE
    };
    assert_eq!(hasty.next(at(0), [&waiting]), at(5_000));
}
