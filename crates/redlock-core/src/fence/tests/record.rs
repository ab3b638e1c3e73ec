use super::*;

const LINEAGE: Lineage = Lineage {
    first: FencingToken(5),
    token: FencingToken(7),
};

pub(super) fn run(until: u64) -> Run {
    Run {
        lineage: LINEAGE,
        until: at(until),
    }
}

pub(super) fn round(permit: Permit) -> Input {
    Input::Round(Finding::Permit(permit))
}

/// Returns the input of a read that began at `asked` and shows the object of the pod.
pub(super) fn exists(asked: u64) -> Input {
    let presence = Presence::Exists;
    Input::Pod {
        presence,
        asked: at(asked),
    }
}

/// Gives the record a round after which the pod may start, and confirms that the pod exists.
pub(super) fn start(record: &mut Record, permit: Permit, now: u64) -> Vec<Effect> {
    assert_eq!(record.handle(round(permit), at(now)), [Effect::ConfirmPod]);
    record.handle(exists(now), at(now))
}

pub(super) fn cgroup(populated: bool) -> Input {
    Input::Cgroup {
        populated,
        frozen: true,
    }
}

/// Returns the record of a pod that runs until 10 s.
pub(super) fn running() -> Record {
    let mut record = Record::new(at(0));
    assert_eq!(
        start(&mut record, permit(1, 10_000), 2),
        [Effect::Store(run(10_000))]
    );
    assert_eq!(
        record.handle(Input::Stored, at(3)),
        [Effect::AnswerPublish(Ok(()))]
    );
    record
}

/// Returns the record of a pod that was frozen at the end of its permit, at 9.5 s.
pub(super) fn frozen() -> Record {
    let mut record = running();
    let effects = record.handle(Input::Timer, at(9_500));
    assert_eq!(effects, [Effect::Freeze, Effect::Store(run(9_500))]);
    record
}

/// Returns the record of a pod that was killed at 10.1 s, because another cluster was seen.
pub(super) fn killed() -> Record {
    let mut record = frozen();
    let effects = record.handle(Input::Round(foreign(9)), at(10_100));
    assert_eq!(effects, [Effect::Freeze, Effect::StoreKilled(None), Effect::Kill]);
    record
}

#[test]
fn a_pod_starts_once_the_guardian_has_acknowledged_its_record() {
    let record = running();
    assert_eq!(record.state(), &State::Running(run(10_000)));
    assert_eq!(record.permitted_until(), Some(at(10_000)));
    assert_eq!(record.next_wake(), at(9_500));
}

#[test]
fn a_round_that_began_before_the_call_starts_no_pod() {
    let mut record = Record::new(at(100));
    assert_eq!(record.handle(round(permit(99, 10_000)), at(101)), []);
    assert_eq!(record.handle(round(permit(100, 10_000)), at(101)).len(), 1);
}

#[test]
fn closed_forbids_starts_and_not_permits() {
    let closed = |sent| Permit {
        closed: true,
        ..permit(sent, 12_000)
    };
    let mut record = Record::new(at(0));
    assert_eq!(record.handle(round(closed(1)), at(2)), []);
    let refused = record.handle(Input::Timer, at(90_000));
    assert_eq!(refused, [Effect::AnswerPublish(Err(Refusal::Closed))]);
    assert_eq!(
        running().handle(round(closed(100)), at(101)),
        [Effect::Store(run(12_000))]
    );
    let thawed = frozen().handle(round(closed(9_960)), at(9_970));
    assert_eq!(thawed, [Effect::Store(run(12_000)), Effect::Thaw]);
}

