//! Since when the holder of a fenced lease knows every pod that may run.

use super::succession::{Predecessor, Succession};
use crate::FencingToken;

/// Since when the holder of a lease knows every pod that may run under it. `Moment` is one of its watch of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach<Moment> {
    pub token: FencingToken,
    first: FencingToken,
    /// `None`: pods may have been removed by force before, and run nevertheless.
    pub since: Option<Moment>,
}

/// How a lease stands before its holder marks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// It is marked already, by a holder that did not continue to follow the pods.
    Marked,
    /// It follows an end that was confirmed.
    AfterCleanEnd,
    AfterUncleanEnd,
}

impl<Moment: Copy> Reach<Moment> {
    /// The reach of a new lease; `None` while the pods are not known, which is where `now` is `None`. `before` is that of
    /// the last lease of the same process.
    ///
    /// No pod of the cluster runs after another cluster has held the lock, nor after an end that was confirmed. Otherwise
    /// the holder must have known the pods since a lease of the same lineage. Under a lease that is marked already, pods may
    /// have run that it never saw; and so may pods by the permits of an earlier lineage.
    #[must_use]
    pub fn of(
        token: FencingToken,
        Succession { first, predecessor }: Succession,
        begun: Begun,
        before: Option<Self>,
        now: Option<Moment>,
    ) -> Option<Self> {
        let since = match (begun, predecessor) {
            (Begun::Marked, _) | (_, Predecessor::Unknown) => None,
            (Begun::AfterCleanEnd, _) | (_, Predecessor::Elsewhere) => Some(now?),
            (Begun::AfterUncleanEnd, Predecessor::Own | Predecessor::Sibling) => before
                .filter(|before| before.first == first)
                .and_then(|before| before.since),
        };
        Some(Self { token, first, since })
    }
}
