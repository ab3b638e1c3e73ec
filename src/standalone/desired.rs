//! Derives the desired quorums and locks: the valid declarations of the folder, and the last valid version of each
//! invalid one. Pure.
//!
//! A mistake in a manifest must not stop the work that its lock guards. The removal of a manifest does stop it.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use super::{
    manifests::{Loaded, Problem},
    report::Finding,
};
use crate::{
    api::plan::{LockPlan, QuorumPlan},
    operator::config::Locks,
};

#[derive(Clone, Debug, Default)]
pub(super) struct Desired {
    pub(super) quorums: BTreeMap<String, (QuorumPlan, Locks)>,
    /// The file that declares each object.
    files: BTreeMap<String, String>,
}

impl Desired {
    /// Creates the desired state from a read of the folder. `before` is the desired state until now.
    pub(super) fn new(loaded: Loaded, before: &Self) -> (Self, BTreeSet<Finding>) {
        let may_be_declared = |object: &str| {
            let file = before.files.get(object);
            loaded.problems.iter().any(|problem| match &problem.object {
                Some(named) if problem.names_its_object() => named == object,
                // While a file can be read only in part, it is not known which of its objects it still declares.
                _ => file == Some(&problem.file),
            })
        };
        let new = |plan: &QuorumPlan| (plan.name.clone(), (plan.clone(), Locks::new()));
        let mut quorums: BTreeMap<String, (QuorumPlan, Locks)> = loaded.quorums.iter().map(new).collect();
        let mut kept = BTreeSet::new();
        for (name, (plan, _)) in &before.quorums {
            let object = format!("RedisQuorum {name}");
            if !quorums.contains_key(name) && may_be_declared(&object) {
                quorums.extend([new(plan)]);
                kept.insert(object);
            }
        }
        let declared: BTreeSet<String> = loaded.locks.iter().map(LockPlan::object).collect();
        let undeclared = before.locks().filter(|lock| !declared.contains(&lock.object()));
        for lock in loaded.locks.iter().chain(undeclared) {
            let object = format!("LeaderLock {}", lock.object());
            let is_declared = declared.contains(&lock.object());
            let place = quorums
                .get_mut(&lock.quorum)
                .map(|(_, locks)| locks.entry(lock.lock_name.clone()));
            if let Some(Entry::Vacant(place)) = place
                && (is_declared || may_be_declared(&object))
            {
                place.insert(lock.clone());
                kept.extend((!is_declared).then_some(object));
            }
        }
        let mut files = loaded.files;
        for object in &kept {
            if let Some(file) = before.files.get(object) {
                files.entry(object.clone()).or_insert_with(|| file.clone());
            }
        }
        let is_kept = |problem: &Problem| match &problem.object {
            Some(object) if problem.names_its_object() => kept.contains(object),
            _ => kept.iter().any(|object| files.get(object) == Some(&problem.file)),
        };
        let findings = loaded.problems.into_iter().map(|problem| Finding::Manifest {
            kept: is_kept(&problem),
            problem,
        });
        let findings = findings.collect();
        (Self { quorums, files }, findings)
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
    fn a_valid_object_stays_in_force_until_it_is_valid_again_or_removed() {
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
    fn an_unreadable_target_may_still_be_declared() {
        let (_, first, _) = desired(&[QUORUM, &lock("x", 10), &lock("y", 10)], &Desired::default());
        let nameless = lock("x", 10).replace("name: x, ", "");
        for slip in [lock("x", 10) + "]", nameless, String::from("[]")] {
            let (locks, second, kept) = desired(&[QUORUM, &slip, &lock("y", 12)], &first);
            assert_eq!(
                (locks, kept),
                (vec!["x 10".into(), "y 12".into()], vec![true]),
                "{slip}"
            );
            // The same applies to the next read of the file.
            let (locks, ..) = desired(&[QUORUM, &slip, &lock("y", 12)], &second);
            assert_eq!(locks, ["x 10", "y 12"], "{slip}");
        }
        // The quorum stays as well, with the locks that name it.
        let (locks, ..) = desired(&["a: [", &lock("x", 10), &lock("y", 10)], &first);
        assert_eq!(locks, ["x 10", "y 10"]);
        // Another file that cannot be read has no effect on this one.
        let folder = tempfile::tempdir().unwrap();
        fs::write(
            folder.path().join("all.yaml"),
            format!("{QUORUM}\n---\n{}", lock("y", 10)),
        )
        .unwrap();
        fs::write(folder.path().join("other.yaml"), "a: [").unwrap();
        let (second, _) = Desired::new(load(folder.path()).unwrap(), &first);
        assert_eq!(second.locks().count(), 1);
    }

    #[test]
    fn an_object_that_was_never_valid_is_not_used() {
        let (locks, _, kept) = desired(&[QUORUM, &lock("x", 1), &lock("y", 9)], &Desired::default());
        assert_eq!((locks, kept), (vec!["y 9".into()], vec![false]));
    }
}
