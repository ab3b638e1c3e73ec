//! Judges the counters of the masters by each other.

use super::Engine;
use crate::{
    Admission, BootInstant,
    planted::Plant,
    plausible::{CounterBounds, RegisterLimits, ShownCounter},
};

impl Engine {
    /// Records the counter that a master showed. A counter above the limits, and one in a poll, has the counters of all
    /// masters judged again.
    pub(super) fn note_counter(
        &mut self,
        master: usize,
        counter: u64,
        admission: Admission,
        now: BootInstant,
    ) {
        self.masters[master].counter = Some(counter);
        let plausible = self
            .register_limits()
            .is_some_and(|limits| counter <= limits.token);
        if plausible && admission == Admission::Voting {
            self.known.saw(counter);
            return;
        }
        self.judge_counters(now);
    }

    pub(super) fn judge_counters(&mut self, now: BootInstant) {
        let shown = |master: usize| {
            let of = &self.masters[master];
            let sealed = of
                .listed_facts()
                .is_some_and(|facts| self.identity.is_sealed_here(facts));
            Some(ShownCounter {
                counter: of.counter.filter(|_| sealed)?,
                clock: self.clocks.unix_time(master, now)?,
            })
        };
        let shown: Vec<ShownCounter> = (0..self.masters.len()).filter_map(shown).collect();
        let own_clock = self.wall_clock.map(|(unix, read)| unix + now.since(read));
        self.bounds = CounterBounds::of(&shown, self.size.majority(), own_clock);
        let Some(RegisterLimits { token, .. }) = self.register_limits() else {
            self.masters.iter_mut().for_each(|of| of.counter_limit = None);
            return;
        };
        if self.plant.is(Plant::CountersBelieved) {
            return;
        }
        for of in &mut self.masters {
            of.counter_limit = of.counter.filter(|counter| *counter > token).map(|_| token);
        }
        self.known.saw(self.floor());
    }

    /// Returns the largest plausible counter of the masters, so that their counters stay together. The floor is for speed:
    /// without a majority it is zero (P-33).
    pub(super) fn floor(&self) -> u64 {
        let plausible = self.masters.iter().filter(|of| of.counter_limit.is_none());
        let largest = plausible.filter_map(|of| of.counter).max();
        self.bounds
            .zip(largest)
            .map_or(0, |(bounds, largest)| largest.min(bounds.floor))
    }

    /// Returns the bounds of the registers of one master; `None` while fewer than a majority are known.
    #[must_use]
    pub fn register_limits(&self) -> Option<RegisterLimits> {
        self.bounds.map(|bounds| bounds.registers)
    }
}
