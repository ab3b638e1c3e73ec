//! Decides for how long targets in the desired state are not read again: a read at every renewal of the lease
//! or at every poll for the holder would cause too much load. Pure.

use super::POLL_AT_REST;
use crate::lease::{BootInstant, FencingToken};

/// The state that the targets were brought to, or read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    Run(FencingToken),
    Stop,
    Observe,
}

/// The knowledge about the targets since the last change.
#[derive(Debug, Default)]
pub(super) enum Settled {
    /// The state of every target is unknown.
    #[default]
    Unknown,
    /// The targets are brought to this aim one by one, as the rate limit allows. Those that have reached it
    /// are left alone until this time: if every step read all of them again, many targets would never all be
    /// done in one step.
    Pass(Aim, BootInstant),
    /// All targets are left alone until this time.
    Rest(Aim, BootInstant),
}

impl Settled {
    /// Reports whether nothing has changed since all targets were in the desired state for this aim. Otherwise the
    /// targets are about to be read, and until then their state is unknown for every other aim.
    pub(super) fn holds(&mut self, aim: Aim, now: BootInstant) -> bool {
        let rests = matches!(*self, Self::Rest(settled, until) if settled == aim && now < until);
        if !rests && !self.passes(aim, now) {
            *self = Self::Unknown;
        }
        rests
    }

    fn passes(&self, aim: Aim, now: BootInstant) -> bool {
        matches!(*self, Self::Pass(passed, until) if passed == aim && now < until)
    }

    /// Begins a pass, unless one for this aim is under way. Returns whether a new pass begins: no target has
    /// reached the aim.
    pub(super) fn begin(&mut self, aim: Aim, now: BootInstant) -> bool {
        if self.passes(aim, now) {
            return false;
        }
        *self = Self::Pass(aim, now + POLL_AT_REST);
        true
    }

    /// Records the result of a step of all targets at this time.
    pub(super) fn set(&mut self, aim: Aim, settled: bool, now: BootInstant) {
        if settled {
            *self = Self::Rest(aim, now + POLL_AT_REST);
        }
    }

    /// Records a change.
    pub(super) fn clear(&mut self) {
        *self = Self::Unknown;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: BootInstant = BootInstant::from_nanos(1_000);
    const RUN: Aim = Aim::Run(FencingToken(1));

    #[test]
    fn pass_continues_until_a_change_another_aim_or_the_next_poll() {
        let mut settled = Settled::default();
        assert!(settled.begin(RUN, NOW));
        settled.set(RUN, false, NOW);
        assert!(!settled.holds(RUN, NOW) && !settled.begin(RUN, NOW));
        assert!(settled.begin(RUN, NOW + POLL_AT_REST), "the next poll");
        settled.clear();
        assert!(settled.begin(RUN, NOW), "a change");
        assert!(
            settled.begin(Aim::Stop, NOW) && settled.begin(RUN, NOW),
            "another aim"
        );
        settled.set(RUN, true, NOW);
        assert!(!settled.holds(RUN, NOW + POLL_AT_REST) && settled.begin(RUN, NOW + POLL_AT_REST));
    }

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
