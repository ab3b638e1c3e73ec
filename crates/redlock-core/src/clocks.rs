//! Compares the clocks of the masters with the local boot-time clock: computes `not_after` and decides which clock
//! stepped.
//!
//! One reply shows that two clocks moved against each other, but not which of them stepped. If a majority of the
//! masters moves in the same direction at the same time, the local clock stepped: a virtual machine was paused and its
//! clock stood still. The amounts may differ: a reply whose time was read amid the pause hides a part of the step from
//! the next reply.

mod offset;

use std::time::Duration;

use super::{BootInstant, QuorumSize};
use offset::{Offset, Step};

/// One reading of a master's TIME, taken between `sent` and `received`.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Microseconds since 1970, by the master's clock.
    pub master: u64,
    pub sent: BootInstant,
    pub received: BootInstant,
}

/// The result of comparing a reply with the clocks. A vote that shows a step is unknown, whichever clock
/// stepped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Judgement {
    Steady,
    /// This master and the local clock moved against each other; the master counts as unknown from now on.
    MasterStepped,
    /// A step of the local clock that the replies of other masters have already shown.
    Explained,
    /// The local clock stepped. Every time that was read before is invalid: all authority ends, and no
    /// request under way may give authority.
    LocalStepped,
    /// The only master and the local clock moved against each other, and no other master shows which of them stepped. All
    /// authority ends, and the master counts as unknown from now on (P-94).
    EitherStepped,
}

/// The samples and steps of the clocks of all masters of a quorum.
#[derive(Debug)]
pub struct Clocks {
    majority: usize,
    masters: Vec<Offset>,
    /// The last step of the local clock.
    local: Option<Step>,
}

impl Clocks {
    #[must_use]
    pub fn new(size: QuorumSize, longest_lease: Duration) -> Self {
        Self {
            majority: size.majority(),
            masters: (0..size.masters()).map(|_| Offset::new(longest_lease)).collect(),
            local: None,
        }
    }

    /// Records one reading of a master's clock, and returns the judgement.
    pub fn sample(&mut self, master: usize, sample: Sample) -> Judgement {
        let Some(offset) = self.masters.get_mut(master) else {
            return Judgement::Steady;
        };
        if !offset.sample(sample) {
            return Judgement::Steady;
        }
        if self.majority == 1 {
            // The reply may hide a part of the step. While the master is distrusted, no lease relies on its clock.
            offset.forget();
            return Judgement::EitherStepped;
        }
        // A reply that was under way during the step hides it until the next one.
        let explained = self.local.is_some_and(|local| offset.absolve(&local));
        let agreed = self.agreed_step();
        let Some(local) = agreed.or_else(|| self.step_in_parts()) else {
            return if explained {
                Judgement::Explained
            } else {
                Judgement::MasterStepped
            };
        };
        self.local = Some(local);
        for offset in &mut self.masters {
            // After a step in parts, the next reply of each master may show the rest of it.
            if offset.absolve(&local) && agreed.is_some() {
                offset.forget_steps();
            } else {
                offset.forget();
            }
        }
        Judgement::LocalStepped
    }

    /// Returns the step, by its amount and its time, that explains the last steps of a majority.
    fn agreed_step(&self) -> Option<Step> {
        let steps: Vec<&Step> = self.masters.iter().flat_map(Offset::steps).collect();
        // Intervals that share a point share the lower end of one of them.
        let points = steps
            .iter()
            .flat_map(|a| steps.iter().map(|b| (a.least, b.since)));
        points.into_iter().find_map(|(amount, time)| {
            let of = |offset: &Offset| offset.steps().find(|step| step.covers(amount, time)).copied();
            let covering: Vec<Step> = self.masters.iter().filter_map(of).collect();
            let enough = covering.len() >= self.majority;
            let common = |one: Step, other: Step| one.common(&other);
            covering
                .into_iter()
                .map(Some)
                .reduce(|a, b| common(a?, b?))
                .filter(|_| enough)?
        })
    }

    /// Returns the greatest of the last steps, if a majority moved in its direction at one time (P-95).
    fn step_in_parts(&self) -> Option<Step> {
        let last = || self.masters.iter().filter_map(|offset| offset.steps().next());
        let moved = |(direction, time)| last().filter(move |step| step.moved(direction, time));
        let common = last()
            .map(|step| (step.direction(), step.since))
            .find(|common| moved(*common).count() >= self.majority)?;
        moved(common).max_by_key(|step| step.size()).copied()
    }

    /// Forgets a master's clock when another server replaces the master: its samples are not witnesses of a
    /// step (P-92). A step that was seen still counts.
    pub fn forget(&mut self, master: usize) {
        if let Some(offset) = self.masters.get_mut(master) {
            offset.forget();
        }
    }

    /// Returns the time for which this master still counts as unknown after a step (P-94).
    #[must_use]
    pub fn distrusted(&self, master: usize, now: BootInstant) -> Option<Duration> {
        self.masters.get(master)?.distrusted(now)
    }

    /// Returns a lower bound of the master's clock at `now`, plus `deadline`, in microseconds (P-19). `None` before the
    /// first sample.
    #[must_use]
    pub fn not_after(&self, master: usize, now: BootInstant, deadline: Duration) -> Option<u64> {
        self.masters.get(master)?.not_after(now, deadline)
    }

    /// Returns the time since 1970 by this master's clock at `now`; `None` before the first sample.
    #[must_use]
    pub fn unix_time(&self, master: usize, now: BootInstant) -> Option<Duration> {
        self.masters.get(master)?.unix_time(now)
    }

    /// Returns the offset against `unix_now` (the local wall clock at `now`) in seconds, for display.
    #[must_use]
    pub fn seconds(&self, master: usize, now: BootInstant, unix_now: Duration) -> Option<f64> {
        self.masters.get(master)?.seconds(now, unix_now)
    }
}

#[cfg(test)]
mod tests;
