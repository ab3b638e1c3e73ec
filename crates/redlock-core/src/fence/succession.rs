//! The previous holders of a fenced lock, as the grants of a win show them.

use super::mark::MarkRegister;
use crate::{BootInstant, ClusterId, FencingToken};

/// The previous holders, as a win shows them by the marks in its grants and the greatest of `held` and
/// `heldFloor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Succession {
    /// The token of the first lease since which no other cluster can have started targets.
    pub first: FencingToken,
    pub predecessor: Predecessor,
    /// The time by which every permit of an earlier mark has ended.
    pub earlier_until: BootInstant,
}

/// The last lease that was marked, as its successor sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Predecessor {
    /// The lease was that of another cluster, or does not exist, and no master shows a mark of the winner's
    /// cluster: no pod of the winner's cluster runs.
    Elsewhere,
    /// The lease was that of the winner's cluster, and no other holder can have started targets since.
    Own,
    /// Like [`Self::Own`]. That lease was also the last one that wrote `held`: its targets can be adopted (P-113).
    Sibling,
    /// Another cluster may have started targets since a mark of the winner's cluster, and pods of the winner's cluster
    /// may run by it: a greater mark need not be on a majority, a greater `heldFloor` may be that of a seal after a
    /// loss of memory, or masters show different marks.
    Unknown,
}

impl Succession {
    /// Continues the `first` of the greatest mark where that mark is of `cluster` and not older than `held` (P-107).
    pub(super) fn of(
        registers: &[MarkRegister],
        cluster: &ClusterId,
        (held, token): (u64, FencingToken),
        earlier_until: BootInstant,
    ) -> Self {
        let greatest = MarkRegister::greatest(registers);
        let own = greatest.mark().filter(|mark| mark.is_of(cluster));
        let predecessor = match own {
            Some(mark) if mark.token.0 < held || mark.token > token => Predecessor::Unknown,
            Some(mark) if mark.token.0 == held => Predecessor::Sibling,
            Some(_) => Predecessor::Own,
            None if registers.iter().any(|register| may_be_of(register, cluster)) => Predecessor::Unknown,
            None => Predecessor::Elsewhere,
        };
        let first = match (predecessor, own) {
            (Predecessor::Own | Predecessor::Sibling, Some(mark)) => mark.first,
            _ => token,
        };
        Self {
            first,
            predecessor,
            earlier_until,
        }
    }

    #[must_use]
    pub fn is_sibling(&self) -> bool {
        self.predecessor == Predecessor::Sibling
    }
}

fn may_be_of(register: &MarkRegister, cluster: &ClusterId) -> bool {
    match register {
        MarkRegister::Never => false,
        MarkRegister::Split(_) => true,
        MarkRegister::Marked(mark) => mark.is_of(cluster),
    }
}
