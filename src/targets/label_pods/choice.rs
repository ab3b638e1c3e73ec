//! Decides which pod carries the label, and which changes that requires. Pure.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::jiff::Timestamp;

use super::snapshot::{PodSnapshot, Revision};

/// A pod that is Ready keeps the label until one of a newer revision has been Ready for so long: the label does not follow a
/// revision whose pods get ready and unready again. As long as between two probes of a kubelet by default.
pub(super) const MIN_READY: Duration = Duration::from_secs(10);

/// Whom the label is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Nobody,
    /// One that is Ready: the one that has it, as long as it is and no rollout replaces it.
    Ready,
    /// The pod that holds the lock, ready or not: the pod knows best whether it works, and the lease limits for how
    /// long.
    Holder {
        name: String,
        uid: String,
    },
}

/// The changes to make, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// Those that must not have it.
    pub(super) take: Vec<PodSnapshot>,
    /// The one that has it and keeps it.
    pub(super) keep: Option<PodSnapshot>,
    /// If no pod has the label: the pod that gets it.
    pub(super) give: Option<PodSnapshot>,
    /// It is another lock's, which labels pods of this selector, too.
    pub(super) foreign: Option<PodSnapshot>,
    /// It goes to a newer revision after this, if its pods stay Ready.
    pub(super) later: Option<Duration>,
}

/// `by` is the mark of this target, as in `billing/report/web`.
pub(super) fn choose(pods: &[PodSnapshot], wanted: &Wanted, by: &str, now: Timestamp) -> Choice {
    let fits = |pod: &&PodSnapshot| {
        pod.selected
            && match wanted {
                Wanted::Nobody => false,
                Wanted::Ready => pod.ready.is_some(),
                Wanted::Holder { name, uid } => pod.name == *name && pod.uid == *uid,
            }
    };
    let ours = || pods.iter().filter(|pod| is_ours(pod, by));
    let own = || ours().filter(|pod| pod.selected);
    let revisions = Revisions::of(own(), |_| true);
    let settled = Revisions::of(own(), |ready| left(ready, now).is_zero());
    // Where no Ready pod has the label, the newest revision gets it at once.
    let has_one = ours().filter(|pod| pod.labelled).any(|pod| fits(&pod));
    let old = if has_one { &settled } else { &revisions };
    let goes = |pod: &PodSnapshot| *wanted == Wanted::Ready && old.is_old(pod);
    // Without a doubt ours first, then the one that has been Ready for the longest.
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
    // A pod that is ours by the mark alone is the rest of a label that another client removed.
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
        later,
    }
}

/// Until a pod that is Ready since then has been so for long enough.
fn left(ready: Timestamp, now: Timestamp) -> Duration {
    let since = Duration::try_from(now.duration_since(ready)).unwrap_or_default();
    MIN_READY.saturating_sub(since)
}

/// How far rollouts have come, by the pods alone.
struct Revisions<'a> {
    /// When the last pod of each was made, ready or not.
    made: BTreeMap<&'a Revision, Timestamp>,
    /// Of each object: when the last of its pods was made that is Ready.
    ready: BTreeMap<&'a str, Timestamp>,
}

impl<'a> Revisions<'a> {
    /// By the Ready pods that count.
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

    /// Reports whether a pod of another revision of the same object is Ready, and was made after every pod of this
    /// pod's revision: this pod is about to be replaced. Of two revisions never both are old, and a pod that is made
    /// anew during a rollout makes no revision the newest before it is Ready.
    fn is_old(&self, pod: &PodSnapshot) -> bool {
        let Some(revision) = &pod.revision else {
            return false;
        };
        let last = self.ready.get(&*revision.object);
        last.zip(self.made.get(revision))
            .is_some_and(|(last, own)| last > own)
    }
}

/// Whether this target decides on the label of a pod. The target may have been called otherwise before.
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
