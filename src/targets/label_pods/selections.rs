//! The pods that each target of this process selects, so that two targets that select one pod are found.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::watched::{Follower, Watched};

/// The targets with action LabelPods, of all locks.
#[derive(Debug, Default)]
pub(in crate::targets) struct Selections(Mutex<Vec<Selection>>);

#[derive(Debug)]
struct Selection {
    namespace: String,
    /// The mark of the target.
    by: String,
    pods: Weak<Follower>,
}

impl Selections {
    /// Adds a target. It is removed when its pods are dropped.
    pub(super) fn add(&self, namespace: &str, by: &str, watched: &Watched) {
        let mut all = self.all();
        all.retain(|selection| selection.pods.strong_count() > 0);
        all.push(Selection {
            namespace: namespace.to_owned(),
            by: by.to_owned(),
            pods: Arc::downgrade(watched.follower()),
        });
    }

    /// Returns another target of the namespace that selects one of these pods, given by name and UID, and that pod.
    pub(super) fn other(&self, namespace: &str, by: &str, pods: &[(&str, &str)]) -> Option<(String, String)> {
        let all = self.all();
        let mut others = all
            .iter()
            .filter(|other| other.namespace == namespace && other.by != by);
        others.find_map(|other| {
            let selected = other.pods.upgrade()?;
            let (name, _) = pods.iter().find(|(name, uid)| selected.has(name, uid))?;
            Some((other.by.clone(), (*name).to_owned()))
        })
    }

    fn all(&self) -> MutexGuard<'_, Vec<Selection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::label_pods::watched::tests::watched;

    #[test]
    fn two_targets_that_select_one_pod_are_found() {
        let selections = Selections::default();
        let (one, other, elsewhere) = (watched(&["a", "b"]), watched(&["b", "c"]), watched(&["a"]));
        selections.add("n", "lock/one", &one);
        selections.add("n", "lock/other", &other);
        selections.add("m", "lock/one", &elsewhere);
        let find = |by: &str, pods: &[(&str, &str)]| selections.other("n", by, pods);
        let (a, b) = (("a", "uid of a"), ("b", "uid of b"));
        let found = |by: &str| Some((by.to_owned(), "b".to_owned()));
        assert_eq!(find("lock/one", &[a, b]), found("lock/other"));
        assert_eq!(find("lock/other", &[b, ("c", "uid of c")]), found("lock/one"));
        assert_eq!(find("lock/one", &[a]), None);
        assert_eq!(find("lock/one", &[("b", "another pod")]), None);
        drop(other);
        assert_eq!(find("lock/one", &[a, b]), None, "the target was removed");
    }
}
