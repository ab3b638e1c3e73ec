//! The problem of one field, and a list that gathers every problem of an object.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Values are shown up to this many characters: enough to recognise them, short enough for one line.
const SHOWN: usize = 100;

/// One field that keeps an object from being used. Displayed as `FIELD: VALUE REASON`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {}", self.statement())]
pub struct FieldError {
    /// The path of the field, such as `spec.masters[1].url`.
    pub field: String,
    /// The value of the field, on one line; empty if the field has no value to show.
    pub value: String,
    /// The rest of a sentence that begins with the value: why it is refused, and the expected value.
    pub reason: String,
    /// Whether the lease leaves too little time to stop the targets, which has its own reason in the status.
    pub stop_budget: bool,
}

impl FieldError {
    pub(crate) fn new(field: impl Into<String>, value: impl Display, reason: impl Into<String>) -> Self {
        FieldError {
            field: field.into(),
            value: one_line(&value.to_string()),
            reason: reason.into(),
            stop_budget: false,
        }
    }

    /// Creates the problem of a field that is missing.
    pub(crate) fn missing(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::new(field, "", reason)
    }

    /// Returns value and reason as one sentence.
    pub fn statement(&self) -> String {
        if self.value.is_empty() {
            self.reason.clone()
        } else {
            format!("{} {}", self.value, self.reason)
        }
    }
}

/// Displays a text that a user wrote: quoted, without line breaks, and not too long.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

fn one_line(text: &str) -> String {
    let mut line: String = text
        .chars()
        .take(SHOWN)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if text.chars().count() > SHOWN {
        line.push('…');
    }
    line
}

/// Gathers the problems of one object.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<FieldError>);

impl Problems {
    pub(crate) fn add(&mut self, problem: FieldError) {
        self.0.push(problem);
    }

    pub(crate) fn extend(&mut self, problems: Vec<FieldError>) {
        self.0.extend(problems);
    }

    /// Returns a whole number within bounds. Outside them, adds a problem and returns `None`.
    pub(crate) fn bounded(
        &mut self,
        field: &str,
        value: i64,
        bounds: RangeInclusive<i64>,
        unit: &str,
    ) -> Option<u64> {
        let accepted = bounds
            .contains(&value)
            .then(|| u64::try_from(value).ok())
            .flatten();
        if accepted.is_none() {
            let reason = format!(
                "is out of bounds: use {} to {}{unit}",
                bounds.start(),
                bounds.end()
            );
            self.add(FieldError::new(field, value, reason));
        }
        accepted
    }

    /// Returns seconds within bounds; `None` if the value is absent or refused.
    pub(crate) fn seconds(
        &mut self,
        field: &str,
        value: Option<i64>,
        bounds: RangeInclusive<i64>,
    ) -> Option<Duration> {
        let seconds = self.bounded(field, value?, bounds, " seconds")?;
        Some(Duration::from_secs(seconds))
    }

    /// Returns `Ok` if there is no problem.
    pub(crate) fn verdict<T>(self, value: T) -> Result<T, Vec<FieldError>> {
        if self.0.is_empty() { Ok(value) } else { Err(self.0) }
    }

    pub(crate) fn into_inner(self) -> Vec<FieldError> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_one_line_that_names_field_value_and_way_out() {
        let error = FieldError::new("spec.x", Quoted("a\nb"), "is wrong: use c");
        assert_eq!(error.to_string(), r#"spec.x: "a\nb" is wrong: use c"#);
        assert_eq!(
            FieldError::new("spec.x", "a\nb", "is wrong").to_string(),
            "spec.x: a b is wrong"
        );
        assert_eq!(
            FieldError::missing("spec.x", "is required").to_string(),
            "spec.x: is required"
        );
        assert!(
            FieldError::new("spec.x", "y".repeat(5_000), "is wrong")
                .to_string()
                .len()
                < 150
        );
    }

    #[test]
    fn numbers_are_accepted_up_to_their_bounds() {
        for (value, accepted) in [
            (-1, false),
            (0, false),
            (1, true),
            (9, true),
            (10, false),
            (i64::MIN, false),
        ] {
            let mut problems = Problems::default();
            assert_eq!(
                problems.seconds("spec.n", Some(value), 1..=9).is_some(),
                accepted,
                "{value}"
            );
            assert_eq!(problems.into_inner().is_empty(), accepted, "{value}");
        }
        let mut problems = Problems::default();
        assert_eq!(problems.seconds("spec.n", None, 1..=9), None);
        assert!(problems.verdict(()).is_ok());
    }
}
