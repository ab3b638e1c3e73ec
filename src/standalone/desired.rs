//! What should run: what the folder declares, and the last valid version of what it declares badly. Pure.
//!
//! A slip of the pen in a manifest must not stop the work that its lock guards; a manifest that is removed does.

use std::collections::{BTreeMap, BTreeSet};

use super::{manifests::Loaded, report::Finding};
use crate::{
    api::plan::{LockPlan, QuorumPlan},
    lease::LockName,
};

/// Locks of one quorum by their name on the masters.
pub(super) type Locks = BTreeMap<LockName, LockPlan>;

#[derive(Clone, Debug, Default)]
pub(super) struct Desired {
    pub(super) quorums: BTreeMap<String, (QuorumPlan, Locks)>,
}

impl Desired {
    /// `before` is what was in force until now.
    pub(super) fn new(loaded: Loaded, before: &Self) -> (Self, BTreeSet<Finding>) {
        let troubled: BTreeSet<&str> = loaded
            .problems
            .iter()
            .filter_map(|problem| problem.object.as_deref())
            .collect();
        let mut quorums: BTreeMap<String, (QuorumPlan, Locks)> = loaded
            .quorums
            .into_iter()
            .map(|plan| (plan.name.clone(), (plan, Locks::new())))
            .collect();
        let mut kept = BTreeSet::new();
        for (name, (plan, _)) in &before.quorums {
            let object = format!("RedisQuorum {name}");
            if !quorums.contains_key(name) && troubled.contains(object.as_str()) {
                quorums.insert(name.clone(), (plan.clone(), Locks::new()));
                kept.insert(object);
            }
        }
        let mut objects = BTreeSet::new();
        for lock in loaded.locks {
            objects.insert(lock.object());
            if let Some((_, locks)) = quorums.get_mut(&lock.quorum) {
                locks.insert(lock.lock_name.clone(), lock);
            }
        }
        for lock in before.quorums.values().flat_map(|(_, locks)| locks.values()) {
            let object = format!("LeaderLock {}", lock.object());
            if objects.contains(&lock.object()) || !troubled.contains(object.as_str()) {
                continue;
            }
            if let Some((_, locks)) = quorums.get_mut(&lock.quorum)
                && !locks.contains_key(&lock.lock_name)
            {
                locks.insert(lock.lock_name.clone(), lock.clone());
                kept.insert(object);
            }
        }
        let findings = loaded.problems.iter().map(|problem| Finding::Manifest {
            kept: problem
                .object
                .as_ref()
                .is_some_and(|object| kept.contains(object)),
            problem: problem.clone(),
        });
        let findings = findings.collect();
        (Self { quorums }, findings)
    }

    pub(super) fn locks(&self) -> impl Iterator<Item = &LockPlan> {
        self.quorums.values().flat_map(|(_, locks)| locks.values())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::standalone::manifests::load;

    const QUORUM: &str = "{apiVersion: redlock.dev/v1alpha1, kind: RedisQuorum, metadata: {name: q}, spec: {masters: [\
        {name: a, url: 'redis://h1'}, {name: b, url: 'redis://h2'}, {name: c, url: 'redis://h3'}]}}";

    fn lock(name: &str, lease: u64) -> String {
        format!(
            "{{apiVersion: redlock.dev/v1alpha1, kind: LeaderLock, metadata: {{name: {name}, namespace: n}}, \
             spec: {{quorumRef: {{name: q}}, leaseDurationSeconds: {lease}}}}}"
        )
    }

    fn desired(documents: &[&str], before: &Desired) -> (Vec<String>, Desired, Vec<bool>) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("all.yaml"), documents.join("\n---\n")).unwrap();
        let (desired, findings) = Desired::new(load(folder.path()).unwrap(), before);
        let locks = desired
            .locks()
            .map(|lock| format!("{} {}", lock.name, lock.timings.lease_duration.as_secs()));
        let kept = findings
            .iter()
            .map(|finding| matches!(finding, Finding::Manifest { kept: true, .. }));
        (locks.collect(), desired.clone(), kept.collect())
    }

    #[test]
    fn what_was_valid_stays_until_it_is_valid_again_or_removed() {
        let (locks, first, kept) = desired(&[QUORUM, &lock("x", 10), &lock("y", 10)], &Desired::default());
        assert_eq!((locks, kept), (vec!["x 10".into(), "y 10".into()], vec![]));
        // The lease of x is too short, y is changed.
        let (locks, second, kept) = desired(&[QUORUM, &lock("x", 1), &lock("y", 12)], &first);
        assert_eq!((locks, kept), (vec!["x 10".into(), "y 12".into()], vec![true]));
        // The quorum is broken: it stays, and its locks with it.
        let (locks, third, kept) = desired(
            &[
                &QUORUM.replace("redis://h1", "h1"),
                &lock("x", 11),
                &lock("y", 12),
            ],
            &second,
        );
        assert_eq!(locks, ["x 10", "y 12"]);
        assert!(kept.iter().all(|kept| *kept), "{kept:?}");
        // x is removed.
        let (locks, _, kept) = desired(&[QUORUM, &lock("y", 12)], &third);
        assert_eq!((locks, kept), (vec!["y 12".into()], vec![]));
    }

    #[test]
    fn what_was_never_valid_is_not_used() {
        let (locks, _, kept) = desired(&[QUORUM, &lock("x", 1), &lock("y", 9)], &Desired::default());
        assert_eq!((locks, kept), (vec!["y 9".into()], vec![false]));
    }
}
