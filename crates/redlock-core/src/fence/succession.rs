//! What the grants of a win show of the holders before.

use super::mark::MarkRegister;
use crate::{ClusterId, FencingToken};

/// What a win shows of the holders before, by the greatest mark in its grants and the greatest of `held` and `heldFloor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Succession {
    /// The token of the first lease since which no other cluster can have started targets.
    pub first: FencingToken,
    pub predecessor: Predecessor,
}

/// The last lease that was marked, as its successor sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Predecessor {
    /// Another cluster marked its lease, or no lease was marked: no pod of the own cluster runs.
    Elsewhere,
    /// The own cluster, and no other holder can have started targets since.
    Own,
    /// The same, and that lease was also the last one that wrote `held`: what it ran can be adopted.
    Sibling,
    /// The own cluster, before a `held` or a `heldFloor`: another cluster may have started targets since, and pods of the
    /// own cluster may run. The floor may be that of a master that was sealed after a loss of memory. Or masters show
    /// different marks.
    Unknown,
}

impl Succession {
    pub(super) fn of(register: &MarkRegister, cluster: &ClusterId, held: u64, token: FencingToken) -> Self {
        let own = register.mark().filter(|mark| mark.is_of(cluster));
        let predecessor = match (register, own) {
            (MarkRegister::Never, _) | (MarkRegister::Marked(_), None) => Predecessor::Elsewhere,
            (MarkRegister::Split(_), _) => Predecessor::Unknown,
            (_, Some(mark)) if mark.token.0 < held || mark.token > token => Predecessor::Unknown,
            (_, Some(mark)) if mark.token.0 == held => Predecessor::Sibling,
            (_, Some(_)) => Predecessor::Own,
        };
        let first = match (predecessor, own) {
            (Predecessor::Own | Predecessor::Sibling, Some(mark)) => mark.first,
            _ => token,
        };
        Self { first, predecessor }
    }

    #[must_use]
    pub fn is_sibling(&self) -> bool {
        self.predecessor == Predecessor::Sibling
    }
}
