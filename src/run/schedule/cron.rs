//! Cron expressions, as the cron daemons read them. Pure.

use jiff::{
    Span, Timestamp,
    civil::{Date, DateTime},
    tz::{AmbiguousOffset, TimeZone},
};

/// The longest expression that is read: longer than any that lists every value of each field.
const LONGEST: usize = 600;
/// The days that are searched: the 29th of February is on a given day of the week once in 40 years at the latest.
const DAYS: u32 = 41 * 366;

/// The times of a schedule: minutes, hours and days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CronExpression {
    minutes: CronValues,
    hours: CronValues,
    days: CronValues,
    months: CronValues,
    weekdays: CronValues,
}

/// The values of one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CronValues {
    /// Bit n stands for the value n.
    bits: u64,
    /// Whether the field begins with `*`, so that it does not restrict the days on its own.
    star: bool,
}

/// The name, the range and the names of the values of one field.
struct CronField {
    name: &'static str,
    least: u32,
    most: u32,
    names: &'static [&'static str],
}

const MINUTE: CronField = CronField::new("minute", 0, 59, &[]);
const HOUR: CronField = CronField::new("hour", 0, 23, &[]);
const DAY: CronField = CronField::new("day of the month", 1, 31, &[]);
const MONTH: CronField = CronField::new(
    "month",
    1,
    12,
    &[
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ],
);
/// Sunday is 0 and 7.
const WEEKDAY: CronField = CronField::new(
    "day of the week",
    0,
    7,
    &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
);

impl CronExpression {
    /// Parses five fields, or a name such as `@daily`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > LONGEST {
            return Err(format!(
                "the cron expression has {} characters: use at most {LONGEST}",
                text.len()
            ));
        }
        let bad = |why: &str| format!("cron expression {text:?}: {why}");
        let line = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            name if name.starts_with('@') => {
                return Err(bad(
                    "the names are @hourly, @daily, @weekly, @monthly and @yearly; for an interval write 5m",
                ));
            }
            line => line,
        };
        if line.contains("TZ=") {
            return Err(bad("set the time zone by the variable TZ of redlock"));
        }
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            let count = fields.len();
            return Err(bad(&format!(
                "{count} fields: write five, minute, hour, day of the month, month and day of the week, as in \"0 2 * * *\""
            )));
        };
        let mut weekdays = WEEKDAY.parse(weekday).map_err(|why| bad(&why))?;
        weekdays.bits |= weekdays.bits >> 7 & 1;
        let times = Self {
            minutes: MINUTE.parse(minute).map_err(|why| bad(&why))?,
            hours: HOUR.parse(hour).map_err(|why| bad(&why))?,
            days: DAY.parse(day).map_err(|why| bad(&why))?,
            months: MONTH.parse(month).map_err(|why| bad(&why))?,
            weekdays,
        };
        let any = Timestamp::from_second(4_000_000_000).ok();
        if any.and_then(|any| times.latest(any, &TimeZone::UTC)).is_none() {
            return Err(bad("no day has this date: check day of the month and month"));
        }
        Ok(times)
    }

    /// Returns the latest time of the schedule that is not after `until`, in seconds since 1970.
    pub(super) fn latest(&self, until: Timestamp, zone: &TimeZone) -> Option<u64> {
        let mut date = zone.to_datetime(until).date();
        for _ in 0..DAYS {
            if self.is_on(date)
                && let Some(found) = self.latest_on(date, until, zone)
            {
                return u64::try_from(found.as_second()).ok().filter(|second| *second > 0);
            }
            date = date.yesterday().ok()?;
        }
        None
    }

    /// Reports whether the schedule has times on this day. Where both days are restricted, one of them is enough.
    fn is_on(&self, date: Date) -> bool {
        let day = self.days.has(date.day());
        let weekday = self.weekdays.has(date.weekday().to_sunday_zero_offset());
        let both = self.days.star || self.weekdays.star;
        self.months.has(date.month()) && if both { day && weekday } else { day || weekday }
    }

    fn latest_on(&self, date: Date, until: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let hours = (0..24).filter(|hour| self.hours.has(*hour));
        let times = hours.flat_map(|hour| (0..60).map(move |minute| (hour, minute)));
        let times = times.filter(|(_, minute)| self.minutes.has(*minute));
        // As the cron daemons do it: where the clocks are set back, a job that names its hour and minute runs once.
        let again = self.hours.star || self.minutes.star;
        let moments = times.flat_map(|(hour, minute)| moments(date.at(hour, minute, 0, 0), zone, again));
        moments.filter(|moment| *moment <= until).max()
    }
}

