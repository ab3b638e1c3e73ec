//! What is as it should be is not asked for again at every renewal of the lease, nor at every look at who holds it.

use super::{NOW_AND_THEN, TargetTask};
use crate::{
    clock,
    lease::{FencingToken, Moment},
};

/// What the targets were found to be as they should be for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    Run(FencingToken),
    Stop,
    Look,
}

impl TargetTask {
    /// Whether nothing was heard since all was as it should be for this. Otherwise the targets are about to be asked:
    /// until that has ended, nothing is known of them, for this nor for anything else.
    pub(super) fn is_quiet(&mut self, aim: Aim) -> bool {
        let now = clock::now();
        self.quiet = self
            .quiet
            .filter(|(quiet, until): &(Aim, Moment)| *quiet == aim && now < *until);
        self.quiet.is_some()
    }

    /// The targets were asked just now.
    pub(super) fn leave_alone(&mut self, aim: Aim, settled: bool) {
        let waits = self.due().is_some();
        self.quiet = (settled && !waits).then(|| (aim, clock::now() + NOW_AND_THEN));
    }
}
