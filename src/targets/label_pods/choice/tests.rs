use super::{super::snapshot::Setter, *};

const BY: &str = "n/lock/web";

/// Chooses at a time when all pods have been Ready for long enough.
fn choose(pods: &[PodSnapshot], wanted: &Wanted, by: &str) -> Choice {
    at(1_000, pods, wanted, by)
}

fn at(second: i64, pods: &[PodSnapshot], wanted: &Wanted, by: &str) -> Choice {
    super::choose(pods, wanted, by, Timestamp::from_second(second).unwrap())
}

/// A pod that became Ready at this second.
fn pod(name: &str, ready: Option<i64>) -> PodSnapshot {
    PodSnapshot {
        name: name.into(),
        uid: name.into(),
        version: "1".into(),
        selected: true,
        ready: ready.map(|at| Timestamp::from_second(at).unwrap()),
        created: None,
        revision: None,
        labelled: false,
        by: None,
        token: None,
        setter: Setter::Own,
        template: None,
    }
}

fn labelled(name: &str, ready: Option<i64>, by: Option<&str>) -> PodSnapshot {
    PodSnapshot {
        labelled: true,
        by: by.map(str::to_owned),
        ..pod(name, ready)
    }
}

fn names(choice: &Choice) -> (Vec<&str>, Option<&str>, Option<&str>) {
    (
        choice.take.iter().map(|pod| pod.name.as_str()).collect(),
        choice.keep.as_ref().map(|pod| pod.name.as_str()),
        choice.give.as_ref().map(|pod| pod.name.as_str()),
    )
}

#[test]
fn label_of_a_template_is_shown_by_any_pod_of_the_selector() {
    let templated = |selected| PodSnapshot {
        template: Some("m".into()),
        selected,
        ..pod("b", None)
    };
    let find = |other| choose(&[labelled("a", Some(1), Some(BY)), other], &Wanted::Ready, BY).template;
    assert_eq!(find(templated(true)).as_deref(), Some("m"));
    assert_eq!(find(templated(false)), None);
    assert_eq!(find(pod("b", None)), None);
}

#[test]
fn the_one_that_is_ready_for_the_longest_gets_it_then_the_first_by_name() {
    let pods = [
        pod("d", None),
        pod("c", Some(9)),
        pod("b", Some(5)),
        pod("a", Some(5)),
    ];
    let choice = choose(&pods, &Wanted::Ready, BY);
    assert_eq!(names(&choice), (vec![], None, Some("a")));
}

#[test]
fn the_one_that_has_it_keeps_it_while_it_is_ready() {
    let pods = [pod("a", Some(1)), labelled("b", Some(5), Some(BY))];
    let choice = choose(&pods, &Wanted::Ready, BY);
    assert_eq!(names(&choice), (vec![], Some("b"), None));
    let pods = [pod("a", Some(1)), labelled("b", None, Some(BY))];
    let choice = choose(&pods, &Wanted::Ready, BY);
    assert_eq!(names(&choice), (vec!["b"], None, Some("a")));
}

#[test]
fn a_second_labelled_pod_loses_the_label_of_any_writer() {
    let pods = [labelled("a", Some(1), None), labelled("b", Some(5), Some(BY))];
    let choice = choose(&pods, &Wanted::Ready, BY);
    assert_eq!(names(&choice), (vec!["a"], Some("b"), None));
    // No pod has the mark of this target: one of those without a mark may keep the label.
    let pods = [labelled("b", Some(5), None), labelled("a", Some(5), None)];
    let choice = choose(&pods, &Wanted::Ready, BY);
    assert_eq!(names(&choice), (vec!["b"], Some("a"), None));
}

#[test]
fn on_standby_no_pod_has_the_label_or_its_annotations() {
    let mut remnant = pod("c", Some(1));
    remnant.by = Some(BY.into());
    let pods = [labelled("a", Some(1), None), pod("b", Some(1)), remnant];
    let choice = choose(&pods, &Wanted::NoPod, BY);
    assert_eq!(names(&choice), (vec!["a", "c"], None, None));
}

#[test]
fn a_pod_that_left_the_selector_loses_the_label_unless_another_target_gave_it() {
    let away = |by: &str| PodSnapshot {
        selected: false,
        ..labelled("a", Some(1), Some(by))
    };
    let other = PodSnapshot { by: None, ..away(BY) };
    for (pod, taken) in [(away(BY), 1), (away("n/lock/other"), 0), (other, 0)] {
        assert_eq!(choose(&[pod], &Wanted::Ready, BY).take.len(), taken);
    }
}

