//! Tests how a restarted agent treats a pod, by the entry of the pod in the table.

use super::{
    record::{cgroup, round, run, start},
    *,
};

#[test]
fn a_restarted_agent_freezes_unknown_pods() {
    let restored = |stored, now| Record::restored(stored, at(now));
    let known = restored(Stored::Run(run(10_000)), 9_499);
    assert_eq!(known.state(), &State::Running(run(10_000)));
    let mut ended = restored(Stored::Run(run(10_000)), 9_500);
    assert_eq!(ended.next_wake(), at(9_500));
    assert_eq!(ended.handle(Input::Timer, at(9_500)), [Effect::Freeze]);
    let thawed = ended.handle(round(permit(9_960, 20_000)), at(9_970));
    assert_eq!(thawed, [Effect::Store(run(20_000)), Effect::Thaw]);
    // The table is lost: no permit is known to belong to the lineage of the pod, which is killed before it
    // starts afresh.
    let mut lost = restored(Stored::Unknown, 0);
    assert_eq!(lost.handle(Input::Timer, at(0)), [Effect::Freeze]);
    assert_eq!(lost.handle(round(permit(1, 10_000)), at(2)), []);
    assert_eq!(
        lost.handle(Input::Timer, at(30_000)),
        [Effect::Freeze, Effect::StoreKilled(None), Effect::Kill]
    );
    let seen = restored(Stored::Unknown, 0).handle(Input::Round(foreign(9)), at(1));
    assert!(seen.contains(&Effect::Kill));
}

#[test]
fn a_pod_whose_record_is_lost_starts_by_no_call() {
    let mut lost = Record::restored(Stored::Unknown, at(0));
    assert_eq!(lost.handle(Input::Timer, at(0)), [Effect::Freeze]);
    let refused = lost.handle(Input::Published, at(1));
    assert_eq!(refused, [Effect::AnswerPublish(Err(Refusal::Lost))]);
    // The record is kept, so the pod is still killed.
    let killed = lost.handle(Input::Timer, at(30_000));
    assert!(killed.contains(&Effect::Kill), "{killed:?}");
}

#[test]
fn a_restarted_agent_does_not_thaw_a_killed_pod() {
    // The pod was killed after 30 s in the freezer, and the kubelet started its containers again, frozen. The permit is
    // back, of the same lineage, and closed: the holder has judged the pod gone.
    let mut record = Record::restored(
        Stored::Killed {
            seen: FencingToken(7),
        },
        at(40_000),
    );
    assert_eq!(
        record.handle(Input::Timer, at(40_000)),
        [Effect::Freeze, Effect::Kill]
    );
    let closed = Permit {
        closed: true,
        ..permit(40_100, 60_000)
    };
    assert_eq!(record.handle(round(closed), at(40_200)), []);
    let _ = record.handle(cgroup(false), at(40_300));
    assert_eq!(record.handle(round(closed), at(40_400)), []);
    // Until it is thawed, a pod that is about to start afresh is stored as killed.
    let stored = start(&mut record, permit(40_500, 60_000), 40_600);
    assert_eq!(stored, [Effect::StoreKilled(Some(run(60_000)))]);
    let populated = record.handle(cgroup(true), at(40_700));
    assert!(populated.contains(&Effect::StoreKilled(None)), "{populated:?}");
}
