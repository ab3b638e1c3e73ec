//! Which pod carries the label, and what has to change for it. Pure.

use super::sight::Sight;

/// Whom the label is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Nobody,
    /// One that is Ready: the one that has it, as long as it is.
    Ready,
    /// The pod that holds the lock, ready or not: it knows best whether it works, and the lease says for how long.
    Holder {
        name: String,
        uid: String,
    },
}

/// What has to be done, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// Those that must not have it.
    pub(super) take: Vec<Sight>,
    /// The one that has it and keeps it.
    pub(super) keep: Option<Sight>,
    /// If nobody has it: the one that gets it.
    pub(super) give: Option<Sight>,
    /// It is another lock's, which labels pods of this selector, too.
    pub(super) foreign: Option<Sight>,
}

/// `by` is the mark of this target, as in `billing/report/web`.
pub(super) fn choose(pods: &[Sight], wanted: &Wanted, by: &str) -> Choice {
    let fits = |pod: &&Sight| {
        pod.selected
            && match wanted {
                Wanted::Nobody => false,
                Wanted::Ready => pod.ready.is_some(),
                Wanted::Holder { name, uid } => pod.name == *name && pod.uid == *uid,
            }
    };
    let ours = || pods.iter().filter(|pod| is_ours(pod, by));
    // Without a doubt ours first, then the one that has been Ready for the longest.
    let rank = |pod: &&Sight| (pod.by.as_deref() != Some(by), pod.ready, pod.name.clone());
    let keep = ours().filter(|pod| pod.labelled).filter(fits).min_by_key(rank);
    let take = ours().filter(|pod| keep != Some(pod));
    // Ours by the mark alone is what is left of a label that somebody took off.
    let take = take.filter(|pod| pod.labelled || pod.by.is_some());
    let foreign = pods
        .iter()
        .find(|pod| pod.selected && pod.labelled && !is_ours(pod, by));
    let free = || pods.iter().filter(|pod| is_ours(pod, by)).filter(fits);
    Choice {
        take: take.cloned().collect(),
        give: match keep {
            Some(_) => None,
            None => free().min_by_key(|pod| (pod.ready, pod.name.clone())).cloned(),
        },
        keep: keep.cloned(),
        foreign: foreign.cloned(),
    }
}

/// Whether this target decides on the label of a pod. The target may have been called otherwise before.
fn is_ours(pod: &Sight, by: &str) -> bool {
    let lock = |mark: &str| mark.rsplit_once('/').map(|(lock, _)| lock.to_owned());
    match &pod.by {
        Some(mark) if pod.selected => lock(mark) == lock(by),
        Some(mark) => mark == by,
        None => pod.selected,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::{super::sight::Setter, *};

    const BY: &str = "n/lock/web";

    /// Ready since so many seconds.
    fn pod(name: &str, ready: Option<i64>) -> Sight {
        Sight {
            name: name.into(),
            uid: name.into(),
            version: "1".into(),
            selected: true,
            ready: ready.map(|at| Timestamp::from_second(at).unwrap()),
            labelled: false,
            by: None,
            token: None,
            setter: Setter::Own,
        }
    }

    fn labelled(name: &str, ready: Option<i64>, by: Option<&str>) -> Sight {
        Sight {
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
    fn a_second_one_loses_it_whoever_gave_it() {
        let pods = [labelled("a", Some(1), None), labelled("b", Some(5), Some(BY))];
        let choice = choose(&pods, &Wanted::Ready, BY);
        assert_eq!(names(&choice), (vec!["a"], Some("b"), None));
        // With none of ours among them one of them may keep it.
        let pods = [labelled("b", Some(5), None), labelled("a", Some(5), None)];
        let choice = choose(&pods, &Wanted::Ready, BY);
        assert_eq!(names(&choice), (vec!["b"], Some("a"), None));
    }

    #[test]
    fn on_standby_nobody_has_it_and_nothing_of_it_is_left() {
        let mut remnant = pod("c", Some(1));
        remnant.by = Some(BY.into());
        let pods = [labelled("a", Some(1), None), pod("b", Some(1)), remnant];
        let choice = choose(&pods, &Wanted::Nobody, BY);
        assert_eq!(names(&choice), (vec!["a", "c"], None, None));
    }

    #[test]
    fn what_left_the_selector_loses_it_unless_another_target_gave_it() {
        let away = |by: &str| Sight {
            selected: false,
            ..labelled("a", Some(1), Some(by))
        };
        let other = Sight { by: None, ..away(BY) };
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
        // This lock's, under an earlier name of the target.
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
        // Another pod under its name.
        assert_eq!(names(&choose(&pods, &holder("x"), BY)), (vec!["a"], None, None));
    }
}
