use super::*;

/// Central European Time, without files of the host.
const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";
/// A zone whose clocks are those of UTC in winter.
const LONDON: &str = "GMT0BST,M3.5.0/1,M10.5.0";

fn zone(rule: &str) -> TimeZone {
    TimeZone::posix(rule).unwrap()
}

fn second(text: &str) -> u64 {
    let time: Timestamp = text.parse().unwrap();
    u64::try_from(time.as_second()).unwrap()
}

/// Returns the slot of a run, as a time.
fn slot(schedule: &str, now: &str, zone: &TimeZone) -> String {
    let slot = SlotSchedule::parse(schedule).unwrap().slot_at(second(now), zone);
    Timestamp::from_second(slot.unwrap().try_into().unwrap())
        .unwrap()
        .to_string()
}

#[test]
fn slot_of_a_duration_is_the_last_multiple() {
    let utc = TimeZone::UTC;
    for (period, now, wanted) in [
        ("5m", "2026-11-30T10:07:00Z", "2026-11-30T10:05:00Z"),
        ("24h", "2026-11-30T23:58:59Z", "2026-11-30T00:00:00Z"),
        ("1h30m", "2026-11-30T10:07:00Z", "2026-11-30T09:00:00Z"),
        // The clock is late by at most a minute.
        ("24h", "2026-11-30T23:59:00Z", "2026-12-01T00:00:00Z"),
        ("60s", "2026-11-30T10:07:29Z", "2026-11-30T10:07:00Z"),
        ("1m", "2026-11-30T10:07:30Z", "2026-11-30T10:08:00Z"),
        ("1s", "2026-11-30T10:07:30Z", "2026-11-30T10:07:30Z"),
    ] {
        assert_eq!(slot(period, now, &utc), wanted, "{period} at {now}");
    }
}

#[test]
fn slot_of_an_expression_is_the_last_or_a_near_time() {
    let utc = TimeZone::UTC;
    for (expression, now, wanted) in [
        ("0 2 * * *", "2026-11-30T02:00:00Z", "2026-11-30T02:00:00Z"),
        ("0 2 * * *", "2026-11-30T17:00:00Z", "2026-11-30T02:00:00Z"),
        ("0 2 * * *", "2026-11-30T01:59:00Z", "2026-11-30T02:00:00Z"),
        ("0 2 * * *", "2026-11-30T01:58:59Z", "2026-11-29T02:00:00Z"),
        ("* * * * *", "2026-11-30T10:07:29Z", "2026-11-30T10:07:00Z"),
        ("* * * * *", "2026-11-30T10:07:30Z", "2026-11-30T10:08:00Z"),
        ("*/15 * * * *", "2026-11-30T10:59:00Z", "2026-11-30T11:00:00Z"),
        (
            "5,10-12 1-3/2 * * *",
            "2026-11-30T17:00:00Z",
            "2026-11-30T03:12:00Z",
        ),
        ("0 0 1 JAN *", "2026-11-30T17:00:00Z", "2026-01-01T00:00:00Z"),
        ("0 0 29 2 *", "2026-11-30T17:00:00Z", "2024-02-29T00:00:00Z"),
        // 30 November 2026 is a Monday.
        ("0 0 * * 7", "2026-11-30T17:00:00Z", "2026-11-29T00:00:00Z"),
        ("0 0 * * mon-FRI", "2026-11-29T17:00:00Z", "2026-11-27T00:00:00Z"),
        // Where both days are restricted, one of them is enough.
        ("0 0 13 * 5", "2026-11-30T17:00:00Z", "2026-11-27T00:00:00Z"),
        ("0 0 */2 * 1", "2026-11-30T17:00:00Z", "2026-11-23T00:00:00Z"),
        ("@weekly", "2026-11-30T17:00:00Z", "2026-11-29T00:00:00Z"),
        ("@monthly", "2026-11-30T17:00:00Z", "2026-11-01T00:00:00Z"),
        ("@yearly", "2026-11-30T17:00:00Z", "2026-01-01T00:00:00Z"),
        ("@hourly", "2026-11-30T17:08:00Z", "2026-11-30T17:00:00Z"),
        ("@daily", "2026-11-30T17:08:00Z", "2026-11-30T00:00:00Z"),
    ] {
        assert_eq!(slot(expression, now, &utc), wanted, "{expression} at {now}");
    }
}

