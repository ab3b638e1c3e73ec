//! How a lock is taken away: whether what runs is stopped before, and whether this replica may do it. Pure.

/// What is known of a lock that is to be taken away.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Departing {
    pub(super) deleted: bool,
    /// It is deleted, and what runs under it stays.
    pub(super) orphan: bool,
    /// Something of it may run in this cluster: its finalizer is there.
    pub(super) guarded: bool,
    /// Its present spec cannot be read: a replica of another version may have started what this one does not know.
    pub(super) unreadable: bool,
    pub(super) enforced: bool,
    /// Targets are declared.
    pub(super) targets: bool,
    /// Something runs, or may run, by the last report of the target task. `None` without a target task.
    pub(super) runs: Option<bool>,
    /// A sibling holds the lock, or may hold it.
    pub(super) for_sibling: bool,
}

/// How a lock is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    Wait,
    /// After what runs is stopped.
    Stop,
    /// At once; `stopped` if nothing runs.
    Leave {
        stopped: bool,
    },
}

/// Whether targets are declared says little of what runs: a target may have been taken out of the spec, or be one that
/// this version cannot read. So what is unknown counts as running.
pub(super) fn departure(lock: Departing) -> Departure {
    let stops = lock.enforced && (lock.targets || lock.runs == Some(true));
    if lock.orphan {
        // The targets run on: no other cluster may start them before the lease has run out.
        return Departure::Leave { stopped: false };
    }
    if lock.deleted && lock.for_sibling {
        // The holder stops what runs and removes the finalizer. Removed here, it would end that stop with the object.
        return Departure::Wait;
    }
    match lock.runs {
        // The target task starts a moment after the lock is contended for.
        None if stops => Departure::Wait,
        Some(_) if stops => Departure::Stop,
        runs => Departure::Leave {
            stopped: !lock.unreadable && (!lock.guarded || runs == Some(false)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deleted_lock_counts_as_stopped_only_when_nothing_runs() {
        let lock = Departing {
            deleted: true,
            guarded: true,
            enforced: true,
            ..Departing::default()
        };
        let leave = |stopped| Departure::Leave { stopped };
        for (what, lock, wanted) in [
            // Its last target was taken out of the spec.
            (
                "it still runs",
                Departing {
                    runs: Some(true),
                    ..lock
                },
                Departure::Stop,
            ),
            (
                "it is stopped",
                Departing {
                    runs: Some(false),
                    ..lock
                },
                leave(true),
            ),
            ("this replica never knew it", lock, leave(false)),
            (
                "a sibling holds the lock",
                Departing {
                    for_sibling: true,
                    ..lock
                },
                Departure::Wait,
            ),
            // Enforcement was changed to Observe.
            (
                "observed, and it runs",
                Departing {
                    enforced: false,
                    targets: true,
                    runs: Some(true),
                    ..lock
                },
                leave(false),
            ),
            (
                "observed, and nothing of it was ever started",
                Departing {
                    enforced: false,
                    targets: true,
                    runs: Some(true),
                    guarded: false,
                    ..lock
                },
                leave(true),
            ),
            (
                "declared",
                Departing {
                    targets: true,
                    runs: Some(false),
                    ..lock
                },
                Departure::Stop,
            ),
            (
                "declared, without a target task",
                Departing {
                    targets: true,
                    ..lock
                },
                Departure::Wait,
            ),
            (
                "orphaned",
                Departing {
                    orphan: true,
                    targets: true,
                    for_sibling: true,
                    ..lock
                },
                leave(false),
            ),
            (
                "its present spec cannot be read",
                Departing {
                    unreadable: true,
                    runs: Some(false),
                    ..lock
                },
                leave(false),
            ),
            (
                "without targets",
                Departing {
                    guarded: false,
                    ..lock
                },
                leave(true),
            ),
            (
                "not deleted, such as renamed",
                Departing {
                    deleted: false,
                    for_sibling: true,
                    targets: true,
                    runs: Some(true),
                    ..lock
                },
                Departure::Stop,
            ),
        ] {
            assert_eq!(departure(lock), wanted, "{what}");
        }
    }
}
