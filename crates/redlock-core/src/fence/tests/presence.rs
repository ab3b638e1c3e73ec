//! Tests that a pod starts only if a read after its permit shows its object.

use super::{
    record::{cgroup, exists, round, start},
    *,
};

fn shown(presence: Presence, asked: u64) -> Input {
    Input::Pod {
        presence,
        asked: at(asked),
    }
}

/// Returns the record of a pod that was published at 0 and found a permit at 2 ms.
fn confirming() -> Record {
    let mut record = Record::new(at(0));
    assert_eq!(
        record.handle(round(permit(1, 10_000)), at(2)),
        [Effect::ConfirmPod]
    );
    record
}

#[test]
fn a_pod_whose_object_was_deleted_does_not_start() {
    // A UID never returns.
    let mut record = confirming();
    let refused = record.handle(shown(Presence::Gone, 2), at(3));
    assert_eq!(refused, [Effect::AnswerPublish(Err(Refusal::PodGone))]);
    assert_eq!(record.handle(round(permit(10, 10_000)), at(11)), []);
    assert_eq!(record.state(), &State::Refused);
    let mut record = confirming();
    assert_eq!(record.handle(shown(Presence::Unknown, 2), at(3)), []);
    assert_eq!(record.permitted_until(), None);
    let refused = record.handle(Input::Timer, at(90_000));
    assert_eq!(refused, [Effect::AnswerPublish(Err(Refusal::PodUnknown))]);
    // The next round asks again.
    let mut record = confirming();
    let _ = record.handle(shown(Presence::Unknown, 2), at(3));
    assert!(matches!(
        start(&mut record, permit(10, 10_000), 11)[..],
        [Effect::Store(_)]
    ));
}

#[test]
fn an_answer_to_an_earlier_request_starts_no_pod() {
    let mut record = confirming();
    // Another cluster was seen: the permit that follows is of another lineage, whose holder may not know the pod.
    let _ = record.handle(Input::Round(foreign(9)), at(4));
    assert_eq!(
        record.handle(round(permit(20, 10_000)), at(21)),
        [Effect::ConfirmPod]
    );
    assert_eq!(record.handle(exists(2), at(22)), []);
    assert!(matches!(
        record.handle(exists(21), at(23))[..],
        [Effect::Store(_)]
    ));
}

#[test]
fn a_killed_pod_without_an_object_stays_killed() {
    let mut record = Record::restored(
        Stored::Killed {
            seen: FencingToken(7),
        },
        at(0),
    );
    let _ = record.handle(cgroup(false), at(1));
    assert_eq!(
        record.handle(round(permit(2, 10_000)), at(3)),
        [Effect::ConfirmPod]
    );
    assert_eq!(
        record.handle(shown(Presence::Gone, 3), at(4)),
        [Effect::StoreKilled(None)]
    );
    assert!(matches!(record.state(), State::Killed { .. }));
}

#[test]
fn a_permit_that_ends_before_the_answer_starts_no_pod() {
    let mut record = Record::new(at(0));
    assert_eq!(
        record.handle(round(permit(1, 1_000)), at(2)),
        [Effect::ConfirmPod]
    );
    assert_eq!(record.next_wake(), at(500));
    assert_eq!(record.handle(exists(2), at(500)), []);
    assert!(matches!(record.state(), State::Waiting { .. }));
}