#[test]
fn a_call_is_refused_after_its_wait_with_the_result_of_the_last_round() {
    let mut record = Record::new(at(0));
    assert_eq!(record.next_wake(), at(90_000));
    assert_eq!(record.handle(Input::Timer, at(89_999)), []);
    assert_eq!(record.handle(Input::Round(foreign(9)), at(89_999)), []);
    let reason = Refusal::Finding(foreign(9));
    assert_eq!(
        record.handle(Input::Timer, at(90_000)),
        [Effect::AnswerPublish(Err(reason))]
    );
    assert_eq!(record.next_wake(), BootInstant::NEVER);
    // Nothing starts by a later round.
    assert_eq!(record.handle(round(permit(90_001, 99_000)), at(90_002)), []);
    let silent = Record::new(at(0)).handle(Input::Timer, at(90_000));
    assert_eq!(silent, [Effect::AnswerPublish(Err(Refusal::NoRound))]);
}

#[test]
fn a_repeated_call_is_answered_at_once_where_the_pod_is_known() {
    let answered = [Effect::AnswerPublish(Ok(()))];
    assert_eq!(running().handle(Input::Published, at(50)), answered);
    assert_eq!(frozen().handle(Input::Published, at(9_960)), answered);
    assert_eq!(killed().handle(Input::Published, at(10_200)), answered);
    // A call that still waits begins its wait again, and needs a new round.
    let mut record = Record::new(at(0));
    assert_eq!(record.handle(Input::Published, at(100)), []);
    assert_eq!(record.next_wake(), at(90_100));
    assert_eq!(record.handle(round(permit(99, 10_000)), at(101)), []);
    let _ = start(&mut record, permit(100, 10_000), 102);
    let _ = record.handle(Input::Published, at(200));
    assert_eq!(record.handle(Input::Stored, at(201)), []);
    assert_eq!(record.next_wake(), at(90_200));
}

#[test]
fn a_permit_that_ends_before_it_is_stored_starts_nothing() {
    let mut record = Record::new(at(0));
    let _ = start(&mut record, permit(1, 1_000), 2);
    assert_eq!(record.handle(Input::Timer, at(500)), []);
    assert!(matches!(record.state(), State::Waiting { .. }));
    assert_eq!(record.handle(Input::Stored, at(501)), []);
    let refused = record.handle(Input::Timer, at(90_000));
    assert_eq!(refused, [Effect::AnswerPublish(Err(Refusal::NotStored))]);
    // An acknowledgement that arrives too late starts nothing.
    let mut record = Record::new(at(0));
    let _ = start(&mut record, permit(1, 1_000), 2);
    assert_eq!(record.handle(Input::Stored, at(500)), []);
    // Contrary evidence comes before the acknowledgement.
    let mut record = Record::new(at(0));
    let _ = start(&mut record, permit(1, 1_000), 2);
    assert_eq!(record.handle(Input::Round(Finding::Unheld), at(3)), []);
    assert_eq!(record.handle(Input::Stored, at(4)), []);
}

#[test]
fn a_permit_that_has_ended_when_its_round_does_starts_nothing() {
    let mut record = Record::new(at(0));
    assert_eq!(record.handle(round(permit(1, 1_000)), at(500)), []);
    assert_eq!(record.handle(round(permit(1, 1_000)), at(499)).len(), 1);
}

#[test]
fn a_pod_is_frozen_shortly_before_its_permit_ends() {
    let mut record = running();
    assert_eq!(record.handle(Input::Timer, at(9_499)), []);
    let effects = record.handle(Input::Timer, at(9_500));
    assert_eq!(effects, [Effect::Freeze, Effect::Store(run(9_500))]);
}

#[test]
fn after_a_pause_the_first_effect_is_the_freeze() {
    let effects = running().handle(round(permit(11_000, 20_000)), at(11_010));
    assert_eq!(effects[0], Effect::Freeze);
}

#[test]
fn the_permit_is_the_greatest_of_all_rounds() {
    let mut record = running();
    assert_eq!(record.handle(round(permit(100, 9_000)), at(101)), []);
    assert_eq!(record.permitted_until(), Some(at(10_000)));
    assert_eq!(
        record.handle(round(permit(200, 12_000)), at(201)),
        [Effect::Store(run(12_000))]
    );
    // A sibling adopted the pod: the same lineage under a greater token.
    let adopted = Permit {
        token: FencingToken(9),
        ..permit(300, 11_000)
    };
    let _ = record.handle(round(adopted), at(301));
    let lineage = Lineage {
        token: FencingToken(9),
        ..LINEAGE
    };
    let longest = Run {
        lineage,
        until: at(12_000),
    };
    assert_eq!(record.state(), &State::Running(longest));
}

