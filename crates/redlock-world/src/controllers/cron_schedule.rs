//! The schedule of a CronJob: minute, hour, day of the month, month, day of the week, in UTC.

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

/// A schedule, with one bit for each value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CronSchedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether the day of the month or the day of the week is `*`: then both must match, else one of them.
    any_day: bool,
}

const MINUTE: i64 = 60;
/// The longest search for a scheduled time, in minutes: five years, with a leap day.
const SEARCHED: i64 = 5 * 366 * 24 * 60;

impl CronSchedule {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = match text.trim() {
            "@hourly" => "0 * * * *",
            "@daily" | "@midnight" => "0 0 * * *",
            "@weekly" => "0 0 * * 0",
            "@monthly" => "0 0 1 * *",
            "@yearly" | "@annually" => "0 0 1 1 *",
            text => text,
        };
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            return None;
        };
        let all = |field: &str| field.starts_with('*') || field == "?";
        let sunday = field(weekdays, 0, 7)?;
        Some(Self {
            minutes: field(minutes, 0, 59)?,
            hours: field(hours, 0, 23)?,
            days: field(days, 1, 31)?,
            months: field(months, 1, 12)?,
            // 7 is Sunday as well.
            weekdays: (sunday | (sunday >> 7)) & 0x7f,
            any_day: all(days) || all(weekdays),
        })
    }

    /// Returns the latest scheduled time in `(after, until]`.
    pub(super) fn latest(&self, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
        let mut minute = until.as_second().div_euclid(MINUTE);
        let earliest = after.as_second().div_euclid(MINUTE).max(minute - SEARCHED);
        while minute > earliest {
            let time = at_minute(minute)?;
            if time <= after {
                return None;
            }
            match self.skipped(time) {
                Skipped::Nothing => return Some(time),
                Skipped::Minute => minute -= 1,
                Skipped::Day => minute -= minute.rem_euclid(24 * 60) + 1,
            }
        }
        None
    }

    /// Returns the first scheduled time after `time`.
    pub(super) fn next(&self, time: Timestamp) -> Option<Timestamp> {
        let mut minute = time.as_second().div_euclid(MINUTE) + 1;
        let end = minute + SEARCHED;
        while minute < end {
            let time = at_minute(minute)?;
            match self.skipped(time) {
                Skipped::Nothing => return Some(time),
                Skipped::Minute => minute += 1,
                Skipped::Day => minute += 24 * 60 - minute.rem_euclid(24 * 60),
            }
        }
        None
    }

    fn skipped(&self, time: Timestamp) -> Skipped {
        let at: DateTime = TimeZone::UTC.to_datetime(time);
        let has = |bits: u64, value: i8| bits >> u32::from(value.unsigned_abs()) & 1 == 1;
        let day = has(self.days, at.day());
        let weekday = has(self.weekdays, at.weekday().to_sunday_zero_offset());
        let is_day = if self.any_day {
            day && weekday
        } else {
            day || weekday
        };
        if !is_day || !has(self.months, at.month()) {
            return Skipped::Day;
        }
        if has(self.hours, at.hour()) && has(self.minutes, at.minute()) {
            return Skipped::Nothing;
        }
        Skipped::Minute
    }
}

/// The part of the time that the schedule leaves out.
enum Skipped {
    Nothing,
    Minute,
    Day,
}

fn at_minute(minute: i64) -> Option<Timestamp> {
    Timestamp::from_second(minute * MINUTE).ok()
}

/// Parses one field, such as `*`, `*/5`, `1,2`, `1-5` or `10-30/10`, into bits.
fn field(text: &str, first: u32, last: u32) -> Option<u64> {
    let mut bits = 0;
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step.parse::<usize>().ok().filter(|step| *step > 0)?)),
            None => (part, None),
        };
        let number = |text: &str| text.parse::<u32>().ok();
        let (from, to) = match range.split_once('-') {
            _ if range == "*" || range == "?" => (first, last),
            Some((from, to)) => (number(from)?, number(to)?),
            None if step.is_some() => (number(range)?, last),
            None => (number(range)?, number(range)?),
        };
        if from < first || to > last || from > to {
            return None;
        }
        for value in (from..=to).step_by(step.unwrap_or(1)) {
            bits |= 1 << value;
        }
    }
    Some(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_next_and_the_latest_time_are_found() {
        for (schedule, next, latest) in [
            ("* * * * *", "2026-03-01T10:08:00Z", Some("2026-03-01T10:07:00Z")),
            (
                "*/5 * * * *",
                "2026-03-01T10:10:00Z",
                Some("2026-03-01T10:05:00Z"),
            ),
            (
                "0 9-17/4 * * *",
                "2026-03-01T13:00:00Z",
                Some("2026-03-01T09:00:00Z"),
            ),
            ("30 2 * * 1", "2026-03-02T02:30:00Z", Some("2026-02-23T02:30:00Z")),
            ("0 0 29 2 *", "2028-02-29T00:00:00Z", None),
            ("0 0 13 * 5", "2026-03-06T00:00:00Z", Some("2026-02-27T00:00:00Z")),
            (
                "15,45 10 * * 0,7",
                "2026-03-01T10:15:00Z",
                Some("2026-02-22T10:45:00Z"),
            ),
            ("@hourly", "2026-03-01T11:00:00Z", Some("2026-03-01T10:00:00Z")),
        ] {
            let parsed = CronSchedule::parse(schedule).unwrap();
            let now = time("2026-03-01T10:07:30.5Z");
            assert_eq!(parsed.next(now), Some(time(next)), "{schedule}");
            let after = time("2026-02-20T00:00:00Z");
            assert_eq!(parsed.latest(after, now), latest.map(time), "{schedule}");
        }
    }

    #[test]
    fn a_time_is_found_once() {
        let schedule = CronSchedule::parse("*/5 * * * *").unwrap();
        let slot = time("2026-03-01T10:05:00Z");
        assert_eq!(schedule.latest(slot, time("2026-03-01T10:09:59Z")), None);
        assert_eq!(schedule.latest(time("2026-03-01T10:04:59Z"), slot), Some(slot));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "* * * *",
            "60 * * * *",
            "*/0 * * * *",
            "5-1 * * * *",
            "@every 5m",
            "x * * * *",
        ] {
            assert_eq!(CronSchedule::parse(text), None, "{text}");
        }
    }
}
