//! Decides whether this replica writes the status of a lock. Pure.

use std::time::Duration;

use crate::controller::sibling_answers::Witness;

/// The reason why this replica may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum Author {
    /// The replica holds the lock.
    Holder,
    /// The replica reports for its cluster, of which no replica holds the lock.
    Reporter,
    /// According to the status, the replica was the last holder. It sees no majority of the masters, but knows how its
    /// lease ended.
    Former,
    /// No replica can report: any of them may write, but only that the state is unknown.
    Anybody,
}

impl Author {
    /// Reports whether the author does not know the holder of the lock.
    pub(super) const fn is_blind(self) -> bool {
        matches!(self, Self::Former | Self::Anybody)
    }
}

/// This replica's view of the masters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum Visibility {
    Majority,
    /// Less than a majority of the masters; `witness` is the result of asking the siblings. `former` is true
    /// if the status names the last lease of this replica.
    Blind {
        former: bool,
        witness: Witness,
    },
}

/// The facts that decide which replica may write.
#[derive(Clone, Copy, Debug)]
pub(in crate::controller) struct AuthorFacts {
    pub(in crate::controller) held_here: bool,
    /// Whether a sibling holds the lock, and writes the status.
    pub(in crate::controller) held_by_sibling: bool,
    pub(in crate::controller) visibility: Visibility,
    pub(in crate::controller) reporter: bool,
    /// Whether a replica with more knowledge has written since this replica wrote that the state is unknown.
    pub(in crate::controller) contradicted: bool,
    /// The time for which no replica of this cluster has reported; `None` while a replica reports.
    pub(in crate::controller) unreported: Option<Duration>,
    /// The time without a reporter after which no replica can become the reporter.
    pub(in crate::controller) long: Duration,
    /// The time for which this replica has known an object without a status.
    pub(in crate::controller) unvisited: Option<Duration>,
}

/// The time after which a new object gets its first status without a reporter. If a reporter can be elected,
/// its election is much faster.
const FIRST_VISIT: Duration = Duration::from_secs(1);

pub(in crate::controller) fn author(facts: &AuthorFacts) -> Option<Author> {
    if facts.held_here {
        return Some(Author::Holder);
    }
    if facts.held_by_sibling {
        return None;
    }
    match facts.visibility {
        Visibility::Majority if facts.reporter => return Some(Author::Reporter),
        Visibility::Majority => {}
        Visibility::Blind {
            witness: Witness::Responsible,
            ..
        } => return None,
        Visibility::Blind { .. } if facts.contradicted => return None,
        Visibility::Blind { former, witness } => match witness {
            Witness::Absent | Witness::Silent if former => return Some(Author::Former),
            Witness::Absent => return Some(Author::Anybody),
            // The siblings are not known, and none of them can report before this reporter's lease has ended.
            Witness::Silent if facts.reporter => return Some(Author::Anybody),
            // A sibling that does not answer may see the masters, and write the status.
            Witness::Awaited | Witness::Silent | Witness::Responsible => {}
        },
    }
    let unreported = facts.unreported.filter(|_| !facts.contradicted)?;
    let first = facts
        .unvisited
        .is_some_and(|known| known.min(unreported) >= FIRST_VISIT);
    (first || unreported >= facts.long).then_some(Author::Anybody)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(120);

    fn blind(former: bool, witness: Witness) -> AuthorFacts {
        AuthorFacts {
            held_here: false,
            held_by_sibling: false,
            visibility: Visibility::Blind { former, witness },
            reporter: false,
            contradicted: false,
            unreported: Some(Duration::from_secs(2)),
            long: LONG,
            unvisited: None,
        }
    }

    #[test]
    fn replica_that_lost_the_masters_writes_the_end_of_its_lease_at_once() {
        assert_eq!(author(&blind(true, Witness::Absent)), Some(Author::Former));
        assert_eq!(author(&blind(true, Witness::Silent)), Some(Author::Former));
        assert_eq!(author(&blind(true, Witness::Awaited)), None);
    }

    #[test]
    fn replica_without_a_majority_leaves_the_status_to_a_sibling_that_may_have_one() {
        assert_eq!(author(&blind(false, Witness::Absent)), Some(Author::Anybody));
        for former in [false, true] {
            assert_eq!(author(&blind(former, Witness::Responsible)), None);
            let contradicted = AuthorFacts {
                contradicted: true,
                unreported: Some(LONG),
                ..blind(former, Witness::Absent)
            };
            assert_eq!(author(&contradicted), None);
        }
        assert_eq!(author(&blind(false, Witness::Silent)), None);
        let late = AuthorFacts {
            unreported: Some(LONG),
            ..blind(false, Witness::Silent)
        };
        assert_eq!(author(&late), Some(Author::Anybody));
        let held = AuthorFacts {
            held_here: true,
            ..blind(false, Witness::Responsible)
        };
        assert_eq!(author(&held), Some(Author::Holder), "its lease lasts");
    }

    #[test]
    fn reporter_writes_while_it_sees_a_majority() {
        let seeing = AuthorFacts {
            visibility: Visibility::Majority,
            reporter: true,
            ..blind(false, Witness::Awaited)
        };
        assert_eq!(author(&seeing), Some(Author::Reporter));
        let other = AuthorFacts {
            held_by_sibling: true,
            ..seeing
        };
        assert_eq!(author(&other), None);
    }
}