#[test]
fn a_round_without_a_permit_ends_nothing() {
    for withheld in [
        Withheld::NoMajority,
        Withheld::MarkOnMinority,
        Withheld::MarkIsSplit,
        Withheld::Overtaken,
        Withheld::MarkIsOlder {
            mark: FencingToken(7),
            held: 8,
        },
    ] {
        let mut record = running();
        assert_eq!(
            record.handle(Input::Round(Finding::Withheld(withheld)), at(100)),
            []
        );
        assert_eq!(record.permitted_until(), Some(at(10_000)), "{withheld:?}");
    }
}

#[test]
fn contrary_evidence_ends_the_permit_at_once() {
    for contrary in [Finding::Unheld, Finding::ClockStoodStill] {
        let effects = running().handle(Input::Round(contrary), at(100));
        // The end is stored, so a restarted agent does not find a permit.
        assert_eq!(effects, [Effect::Freeze, Effect::Store(run(100))]);
    }
}

#[test]
fn a_pod_whose_lineage_ended_is_killed() {
    // The kill is stored first, so a restarted agent finds neither a permit nor a pod that is only frozen.
    let killed = [Effect::Freeze, Effect::StoreKilled(None), Effect::Kill];
    assert_eq!(running().handle(Input::Round(foreign(8)), at(100)), killed);
    assert_eq!(frozen().handle(Input::Round(foreign(8)), at(9_960)), killed);
    let other = |sent| Permit {
        first: FencingToken(9),
        token: FencingToken(9),
        ..permit(sent, 20_000)
    };
    assert_eq!(running().handle(round(other(99)), at(100)), killed);
    assert_eq!(frozen().handle(round(other(9_960)), at(9_970)), killed);
}

#[test]
fn a_mark_that_is_older_than_the_own_one_kills_nothing() {
    let effects = running().handle(Input::Round(foreign(7)), at(100));
    assert_eq!(effects, [Effect::Freeze, Effect::Store(run(100))]);
    assert_eq!(frozen().handle(Input::Round(foreign(7)), at(9_960)), []);
    let older = Permit {
        first: FencingToken(6),
        token: FencingToken(6),
        ..permit(9_960, 20_000)
    };
    assert_eq!(running().handle(round(older), at(9_000)), []);
    assert_eq!(frozen().handle(round(older), at(9_970)), []);
}

#[test]
fn a_frozen_pod_is_thawed_by_a_permit_of_its_lineage() {
    let effects = frozen().handle(round(permit(9_960, 20_000)), at(9_970));
    assert_eq!(effects, [Effect::Store(run(20_000)), Effect::Thaw]);
}

#[test]
fn a_freeze_is_repeated_each_second() {
    let mut record = frozen();
    assert_eq!(record.next_wake(), at(10_500));
    assert_eq!(record.handle(Input::Timer, at(10_499)), []);
    assert_eq!(record.handle(Input::Timer, at(10_500)), [Effect::Freeze]);
    assert_eq!(record.next_wake(), at(11_500));
}

#[test]
fn a_pod_that_was_frozen_for_long_is_killed() {
    let mut record = frozen();
    let last = 9_500 + 30_000;
    assert_eq!(record.handle(Input::Timer, at(last - 1)), [Effect::Freeze]);
    assert_eq!(record.next_wake(), at(last));
    assert_eq!(
        record.handle(Input::Timer, at(last)),
        [Effect::Freeze, Effect::StoreKilled(None), Effect::Kill]
    );
}

