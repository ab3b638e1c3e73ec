//! Decides which pod carries the label, and which changes that requires. Pure.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::jiff::Timestamp;

use super::snapshot::{PodSnapshot, Revision};

/// A Ready pod keeps the label until a pod of a newer revision has been Ready for this long: the label does
/// not follow a revision whose pods alternate between ready and unready. This is the default period of a
/// kubelet's probe.
pub(super) const MIN_READY: Duration = Duration::from_secs(10);

/// The pod that the label is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    NoPod,
    /// A Ready pod. A Ready pod that has the label keeps it, unless a rollout replaces the pod.
    Ready,
    /// The pod that holds the lock, ready or not: the pod knows best whether it works, and its lease limits
    /// the time for which that counts.
    Holder {
        name: String,
        uid: String,
    },
}

/// The changes to make, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// The pods that must not have the label.
    pub(super) take: Vec<PodSnapshot>,
    /// The pod that has the label and keeps it.
    pub(super) keep: Option<PodSnapshot>,
    /// The pod that gets the label, if no pod has it.
    pub(super) give: Option<PodSnapshot>,
    /// A pod that another lock labelled, although the selector of this target matches it.
    pub(super) foreign: Option<PodSnapshot>,
    /// The manager that created a pod of the selector with the label.
    pub(super) template: Option<String>,
    /// The time after which the label moves to a newer revision, if the pods of that revision stay Ready.
    pub(super) later: Option<Duration>,
}

/// Decides on the labels. `by` is the mark of this target, such as `billing/report/web`.
pub(super) fn choose(pods: &[PodSnapshot], wanted: &Wanted, by: &str, now: Timestamp) -> Choice {
    let fits = |pod: &&PodSnapshot| {
        pod.selected
            && match wanted {
                Wanted::NoPod => false,
                Wanted::Ready => pod.ready.is_some(),
                Wanted::Holder { name, uid } => pod.name == *name && pod.uid == *uid,
            }
    };
    let ours = || pods.iter().filter(|pod| is_ours(pod, by));
    let own = || ours().filter(|pod| pod.selected);
    let revisions = Revisions::of(own(), |_| true);
    let settled = Revisions::of(own(), |ready| left(ready, now).is_zero());
    // If no Ready pod has the label, the newest revision gets it at once.
    let has_one = ours().filter(|pod| pod.labelled).any(|pod| fits(&pod));
    let old = if has_one { &settled } else { &revisions };
    let goes = |pod: &PodSnapshot| *wanted == Wanted::Ready && old.is_old(pod);
    // Prefers a pod with the mark of this target, then the pod that has been Ready for the longest.
    let rank = |pod: &&PodSnapshot| (pod.by.as_deref() != Some(by), pod.ready, pod.name.clone());
    let keep = ours().filter(|pod| pod.labelled && !goes(pod)).filter(fits);
    let keep = keep.min_by_key(rank);
    let waits = |pod: &&PodSnapshot| *wanted == Wanted::Ready && revisions.is_old(pod);
    let later = keep.filter(waits).and_then(|_| {
        let all = own().filter_map(|pod| pod.ready);
        all.map(|ready| left(ready, now))
            .filter(|left| !left.is_zero())
            .min()
    });
    let take = ours().filter(|pod| keep != Some(pod));
    // The mark without the label remains if another client removed the label.
    let take = take.filter(|pod| pod.labelled || pod.by.is_some());
    let foreign = pods
        .iter()
        .find(|pod| pod.selected && pod.labelled && !is_ours(pod, by));
    let free = || pods.iter().filter(|pod| is_ours(pod, by)).filter(fits);
    Choice {
        take: take.cloned().collect(),
        give: match keep {
            Some(_) => None,
            None => free()
                .min_by_key(|pod| (goes(pod), pod.ready, pod.name.clone()))
                .cloned(),
        },
        keep: keep.cloned(),
        foreign: foreign.cloned(),
        template: pods
            .iter()
            .filter(|pod| pod.selected)
            .find_map(|pod| pod.template.clone()),
        later,
    }
}

/// Returns the time until a pod that became Ready at `ready` has been Ready for long enough.
fn left(ready: Timestamp, now: Timestamp) -> Duration {
    let since = Duration::try_from(now.duration_since(ready)).unwrap_or_default();
    MIN_READY.saturating_sub(since)
}

/// The progress of rollouts, as far as the pods alone show it.
struct Revisions<'a> {
    /// The creation time of the newest pod of each revision, ready or not.
    made: BTreeMap<&'a Revision, Timestamp>,
    /// The creation time of the newest Ready pod of each object.
    ready: BTreeMap<&'a str, Timestamp>,
}

impl<'a> Revisions<'a> {
    /// Collects the revisions. Of the Ready pods, only those that `counts` accepts are used.
    fn of(pods: impl Iterator<Item = &'a PodSnapshot>, counts: impl Fn(Timestamp) -> bool) -> Self {
        let (mut made, mut ready) = (BTreeMap::new(), BTreeMap::new());
        for pod in pods {
            let (Some(revision), Some(created)) = (&pod.revision, pod.created) else {
                continue;
            };
            let last = made.entry(revision).or_insert(created);
            *last = created.max(*last);
            if pod.ready.is_some_and(&counts) {
                let last = ready.entry(&*revision.object).or_insert(created);
                *last = created.max(*last);
            }
        }
        Self { made, ready }
    }

    /// Reports whether a pod of another revision of the same object is Ready and was created after every pod
    /// of this pod's revision: this pod is about to be replaced. At most one of two revisions is old. A pod
    /// that is recreated during a rollout does not make its revision the newest before it is Ready.
    fn is_old(&self, pod: &PodSnapshot) -> bool {
        let Some(revision) = &pod.revision else {
            return false;
        };
        let last = self.ready.get(&*revision.object);
        last.zip(self.made.get(revision))
            .is_some_and(|(last, own)| last > own)
    }
}

/// Reports whether this target decides on the label of a pod. The target may have had another name before.
fn is_ours(pod: &PodSnapshot, by: &str) -> bool {
    let lock = |mark: &str| mark.rsplit_once('/').map(|(lock, _)| lock.to_owned());
    match &pod.by {
        Some(mark) if pod.selected => lock(mark) == lock(by),
        Some(mark) => mark == by,
        None => pod.selected,
    }
}

#[cfg(test)]
mod tests;
