//! Tests pods that are released by hand.

use super::{
    record::{cgroup, frozen, killed, round, run, running, start},
    *,
};

const fn release(lineage: Option<Lineage>, seen: u64) -> Release {
    Release {
        lineage,
        seen: FencingToken(seen),
    }
}

fn released(mut record: Record, now: u64) -> (Record, Release) {
    let effects = record.handle(Input::Release, at(now));
    let State::Released(release) = *record.state() else {
        panic!("{effects:?}")
    };
    assert!(
        effects.ends_with(&[Effect::StoreReleased(release), Effect::Thaw]),
        "{effects:?}"
    );
    (record, release)
}

#[test]
fn a_frozen_or_killed_pod_is_released_and_stays_so_without_a_permit() {
    let (_, of_frozen) = released(frozen(), 10_000);
    assert_eq!(of_frozen, release(Some(run(0).lineage), 7));
    // The mark of another cluster was seen, so the administrator can know of it.
    let (mut record, of_killed) = released(killed(), 10_200);
    assert_eq!(of_killed, release(None, 9));
    assert_eq!(record.next_wake(), BootInstant::NEVER);
    assert_eq!(record.permitted_until(), None);
    for (now, finding) in [
        (11_000, Finding::Withheld(Withheld::NoMajority)),
        (12_000, Finding::Unheld),
        (13_000, Finding::ClockStoodStill),
        (14_000, foreign(9)),
        // A permit that ended before the round was read.
        (20_000, Finding::Permit(permit(14_900, 15_000))),
    ] {
        assert_eq!(record.handle(Input::Round(finding), at(now)), []);
    }
    assert_eq!(record.handle(Input::Timer, at(99_000)), []);
    assert_eq!(
        record.handle(Input::Published, at(99_001)),
        [Effect::AnswerPublish(Ok(()))]
    );
}

#[test]
fn a_pod_that_runs_or_starts_by_a_permit_or_is_unknown_is_not_released() {
    let mut starting = Record::new(at(0));
    let _ = start(&mut starting, permit(1, 10_000), 2);
    let mut restarting = killed();
    let _ = restarting.handle(cgroup(false), at(10_200));
    let _ = start(&mut restarting, permit(10_300, 20_000), 10_400);
    for (mut record, now) in [
        (Record::new(at(0)), 1),
        (starting, 3),
        (running(), 100),
        (restarting, 10_500),
        (Record::restored(Stored::Unknown, at(0)), 1),
    ] {
        // A freeze that is already due may come first.
        let effects = record.handle(Input::Release, at(now));
        assert!(
            !matches!(record.state(), State::Released(_)) && !effects.contains(&Effect::Thaw),
            "{effects:?}"
        );
    }
}

#[test]
fn a_released_pod_is_killed_once_another_cluster_has_come_later() {
    for (record, seen) in [(frozen(), 7), (killed(), 9)] {
        let (mut record, _) = released(record, 10_200);
        assert_eq!(record.handle(Input::Round(foreign(seen)), at(10_300)), []);
        let effects = record.handle(Input::Round(foreign(seen + 1)), at(10_400));
        assert_eq!(effects, [Effect::Freeze, Effect::StoreKilled(None), Effect::Kill]);
    }
}

/// The mark that killed the pod was known before the release, even to a restarted agent or command.
#[test]
fn views_from_before_a_kill_do_not_end_a_release_after_a_restart() {
    let seen = killed().seen();
    assert_eq!(seen, FencingToken(9));
    let (mut record, of_killed) = released(Record::restored(Stored::Killed { seen }, at(0)), 10_200);
    assert_eq!(of_killed, release(None, 9));
    let mut restarted = Record::restored(Stored::Released(of_killed), at(10_300));
    for record in [&mut record, &mut restarted] {
        assert_eq!(record.handle(Input::Round(foreign(9)), at(10_400)), []);
        let effects = record.handle(Input::Round(foreign(10)), at(10_500));
        assert!(effects.contains(&Effect::Kill), "{effects:?}");
    }
}

#[test]
fn a_permit_ends_a_release() {
    let (mut same, _) = released(frozen(), 10_000);
    let effects = same.handle(round(permit(10_100, 20_000)), at(10_200));
    assert_eq!(effects, [Effect::Store(run(20_000))]);
    assert_eq!(same.next_wake(), at(19_500), "it is fenced again");
    // A pod that was killed before, or is of another lineage, starts afresh by a start permit.
    let (of_killed, _) = released(killed(), 10_200);
    let (of_frozen, _) = released(frozen(), 10_200);
    let other = Permit {
        first: FencingToken(8),
        token: FencingToken(8),
        ..permit(10_300, 20_000)
    };
    for (mut record, permit) in [(of_killed, permit(10_300, 20_000)), (of_frozen, other)] {
        let effects = record.handle(round(permit), at(10_400));
        assert!(effects.contains(&Effect::Kill), "{effects:?}");
    }
}

#[test]
fn a_released_pod_that_the_guardian_froze_is_thawed() {
    let (mut record, release) = released(frozen(), 10_000);
    let effects = record.handle(cgroup(true), at(10_100));
    assert_eq!(effects, [Effect::StoreReleased(release), Effect::Thaw]);
    let thawed = Input::Cgroup {
        populated: true,
        frozen: false,
    };
    assert_eq!(record.handle(thawed, at(10_200)), []);
}

#[test]
fn a_restarted_agent_keeps_a_release() {
    let stored = release(Some(run(0).lineage), 7);
    let mut record = Record::restored(Stored::Released(stored), at(0));
    assert_eq!(record.state(), &State::Released(stored));
    assert_eq!(record.handle(Input::Timer, at(99_000)), []);
    let effects = record.handle(Input::Round(foreign(8)), at(99_001));
    assert!(effects.contains(&Effect::Kill), "{effects:?}");
}