#[test]
fn expression_follows_the_clocks_of_the_zone() {
    let (berlin, london) = (zone(BERLIN), zone(LONDON));
    assert_eq!(
        slot("0 2 * * *", "2026-11-30T02:00:00Z", &berlin),
        "2026-11-30T01:00:00Z"
    );
    // The clocks are set forward from 02:00 to 03:00, and the cron daemon starts a run that it missed.
    assert_eq!(
        slot("30 2 * * *", "2026-03-29T01:00:00Z", &berlin),
        "2026-03-29T01:00:00Z"
    );
    assert_eq!(
        slot("0 2 * * *", "2026-03-29T01:00:20Z", &berlin),
        "2026-03-29T01:00:00Z"
    );
    assert_eq!(
        slot("*/15 * * * *", "2026-03-29T01:14:00Z", &berlin),
        "2026-03-29T01:15:00Z"
    );
    // They are set back from 03:00 to 02:00: 02:30 is twice.
    assert_eq!(
        slot("30 2 * * *", "2026-10-25T00:30:00Z", &berlin),
        "2026-10-25T00:30:00Z"
    );
    // A host that starts its run late must not find another slot at the second one.
    for now in [
        "2026-10-25T01:28:00Z",
        "2026-10-25T01:30:00Z",
        "2026-10-25T07:00:00Z",
    ] {
        assert_eq!(slot("30 2 * * *", now, &berlin), "2026-10-25T00:30:00Z");
    }
    for expression in ["30 * * * *", "*/30 2 * * *"] {
        assert_eq!(
            slot(expression, "2026-10-25T01:30:00Z", &berlin),
            "2026-10-25T01:30:00Z"
        );
    }
    // By the clocks of UTC, the runs of these two days would have one slot.
    assert_eq!(
        slot("30 2 * * *", "2026-03-28T02:30:00Z", &london),
        "2026-03-28T02:30:00Z"
    );
    assert_eq!(
        slot("30 2 * * *", "2026-03-29T01:30:00Z", &london),
        "2026-03-29T01:30:00Z"
    );
}

#[test]
fn text_that_is_no_schedule_is_refused_with_an_example() {
    for text in [
        "",
        "5",
        "5d",
        "0s",
        "1500ms",
        "0.5s",
        "-5m",
        "8785h",
        "99999999999999999999h",
        "m",
        "5µ",
    ] {
        let error = SlotSchedule::parse(text).unwrap_err();
        assert!(
            error.contains("\"0 2 * * *\"") && error.contains("24h"),
            "{text}: {error}"
        );
    }
    for (text, part) in [
        ("0 2 * *", "4 fields"),
        ("0 0 2 * * *", "6 fields"),
        ("60 2 * * *", "minute \"60\": write *, 0 to 59"),
        ("0 2-1 * * *", "hour \"2-1\""),
        ("0 2 0 * *", "day of the month \"0\""),
        ("0 2 * 13 *", "month \"13\""),
        ("0 2 * * 8", "day of the week \"8\""),
        ("0 2 * * L", "day of the week \"L\""),
        ("5/10 * * * *", "minute \"5/10\""),
        ("*/0 * * * *", "minute \"*/0\""),
        ("*/ * * * *", "minute \"*/\""),
        ("1, * * * *", "minute \"\""),
        ("0 0 30 2 *", "no day has this date"),
        ("@reboot", "@hourly, @daily"),
        ("@every 5m", "write 5m"),
        ("TZ=UTC 0 2 * * *", "the variable TZ"),
    ] {
        let error = SlotSchedule::parse(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
    let long = "0,".repeat(400) + "0 2 * * *";
    assert!(SlotSchedule::parse(&long).unwrap_err().contains("at most 600"));
}

proptest::proptest! {
    /// A later start never has an earlier slot, and a run that a timer starts at a time of the schedule has that slot.
    #[test]
    fn slots_grow_with_the_time(
        expression in "([0-9]|[1-5][0-9]|\\*|\\*/7) ([0-9]|1[0-9]|\\*|\\*/5) (\\*|\\*/3|1|15) (\\*|3|10) (\\*|0|1-5)",
        start in 1_700_000_000..1_900_000_000_u64,
        steps in proptest::collection::vec(1..5_000_u64, 1..40),
        rule in proptest::sample::select(vec!["UTC0", BERLIN, LONDON]),
    ) {
        let (schedule, zone) = (SlotSchedule::parse(&expression).unwrap(), zone(rule));
        let (mut now, mut before) = (start, schedule.slot_at(start, &zone).unwrap());
        for step in steps {
            now += step;
            let slot = schedule.slot_at(now, &zone).unwrap();
            proptest::prop_assert!(slot >= before, "{expression} at {now}: {slot} after {before}");
            proptest::prop_assert!(slot <= now + EARLY);
            proptest::prop_assert_eq!(schedule.slot_at(slot, &zone), Some(slot));
            before = slot;
        }
    }
}
