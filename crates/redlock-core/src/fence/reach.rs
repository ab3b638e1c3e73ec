//! The time since which the holder of a fenced lease knows every pod that may run.

use super::succession::{Predecessor, Succession};
use crate::{BootInstant, FencingToken, Marks};

/// The time since which a holder knows every pod that may run under its lease. A `Moment` is a time in its
/// watch of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach<Moment> {
    pub token: FencingToken,
    first: FencingToken,
    known: Known<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known<Moment> {
    Since(Moment),
    /// Pods of an earlier lineage may run until `earlier_until`.
    Beside {
        since: Moment,
        earlier_until: BootInstant,
    },
    /// Pods may have been removed by force earlier, and may run as long as the lineage.
    Never,
}

/// The reason why a holder does not know every pod that may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownPods<Moment> {
    /// Pods of an earlier lineage may run until `until`. All other pods are known since `since`.
    Until { since: Moment, until: BootInstant },
    /// Pods that the holder never saw may run as long as the lineage.
    Always,
}

/// The state of a lease before its holder marks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// The lease is already marked, by a holder that did not continue to follow the pods.
    Marked,
    /// The lease follows a confirmed end.
    AfterCleanEnd,
    AfterUncleanEnd,
}

impl Begun {
    /// Returns the state of a lease. `marks` are the registers in the grants of its win.
    #[must_use]
    pub const fn of(is_marked: bool, marks: Marks) -> Self {
        if is_marked {
            Self::Marked
        } else if marks.ended_uncleanly() {
            Self::AfterUncleanEnd
        } else {
            Self::AfterCleanEnd
        }
    }
}

impl<Moment: Copy> Reach<Moment> {
    /// Returns the reach of a new lease. `now` is `None` while the pods are not known; a reach that depends
    /// on it is then `None`. `before` is the reach of the last lease of the same process.
    ///
    /// No pod of the cluster runs after another cluster has held the lock, nor after an end that was
    /// confirmed. Otherwise the holder must have known the pods since a lease of the same lineage. Under a
    /// lease that is already marked, pods that the holder never saw may have run. Where pods of an earlier
    /// lineage may run, each win of the new lineage waits for their end: a lease whose mark is not on a
    /// majority ends before that (P-115).
    #[must_use]
    pub fn of(
        token: FencingToken,
        succession: Succession,
        begun: Begun,
        before: Option<Self>,
        now: Option<Moment>,
    ) -> Option<Self> {
        let Succession {
            first,
            predecessor,
            earlier_until,
        } = succession;
        let before = before.filter(|before| before.first == first);
        let known = match (begun, predecessor) {
            (Begun::Marked, _) => Known::Never,
            (_, Predecessor::Unknown) => Known::Beside {
                since: now?,
                earlier_until,
            },
            (Begun::AfterCleanEnd, _) | (_, Predecessor::Elsewhere) => Known::Since(now?),
            (Begun::AfterUncleanEnd, Predecessor::Own | Predecessor::Sibling) => match before {
                Some(Self {
                    known: Known::Beside { since, .. },
                    ..
                }) => Known::Beside { since, earlier_until },
                Some(before) => before.known,
                None => Known::Never,
            },
        };
        Some(Self { token, first, known })
    }

    /// # Errors
    /// Returns an error if pods may run that the holder does not know.
    pub fn since(&self, now: BootInstant) -> Result<Moment, UnknownPods<Moment>> {
        match self.known {
            Known::Since(since) => Ok(since),
            Known::Beside { since, earlier_until } if now >= earlier_until => Ok(since),
            Known::Beside { since, earlier_until } => Err(UnknownPods::Until {
                since,
                until: earlier_until,
            }),
            Known::Never => Err(UnknownPods::Always),
        }
    }
}
