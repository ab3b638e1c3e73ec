//! Decides how long targets in the desired state are not read again, since reads at every renewal of the lease or at
//! every poll for the holder would be too many. Pure.

use super::POLL_AT_REST;
use crate::lease::{BootInstant, FencingToken};

/// The state that the targets were brought to, or read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    Run(FencingToken),
    Stop,
    Observe,
}

/// Set while all targets are in the desired state for one aim and nothing has changed since.
#[derive(Debug, Default)]
pub(super) struct Settled(Option<(Aim, BootInstant)>);

impl Settled {
    /// Reports whether nothing has changed since all targets were in the desired state for this aim. Otherwise the
    /// targets are about to be read, and until then their state is unknown for every aim.
    pub(super) fn holds(&mut self, aim: Aim, now: BootInstant) -> bool {
        self.0
            .take_if(|(settled, until)| *settled != aim || now >= *until);
        self.0.is_some()
    }

    /// Records the result of a read of the targets at this time.
    pub(super) fn set(&mut self, aim: Aim, settled: bool, now: BootInstant) {
        self.0 = settled.then(|| (aim, now + POLL_AT_REST));
    }

    /// Records a change.
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: BootInstant = BootInstant::from_nanos(1_000);
    const RUN: Aim = Aim::Run(FencingToken(1));

    #[test]
    fn settled_targets_are_left_alone_until_the_next_poll_or_change() {
        let mut settled = Settled::default();
        assert!(!settled.holds(RUN, NOW));
        settled.set(RUN, true, NOW);
        assert!(settled.holds(RUN, NOW) && settled.holds(RUN, NOW));
        assert!(!settled.holds(RUN, NOW + POLL_AT_REST));
        assert!(
            !settled.holds(RUN, NOW),
            "a poll that was cut short proves nothing"
        );
        settled.set(RUN, true, NOW);
        settled.clear();
        assert!(!settled.holds(RUN, NOW));
        settled.set(RUN, false, NOW);
        assert!(!settled.holds(RUN, NOW), "some are not settled");
    }

    #[test]
    fn another_aim_or_lease_reads_the_targets_again() {
        for other in [Aim::Stop, Aim::Observe, Aim::Run(FencingToken(2))] {
            let mut settled = Settled::default();
            settled.set(RUN, true, NOW);
            assert!(!settled.holds(other, NOW), "{other:?}");
            assert!(!settled.holds(RUN, NOW), "{other:?} may have changed them");
        }
    }
}