/// Returns the moments at which the clocks of the zone show this time. Where they are set back, these are two, of which the
/// second counts only with `again`. Where they are set forward over it, it is the moment of that change, at which cron daemons start the runs that they missed.
fn moments(time: DateTime, zone: &TimeZone, again: bool) -> impl Iterator<Item = Timestamp> {
    let (first, second) = match zone.to_ambiguous_timestamp(time).offset() {
        AmbiguousOffset::Unambiguous { offset } => (offset.to_timestamp(time).ok(), None),
        AmbiguousOffset::Fold { before, after } => {
            (before.to_timestamp(time).ok(), after.to_timestamp(time).ok())
        }
        AmbiguousOffset::Gap { before, .. } => {
            let late = before.to_timestamp(time).ok();
            let after = late.and_then(|late| late.checked_add(Span::new().seconds(1)).ok());
            let change =
                after.and_then(|after| zone.preceding(after).next().map(|change| change.timestamp()));
            (change.or(late), None)
        }
    };
    first.into_iter().chain(second.filter(|_| again))
}

impl CronValues {
    fn has(self, value: i8) -> bool {
        u32::try_from(value).is_ok_and(|value| self.bits >> value & 1 == 1)
    }
}

impl CronField {
    const fn new(name: &'static str, least: u32, most: u32, names: &'static [&'static str]) -> Self {
        Self {
            name,
            least,
            most,
            names,
        }
    }

    /// Parses a list of values, ranges and steps.
    fn parse(&self, text: &str) -> Result<CronValues, String> {
        let mut bits = 0;
        for part in text.split(',') {
            bits |= self.part(part)?;
        }
        let star = text.starts_with('*');
        Ok(CronValues { bits, star })
    }

    fn part(&self, part: &str) -> Result<u64, String> {
        let bad = || {
            let Self {
                name, least, most, ..
            } = self;
            format!("{name} {part:?}: write *, {least} to {most}, a range such as {least}-{most}, or */2")
        };
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (
                range,
                Some(number(step).filter(|step| *step > 0).ok_or_else(bad)?),
            ),
            None => (part, None),
        };
        let (from, to) = match (range, range.split_once('-')) {
            ("*", _) => (self.least, self.most),
            (_, Some((from, to))) => (self.value(from).ok_or_else(bad)?, self.value(to).ok_or_else(bad)?),
            // Some cron daemons read `5/10` as 5 alone, others as `5-59/10`.
            (_, None) if step.is_some() => return Err(bad()),
            (value, None) => {
                let value = self.value(value).ok_or_else(bad)?;
                (value, value)
            }
        };
        if from > to {
            return Err(bad());
        }
        let step = usize::try_from(step.unwrap_or(1)).map_err(|_| bad())?;
        Ok((from..=to).step_by(step).fold(0, |bits, value| bits | 1 << value))
    }

    /// Parses one value: a number, or a name such as `jan` or `MON`.
    fn value(&self, text: &str) -> Option<u32> {
        let named = self.names.iter().position(|name| text.eq_ignore_ascii_case(name));
        let value = match named {
            Some(index) => self.least + u32::try_from(index).ok()?,
            None => number(text)?,
        };
        (self.least..=self.most).contains(&value).then_some(value)
    }
}

/// Parses a number of at most two digits.
fn number(text: &str) -> Option<u32> {
    let digits = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}
