//! Detects that the local clock stood still: a virtual machine was paused, and its boot-time clock did not
//! count the pause.

use crate::{QuorumSize, Sample, timing, vote::MAX_MASTERS};

/// The clocks of the masters of one quorum, as the rounds of an agent show them.
///
/// The reply of one master may carry a time from before the pause while that of another carries one from after it, so the
/// masters that ran ahead in the last two rounds are counted together.
#[derive(Clone, Debug)]
pub struct ClockWatch {
    majority: usize,
    round: u64,
    /// The sample of each master that bounds its clock best.
    anchors: [Option<Sample>; MAX_MASTERS],
    /// The last round in which each master ran ahead.
    ahead: [Option<u64>; MAX_MASTERS],
}

impl ClockWatch {
    #[must_use]
    pub const fn new(size: QuorumSize) -> Self {
        Self {
            majority: size.majority(),
            round: 0,
            anchors: [None; MAX_MASTERS],
            ahead: [None; MAX_MASTERS],
        }
    }

    /// Records the samples of one round. Reports whether the clocks of M masters ran ahead of the local one
    /// by more than the round trips and the drift.
    pub fn on_round(&mut self, samples: impl IntoIterator<Item = (usize, Sample)>) -> bool {
        self.round += 1;
        for (master, sample) in samples {
            let Some(anchor) = self.anchors.get_mut(master) else {
                continue;
            };
            if anchor.is_some_and(|before| runs_ahead(&before, &sample)) {
                self.ahead[master] = Some(self.round);
                *anchor = Some(sample);
            } else if anchor.is_none_or(|before| bounds_better(&before, &sample)) {
                *anchor = Some(sample);
            }
        }
        let recent = |round: &Option<u64>| round.is_some_and(|round| round + 1 >= self.round);
        let stood_still = self.ahead.iter().filter(|round| recent(round)).count() >= self.majority;
        if stood_still {
            self.ahead = [None; MAX_MASTERS];
        }
        stood_still
    }

    /// Forgets the clock that was sampled under this name, because another server answers under it.
    pub fn forget(&mut self, master: usize) {
        if let Some(anchor) = self.anchors.get_mut(master) {
            *anchor = None;
            self.ahead[master] = None;
        }
    }
}

/// Reports whether the master's clock moved by more than the longest time that the local clock can have
/// counted.
fn runs_ahead(before: &Sample, sample: &Sample) -> bool {
    let moved = u128::from(sample.master.saturating_sub(before.master));
    let local = sample.received.since(before.sent);
    moved > (local + timing::drift(local)).as_micros()
}

/// Reports whether the new sample gives a lower upper bound of the master's clock, corrected for the rates.
fn bounds_better(before: &Sample, sample: &Sample) -> bool {
    let passed = sample.sent.since(before.sent);
    let bound = u128::from(before.master) + (passed + timing::drift(passed)).as_micros();
    u128::from(sample.master) <= bound
}