#[test]
fn another_locks_pod_is_left_to_it_and_named() {
    let pods = [labelled("a", Some(1), Some("n/else/web")), pod("b", Some(5))];
    let choice = choose(&pods, &Wanted::Ready, BY);
    assert_eq!(names(&choice), (vec![], None, Some("b")));
    assert_eq!(choice.foreign.unwrap().name, "a");
    // The mark of this lock, under an earlier name of the target.
    let pods = [labelled("a", Some(1), Some("n/lock/api"))];
    assert_eq!(
        names(&choose(&pods, &Wanted::Ready, BY)),
        (vec![], Some("a"), None)
    );
}

#[test]
fn the_holder_has_it_ready_or_not() {
    let holder = |uid: &str| Wanted::Holder {
        name: "b".into(),
        uid: uid.into(),
    };
    let pods = [labelled("a", Some(1), Some(BY)), pod("b", None)];
    assert_eq!(
        names(&choose(&pods, &holder("b"), BY)),
        (vec!["a"], None, Some("b"))
    );
    // Another pod has the name.
    assert_eq!(names(&choose(&pods, &holder("x"), BY)), (vec!["a"], None, None));
}

/// `<letter><number>`, such as `a0`: a pod of revision `a` of one Deployment.
fn rolled(name: &str, created: i64, ready: Option<i64>) -> PodSnapshot {
    PodSnapshot {
        created: Some(Timestamp::from_second(created).unwrap()),
        revision: Some(Revision {
            object: "ReplicaSet web".into(),
            hash: name[..1].into(),
        }),
        ..pod(name, ready)
    }
}

fn has(pod: PodSnapshot) -> PodSnapshot {
    PodSnapshot {
        labelled: true,
        by: Some(BY.into()),
        ..pod
    }
}

/// Describes the fate of the label: it stays, moves from one pod to another, is given, or is absent.
fn outcome(pods: &[PodSnapshot]) -> String {
    let choice = choose(pods, &Wanted::Ready, BY);
    match names(&choice) {
        (take, Some(keep), None) if take.is_empty() => format!("{keep} keeps it"),
        (take, None, Some(give)) if take.is_empty() => format!("{give} gets it"),
        (take, None, Some(give)) => format!("from {} to {give}", take.join(", ")),
        (take, None, None) => format!("{} loses it", take.join(", ")),
        (take, keep, give) => format!("{take:?} {keep:?} {give:?}"),
    }
}

#[test]
fn in_a_rollout_it_moves_once_to_the_newest_revision() {
    let table = [
        // A rollout of three pods: the surge pod is created and becomes ready, and the others are replaced.
        (
            vec![has(rolled("a0", 1, Some(2))), rolled("a1", 1, Some(3))],
            "a0 keeps it",
        ),
        (
            vec![has(rolled("a0", 1, Some(2))), rolled("b0", 9, None)],
            "a0 keeps it",
        ),
        (
            vec![has(rolled("a0", 1, Some(2))), rolled("b0", 9, Some(10))],
            "from a0 to b0",
        ),
        (
            vec![
                rolled("a1", 1, Some(3)),
                has(rolled("b0", 9, Some(10))),
                rolled("b1", 11, None),
            ],
            "b0 keeps it",
        ),
        (
            vec![has(rolled("b0", 9, Some(10))), rolled("b1", 11, Some(12))],
            "b0 keeps it",
        ),
        // The pod with the label ends before a new one is ready. The label should move to a pod that stays longer, but
        // no such pod exists here.
        (
            vec![
                has(rolled("a0", 1, None)),
                rolled("a1", 1, Some(3)),
                rolled("b0", 9, None),
            ],
            "from a0 to a1",
        ),
        // The pod with the label ends when several are ready: the longest ready pod of the newest revision gets it.
        (
            vec![
                has(rolled("a0", 1, None)),
                rolled("a1", 1, Some(2)),
                rolled("b0", 9, Some(12)),
                rolled("b1", 9, Some(11)),
            ],
            "from a0 to b1",
        ),
        // No pod has the label yet.
        (
            vec![rolled("a1", 1, Some(2)), rolled("b0", 9, Some(12))],
            "b0 gets it",
        ),
        (
            vec![rolled("a1", 1, Some(2)), rolled("b0", 9, None)],
            "a1 gets it",
        ),
        // A second rollout before the first has ended.
        (
            vec![
                rolled("a1", 1, Some(2)),
                has(rolled("b0", 9, Some(12))),
                rolled("c0", 15, Some(16)),
            ],
            "from b0 to c0",
        ),
        // A rollout whose pods never become ready.
        (
            vec![
                has(rolled("a0", 1, Some(2))),
                rolled("b0", 9, None),
                rolled("b1", 20, None),
            ],
            "a0 keeps it",
        ),
    ];
    for (pods, wanted) in table {
        assert_eq!(outcome(&pods), wanted, "{pods:#?}");
    }
}

