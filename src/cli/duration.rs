//! Durations on the command line: `60s`, `1500ms`, `2m`.

use std::time::Duration;

/// Parses a duration. A number without a unit is refused: many users would read it as milliseconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a duration: write 15s, 1500ms or 2m");
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .ok_or_else(bad)?;
    let (number, unit) = text.split_at(digits);
    let milliseconds = match unit {
        "ms" => 1.0,
        "s" => 1e3,
        "m" => 6e4,
        _ => return Err(bad()),
    };
    let number: f64 = number.parse().map_err(|_| bad())?;
    let duration = Duration::try_from_secs_f64(number * milliseconds / 1e3).map_err(|_| bad())?;
    if duration < Duration::from_millis(1) {
        return Err(bad());
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_asked_for() {
        for (text, milliseconds) in [("60s", 60_000), ("1500ms", 1_500), ("2m", 120_000), ("0.5s", 500)] {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "60", "s", "-1s", "1h", "0s", "1e400s", "60 s", "1.1.1s"] {
            assert!(parse(text).unwrap_err().contains("15s"), "{text}");
        }
    }
}