#[test]
fn a_kill_is_repeated_until_the_cgroup_is_empty() {
    let mut record = killed();
    assert_eq!(
        record.handle(Input::Timer, at(11_100)),
        [Effect::Freeze, Effect::Kill]
    );
    let _ = record.handle(cgroup(false), at(11_200));
    assert_eq!(record.handle(Input::Timer, at(12_100)), [Effect::Freeze]);
    // The kubelet started a container in the frozen cgroup.
    let _ = record.handle(cgroup(true), at(12_200));
    assert_eq!(
        record.handle(Input::Timer, at(13_100)),
        [Effect::Freeze, Effect::Kill]
    );
}

#[test]
fn a_killed_pod_starts_afresh_in_an_empty_cgroup_under_the_new_lineage() {
    let other = Permit {
        first: FencingToken(11),
        token: FencingToken(11),
        ..permit(40_000, 50_000)
    };
    let mut record = killed();
    let _ = record.handle(Input::Timer, at(40_005));
    assert_eq!(record.handle(round(other), at(40_010)), [], "it may not be empty");
    let _ = record.handle(cgroup(true), at(40_020));
    assert_eq!(record.handle(round(other), at(40_030)), []);
    let _ = record.handle(cgroup(false), at(40_040));
    let run = Run {
        lineage: Lineage {
            first: FencingToken(11),
            token: FencingToken(11),
        },
        until: at(50_000),
    };
    assert_eq!(
        start(&mut record, other, 40_050),
        [Effect::StoreKilled(Some(run))]
    );
    assert_eq!(
        record.handle(Input::Stored, at(40_060)),
        [Effect::Store(run), Effect::Thaw]
    );
    assert_eq!(record.state(), &State::Running(run));
}

#[test]
fn a_container_that_the_kubelet_starts_before_the_thaw_is_killed() {
    let mut record = killed();
    let _ = record.handle(cgroup(false), at(10_200));
    assert_eq!(start(&mut record, permit(10_300, 20_000), 10_310).len(), 1);
    assert_eq!(
        record.handle(cgroup(true), at(10_320)),
        [Effect::StoreKilled(None)]
    );
    assert_eq!(
        record.handle(Input::Stored, at(10_330)),
        [Effect::Freeze, Effect::Kill]
    );
}

#[test]
fn a_killed_pod_is_a_start() {
    // The status of the killed pod reports every container terminated. The holder closes, judges the pod gone
    // and releases, while the kubelet is about to start the containers again.
    let mut record = killed();
    let _ = record.handle(cgroup(false), at(10_200));
    assert_eq!(record.handle(round(permit(10_099, 20_000)), at(10_300)), []);
    let closed = Permit {
        closed: true,
        ..permit(10_300, 20_000)
    };
    assert_eq!(record.handle(round(closed), at(10_310)), []);
    assert_eq!(record.handle(round(permit(10_100, 20_000)), at(10_320)).len(), 1);
}

#[test]
fn a_permit_that_ends_before_the_killed_pod_is_stored_leaves_it_frozen() {
    let mut record = killed();
    let _ = record.handle(cgroup(false), at(10_200));
    let _ = start(&mut record, permit(10_300, 11_000), 10_310);
    // The first permit has ended: the freeze is repeated, and the cgroup must be found empty again.
    assert_eq!(
        record.handle(Input::Stored, at(10_500)),
        [Effect::StoreKilled(None), Effect::Freeze, Effect::Kill]
    );
    assert_eq!(record.handle(round(permit(11_000, 20_000)), at(11_010)), []);
}

#[test]
fn a_pod_that_the_guardian_froze_by_an_earlier_record_is_thawed() {
    let found = |frozen| Input::Cgroup {
        populated: true,
        frozen,
    };
    let mut record = running();
    assert_eq!(record.handle(found(false), at(100)), []);
    assert_eq!(
        record.handle(found(true), at(100)),
        [Effect::Store(run(10_000)), Effect::Thaw]
    );
    assert_eq!(frozen().handle(found(true), at(9_960)), []);
}
