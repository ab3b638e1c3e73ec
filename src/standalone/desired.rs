//! What should run: what the folder declares, and the last valid version of what it declares badly. Pure.
//!
//! A slip of the pen in a manifest must not stop the work that its lock guards; a manifest that is removed does.

use std::collections::{BTreeMap, BTreeSet};

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
    /// `before` is what was in force until now.
    pub(super) fn new(loaded: Loaded, before: &Self) -> (Self, BTreeSet<Finding>) {
        let (named, unnamed): (Vec<&Problem>, Vec<&Problem>) = loaded
            .problems
            .iter()
            .partition(|problem| problem.names_its_object());
        let troubled: BTreeSet<&str> = named
            .iter()
            .filter_map(|problem| problem.object.as_deref())
            .collect();
        // Nobody can say which of its objects a file still declares that can only be read in part.
        let unreadable: BTreeSet<&str> = unnamed.iter().map(|problem| problem.file.as_str()).collect();
        let may_be_declared = |object: &str| {
            let file = before.files.get(object);
            troubled.contains(object) || file.is_some_and(|file| unreadable.contains(file.as_str()))
        };
        let mut quorums: BTreeMap<String, (QuorumPlan, Locks)> = loaded
            .quorums
            .into_iter()
            .map(|plan| (plan.name.clone(), (plan, Locks::new())))
            .collect();
        let mut kept = BTreeSet::new();
        for (name, (plan, _)) in &before.quorums {
            let object = format!("RedisQuorum {name}");
            if !quorums.contains_key(name) && may_be_declared(&object) {
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
            if objects.contains(&lock.object()) || !may_be_declared(&object) {
                continue;
            }
            if let Some((_, locks)) = quorums.get_mut(&lock.quorum)
                && !locks.contains_key(&lock.lock_name)
            {
                locks.insert(lock.lock_name.clone(), lock.clone());
                kept.insert(object);
            }
        }
        let mut files = loaded.files;
        for object in &kept {
            if let Some(file) = before.files.get(object) {
                files.entry(object.clone()).or_insert_with(|| file.clone());
            }
        }
        let kept_of_file: BTreeSet<&str> = kept
            .iter()
            .filter_map(|object| files.get(object))
            .map(String::as_str)
            .collect();
        let findings = loaded.problems.iter().map(|problem| Finding::Manifest {
            kept: match &problem.object {
                Some(object) if problem.names_its_object() => kept.contains(object),
                _ => kept_of_file.contains(problem.file.as_str()),
            },
            problem: problem.clone(),
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
    fn what_cannot_be_read_may_still_be_declared() {
        let (_, first, _) = desired(&[QUORUM, &lock("x", 10), &lock("y", 10)], &Desired::default());
        let nameless = lock("x", 10).replace("name: x, ", "");
        for slip in [lock("x", 10) + "]", nameless, String::from("[]")] {
            let (locks, second, kept) = desired(&[QUORUM, &slip, &lock("y", 12)], &first);
            assert_eq!(
                (locks, kept),
                (vec!["x 10".into(), "y 12".into()], vec![true]),
                "{slip}"
            );
            // Also the second time that the file is read.
            let (locks, ..) = desired(&[QUORUM, &slip, &lock("y", 12)], &second);
            assert_eq!(locks, ["x 10", "y 12"], "{slip}");
        }
        // The quorum, too, and what names it.
        let (locks, ..) = desired(&["a: [", &lock("x", 10), &lock("y", 10)], &first);
        assert_eq!(locks, ["x 10", "y 10"]);
        // Another file that cannot be read says nothing about this one.
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
    fn what_was_never_valid_is_not_used() {
        let (locks, _, kept) = desired(&[QUORUM, &lock("x", 1), &lock("y", 9)], &Desired::default());
        assert_eq!((locks, kept), (vec!["y 9".into()], vec![false]));
    }
}