#[test]
fn it_stays_on_a_ready_pod_until_a_newer_revision_has_been_ready_for_long_enough() {
    let old = || has(rolled("a0", 1, Some(2)));
    let new = || rolled("b0", 9, Some(20));
    let of = |second, pods: &[PodSnapshot]| {
        let choice = at(second, pods, &Wanted::Ready, BY);
        let (take, keep, give) = names(&choice);
        let text = format!("{take:?} {keep:?} {give:?}");
        (text, choice.later.map(|later| later.as_secs()))
    };
    let stays = |later| ("[] Some(\"a0\") None".to_owned(), later);
    assert_eq!(of(20, &[old(), new()]), stays(Some(10)));
    assert_eq!(of(29, &[old(), new()]), stays(Some(1)));
    let moves = ("[\"a0\"] None Some(\"b0\")".to_owned(), None);
    assert_eq!(of(30, &[old(), new()]), moves);
    // The pod became unready in between, and is ready again.
    assert_eq!(of(30, &[old(), rolled("b0", 9, Some(28))]), stays(Some(8)));
    // A third revision, which has not been ready for long enough.
    assert_eq!(of(30, &[old(), new(), rolled("c0", 25, Some(26))]), moves);
    // The clock of the pod's node is ahead.
    assert_eq!(of(20, &[old(), rolled("b0", 9, Some(90))]), stays(Some(10)));
    // The pod with the label ends: the newest revision gets it at once.
    let gone = has(rolled("a0", 1, None));
    let at_once = of(20, &[gone, rolled("a1", 1, Some(2)), new()]);
    assert_eq!(at_once, moves);
}

#[test]
fn a_rollback_is_a_rollout_of_the_old_hash() {
    let (old, new) = (rolled("a1", 1, Some(3)), has(rolled("b0", 9, Some(10))));
    assert_eq!(
        outcome(&[old.clone(), new.clone(), rolled("a2", 20, None)]),
        "b0 keeps it"
    );
    assert_eq!(
        outcome(&[old.clone(), new.clone(), rolled("a2", 20, Some(21))]),
        "from b0 to a1",
        "of that revision the one that has been ready for the longest"
    );
    // No pod was created by the rollback: the label moves when its pod ends.
    assert_eq!(outcome(&[old.clone(), new]), "b0 keeps it");
    let goes = has(rolled("b0", 9, None));
    assert_eq!(outcome(&[old, goes]), "from b0 to a1");
}

#[test]
fn nothing_moves_between_revisions_of_which_none_is_newer() {
    // The pods were created in the same second, which is the resolution of the API server.
    for (with, without) in [("a0", "b0"), ("b0", "a0")] {
        let pods = [has(rolled(with, 5, Some(7))), rolled(without, 5, Some(6))];
        assert_eq!(outcome(&pods), format!("{with} keeps it"));
    }
    // A pod of the old revision was evicted and created again while the rollout continues with another pod.
    let pods = [
        has(rolled("b0", 9, Some(10))),
        rolled("b1", 12, None),
        rolled("a2", 12, Some(13)),
    ];
    assert_eq!(outcome(&pods), "b0 keeps it");
    // Of two objects behind one selector, neither is a revision of the other.
    let mut other = rolled("b0", 9, Some(10));
    other.revision.as_mut().unwrap().object = "ReplicaSet api".into();
    let pods = [has(rolled("a0", 1, Some(2))), other];
    assert_eq!(outcome(&pods), "a0 keeps it");
}

#[test]
fn pods_without_a_revision_are_none_of_a_rollout() {
    let bare = |name: &str, created: i64, ready: i64| PodSnapshot {
        revision: None,
        ..rolled(name, created, Some(ready))
    };
    let pods = [has(bare("a0", 1, 2)), bare("b0", 9, 10)];
    assert_eq!(outcome(&pods), "a0 keeps it");
    let pods = [bare("b0", 9, 10), bare("a0", 1, 2), rolled("c0", 20, Some(21))];
    assert_eq!(outcome(&pods), "a0 gets it");
    let pods = [has(bare("a0", 1, 2)), rolled("c0", 20, Some(21))];
    assert_eq!(outcome(&pods), "a0 keeps it");
}

#[test]
fn the_holder_of_the_lock_keeps_it_through_a_rollout() {
    let holder = Wanted::Holder {
        name: "a0".into(),
        uid: "a0".into(),
    };
    let pods = [has(rolled("a0", 1, Some(2))), rolled("b0", 9, Some(10))];
    assert_eq!(names(&choose(&pods, &holder, BY)), (vec![], Some("a0"), None));
    assert_eq!(
        names(&choose(&pods, &Wanted::NoPod, BY)),
        (vec!["a0"], None, None)
    );
}
