//! Tracks the clock of one master.

use std::{collections::VecDeque, time::Duration};

use super::{BootInstant, Sample};
use crate::timing;

/// The least movement beyond the rates that counts as a step. The drift of the shortest possible lease (2 s) is 22 ms,
/// so a smaller step fits into the drift of every lease.
const STEP: Duration = Duration::from_millis(22);

/// The rates of clocks differ by less than one part in this number (assumption A3).
const RATE: u32 = 100;

/// A clock that is slewed moves little between two replies. Each reply is also compared with those of the last second.
const LAST_SECOND: Duration = Duration::from_secs(1);

/// A clock whose rate is a little beyond [`RATE`] moves little in a second, too. A reply that shows no step since the last
/// second is also compared with the oldest one of each of these times (P-91): a rate that is 0.04 % beyond shows in a
/// minute.
const LONGER: [Duration; 3] = [
    Duration::from_secs(4),
    Duration::from_secs(16),
    Duration::from_secs(60),
];

/// Of the replies in each such part of a time, the one with the shortest round trip is kept.
const PARTS: u32 = 4;

/// The maximum number of explanations of one step.
const MOST_STEPS: usize = 12;

fn micros(duration: Duration) -> i128 {
    i128::try_from(duration.as_micros()).unwrap_or(i128::MAX)
}

impl Sample {
    fn at(moment: BootInstant) -> i128 {
        i128::from(moment.as_nanos() / 1_000)
    }

    fn round_trip(&self) -> Duration {
        self.received.since(self.sent)
    }

    /// Returns bounds of the offset (master minus own clock) in microseconds.
    fn bounds(&self) -> (i128, i128) {
        let master = i128::from(self.master);
        (master - Self::at(self.received), master - Self::at(self.sent))
    }

    /// Returns the least time that the master's clock can show at `now`, in microseconds.
    fn least(&self, now: BootInstant) -> u64 {
        let passed = now.since(self.received);
        let passed = u64::try_from((passed - passed / RATE).as_micros()).unwrap_or(u64::MAX / 2);
        self.master.saturating_add(passed)
    }

    /// Returns the step since `before`, if the clocks moved by more than both round trips and the rates explain (P-91).
    fn step_since(&self, before: &Self, distrusted_until: BootInstant) -> Option<Step> {
        let ((low, high), (low_before, high_before)) = (self.bounds(), before.bounds());
        let (least, most) = (low - high_before, high - low_before);
        let rates = micros(self.received.since(before.sent) / RATE);
        let allowed = micros(STEP) + rates;
        (least > allowed || most < -allowed).then(|| Step {
            // Two masters are not asked at the same instant, and a clock may be slewed.
            least: least - allowed,
            most: most + allowed,
            since: before.sent,
            until: self.received,
            distrusted_until,
        })
    }
}

/// The direction in which the master's clock moved, relative to the local one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Ahead,
    Back,
}

/// A movement of the master's clock against the local one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// The least number of microseconds by which the master's clock moved ahead.
    pub(super) least: i128,
    most: i128,
    /// The earliest time of the step, by the local clock.
    pub(super) since: BootInstant,
    until: BootInstant,
    /// The end of the distrust that applied to the master before the step.
    distrusted_until: BootInstant,
}

impl Step {
    /// Merges two steps into one that began with this one.
    fn with(&self, next: &Self) -> Self {
        Self {
            least: self.least + next.least,
            most: self.most + next.most,
            since: self.since,
            until: next.until,
            distrusted_until: self.distrusted_until,
        }
    }

    /// Returns a step that explains both, if such a step exists.
    pub(super) fn common(&self, other: &Self) -> Option<Self> {
        let common = Self {
            least: self.least.max(other.least),
            most: self.most.min(other.most),
            since: self.since.max(other.since),
            until: self.until.min(other.until),
            distrusted_until: self.distrusted_until,
        };
        (common.least <= common.most && common.since <= common.until).then_some(common)
    }

    pub(super) const fn direction(&self) -> Direction {
        if self.least > 0 {
            Direction::Ahead
        } else {
            Direction::Back
        }
    }

    /// Returns the least amount by which the clocks moved.
    pub(super) fn size(&self) -> i128 {
        self.least.abs().min(self.most.abs())
    }

    pub(super) fn moved(&self, direction: Direction, time: BootInstant) -> bool {
        self.direction() == direction && self.is_at(time)
    }

    pub(super) fn covers(&self, amount: i128, time: BootInstant) -> bool {
        (self.least..=self.most).contains(&amount) && self.is_at(time)
    }

    fn is_at(&self, time: BootInstant) -> bool {
        (self.since..=self.until).contains(&time)
    }
}

/// The samples of about the last `length`, oldest first, each with the beginning of its part of that time.
#[derive(Debug)]
struct Witnesses {
    length: Duration,
    kept: VecDeque<(BootInstant, Sample)>,
}

impl Witnesses {
    const fn of_last(length: Duration) -> Self {
        Self {
            length,
            kept: VecDeque::new(),
        }
    }

    fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.kept.iter().map(|(_, kept)| kept)
    }

    fn keep(&mut self, sample: Sample) {
        let now = sample.received;
        match self.kept.back_mut() {
            // A reply with a long round trip is imprecise, and must not replace a better one.
            Some((began, kept)) if now.since(*began) < self.length / PARTS => {
                if sample.round_trip() <= kept.round_trip() {
                    *kept = sample;
                }
            }
            Some(_) | None => self.kept.push_back((now, sample)),
        }
        while self
            .kept
            .get(1)
            .is_some_and(|(_, second)| now.since(second.received) >= self.length)
        {
            self.kept.pop_front();
        }
    }
}

/// The samples and steps of one master's clock.
#[derive(Debug)]
pub(super) struct Offset {
    last: Option<Sample>,
    /// The sample that bounds the master's clock best. A reply that is read late gives a time earlier than
    /// that of the clock.
    best: Option<Sample>,
    last_second: Witnesses,
    longer: [Witnesses; LONGER.len()],
    /// The possible explanations of the last step: one for each earlier sample that witnesses it, the latest sample
    /// first. A master may answer while the local clock stands still, so each is also combined with the previous step
    /// that it may continue.
    steps: Vec<Step>,
    distrusted_until: BootInstant,
    /// 1.02 × the longest lease.
    distrust: Duration,
}

impl Offset {
    pub(super) fn new(longest_lease: Duration) -> Self {
        Self {
            last: None,
            best: None,
            last_second: Witnesses::of_last(LAST_SECOND),
            longer: LONGER.map(Witnesses::of_last),
            steps: Vec::new(),
            distrusted_until: BootInstant::default(),
            distrust: timing::outlived(longest_lease),
        }
    }

    /// Records a sample and reports whether it shows a step.
    ///
    /// A sample older than the distrust is not a witness: every lease that an earlier step could have harmed
    /// has ended (P-92).
    pub(super) fn sample(&mut self, sample: Sample) -> bool {
        let counts = |before: &&Sample| sample.received.since(before.received) <= self.distrust;
        let step_since = |before: &Sample| sample.step_since(before, self.distrusted_until);
        let recent = self.last.iter().chain(self.last_second.samples());
        let mut steps: Vec<Step> = recent.filter(counts).filter_map(step_since).collect();
        if steps.is_empty() {
            // The time of such a step is known less precisely.
            let oldest = self
                .longer
                .iter()
                .filter_map(|longer| longer.samples().find(counts));
            steps.extend(oldest.filter_map(step_since));
        }
        let last = steps.first().copied();
        if let Some(last) = last {
            let parts = self.steps.iter().filter(|before| last.since <= before.until);
            steps.extend(parts.map(|before| before.with(&last)));
            steps.truncate(MOST_STEPS);
            self.forget();
            self.steps = steps;
            self.distrusted_until = sample.received + self.distrust;
        }
        self.keep(sample);
        last.is_some()
    }

    fn keep(&mut self, sample: Sample) {
        let now = sample.received;
        self.last = Some(sample);
        if self.best.is_none_or(|best| sample.master >= best.least(now)) {
            self.best = Some(sample);
        }
        self.last_second.keep(sample);
        for longer in &mut self.longer {
            longer.keep(sample);
        }
    }

    pub(super) fn steps(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter()
    }

    /// Reports whether this step of the local clock explains the last step. If so, the master is trusted as
    /// before (P-95). The step remains a witness, since there may have been another one in the same time.
    pub(super) fn absolve(&mut self, local: &Step) -> bool {
        let explained = self.steps().find(|step| step.common(local).is_some()).copied();
        let Some(step) = explained else { return false };
        self.distrusted_until = step.distrusted_until;
        true
    }

    /// Forgets the steps, and keeps the samples that were taken since.
    pub(super) fn forget_steps(&mut self) {
        self.steps.clear();
    }

    pub(super) fn forget(&mut self) {
        (self.last, self.best) = (None, None);
        self.last_second.kept.clear();
        for longer in &mut self.longer {
            longer.kept.clear();
        }
        self.steps.clear();
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        let longer = self.longer.iter().map(|longer| longer.kept.len());
        longer
            .chain([self.last_second.kept.len()])
            .max()
            .unwrap_or_default()
    }

    pub(super) fn distrusted(&self, now: BootInstant) -> Option<Duration> {
        let left = self.distrusted_until.left(now);
        (!left.is_zero()).then_some(left)
    }

    pub(super) fn not_after(&self, now: BootInstant, deadline: Duration) -> Option<u64> {
        let deadline = u64::try_from(deadline.as_micros()).unwrap_or(u64::MAX / 2);
        Some(self.best?.least(now).saturating_add(deadline))
    }

    /// Returns the time since 1970 by the master's clock at `now`, within half of the round trip.
    pub(super) fn unix_time(&self, now: BootInstant) -> Option<Duration> {
        let last = self.last?;
        let middle = last.sent + last.received.since(last.sent) / 2;
        Some(Duration::from_micros(last.master) + now.since(middle))
    }

    pub(super) fn seconds(&self, now: BootInstant, unix_now: Duration) -> Option<f64> {
        Some(self.unix_time(now)?.as_secs_f64() - unix_now.as_secs_f64())
    }
}
