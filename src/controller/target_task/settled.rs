//! For how long targets that are as they should be are not read again: not at every renewal of the lease, nor at every
//! poll for the holder. Pure.

use super::POLL_AT_REST;
use crate::lease::{BootInstant, FencingToken};

/// The state that the targets were brought to, or read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    Run(FencingToken),
    Stop,
    Observe,
}

/// Set while all targets are as they should be for one aim and nothing has changed since.
#[derive(Debug, Default)]
pub(super) struct Settled(Option<(Aim, BootInstant)>);

impl Settled {
    /// Whether nothing changed since all targets were as they should be for this aim. Otherwise the targets are about to
    /// be read: until that has ended, nothing is known of them, for this nor for any other aim.
    pub(super) fn holds(&mut self, aim: Aim, now: BootInstant) -> bool {
        self.0
            .take_if(|(settled, until)| *settled != aim || now >= *until);
        self.0.is_some()
    }

    /// The targets were read at this time.
    pub(super) fn set(&mut self, aim: Aim, settled: bool, now: BootInstant) {
        self.0 = settled.then(|| (aim, now + POLL_AT_REST));
    }

    /// Something changed.
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
