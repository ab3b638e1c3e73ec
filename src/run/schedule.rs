//! The slots of a schedule: the times of which each is one run, whatever hosts it is started on. Pure.

mod cron;
mod zone;

use jiff::{Timestamp, tz::TimeZone};

use crate::operator::duration;

pub(crate) use cron::CronExpression;
pub(crate) use zone::{ZoneError, local_zone};

/// The most seconds by which a run counts for a slot that is still ahead: the clock of the host may be late, or may have
/// been set back after a timer has started the run. Half of the time between two slots where that is less.
const EARLY: u64 = 60;
/// The most seconds by which a slot is ahead of a right clock when its run starts: the clock of the host may be early by a
/// minute, too. Masters that lost their memory refuse slots up to this time after the loss.
pub(super) const MOST_AHEAD: u64 = EARLY + 60;

/// The times of the slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SlotSchedule {
    /// Every multiple of this number of seconds since 1970.
    Every(u64),
    /// The times of a cron expression, by the clocks of a time zone.
    Cron(CronExpression),
}

impl SlotSchedule {
    /// Parses a duration such as `5m` or `24h`, or a cron expression such as `0 2 * * *`.
    ///
    /// # Errors
    /// Returns the reason why the text is neither, and an example.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.starts_with('@') || text.contains(char::is_whitespace) {
            return CronExpression::parse(text).map(Self::Cron);
        }
        let period = duration::parse(text).ok();
        match period.filter(|period| period.subsec_nanos() == 0) {
            Some(period) => Ok(Self::Every(period.as_secs())),
            None => Err(format!(
                "{text:?} is neither a cron expression nor a duration: write \"0 2 * * *\", @daily, 5m, 1h30m or 24h (1s \
                 to 8784h, whole seconds)"
            )),
        }
    }

    /// Returns the slot of a run that starts now, in seconds since 1970: the latest time of the schedule, or the next one
    /// if that is nearer and at most [`EARLY`] seconds ahead. `None` if the schedule has no time before now.
    pub(crate) fn slot_at(&self, now: u64, zone: &TimeZone) -> Option<u64> {
        match self {
            Self::Every(period) => {
                let early = EARLY.min(period / 2);
                let slot = now.checked_add(early)? / period * period;
                (slot > 0).then_some(slot)
            }
            Self::Cron(times) => {
                let latest = |until: u64| {
                    let until = Timestamp::from_second(i64::try_from(until).ok()?).ok()?;
                    times.latest(until, zone)
                };
                let (last, next) = (latest(now)?, latest(now.checked_add(EARLY)?)?);
                let is_nearer = next > now && next - now <= (next - last) / 2;
                Some(if is_nearer { next } else { last })
            }
        }
    }
}

#[cfg(test)]
mod tests;
