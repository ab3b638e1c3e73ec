//! Durations on the command line, as Go and Kubernetes write them: `60s`, `1500ms`, `2m`, `1m30s`.

use std::time::Duration;

use super::given::given;

/// The longest duration: none on the command line has to be longer.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// Parses a duration. A number without a unit is refused: many users would read it as milliseconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a duration: write 15s, 1500ms, 2m or 1m30s");
    let mut rest = given(text).ok_or_else(bad)?;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let (part, after) = first_part(rest).ok_or_else(bad)?;
        sum = sum.checked_add(part).ok_or_else(bad)?;
        rest = after;
    }
    if sum < Duration::from_millis(1) || sum > LONGEST {
        return Err(bad());
    }
    Ok(sum)
}

/// Splits the first number with its unit from a duration.
fn first_part(text: &str) -> Option<(Duration, &str)> {
    let is_digit = |c: char| c.is_ascii_digit() || c == '.';
    let (number, after) = text.split_at(text.find(|c| !is_digit(c))?);
    let (unit, rest) = after.split_at(after.find(is_digit).unwrap_or(after.len()));
    let seconds = match unit {
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    Some((Duration::try_from_secs_f64(number * seconds).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_asked_for() {
        for (text, milliseconds) in [
            ("60s", 60_000),
            ("1500ms", 1_500),
            ("2m", 120_000),
            ("0.5s", 500),
            ("1m30s", 90_000),
            ("1h", 3_600_000),
            (" 2m0s\n", 120_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in [
            "", " ", "60", "s", "-1s", "1d", "0s", "1e400s", "60 s", "1.1.1s", "1m30", "99999h", "1m 30s",
        ] {
            assert!(parse(text).unwrap_err().contains("15s"), "{text}");
        }
    }
}
