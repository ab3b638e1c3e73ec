//! Writes the exposition format of series that are computed at a scrape. It writes straight into one text: a hundred
//! thousand series of single locks would otherwise be as many small objects.

use std::fmt::{Display, Write};

#[derive(Debug)]
pub(super) struct Text(String);

impl Text {
    /// Continues the text `begun`.
    pub(super) const fn new(begun: String) -> Self {
        Self(begun)
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }

    /// Begins a family. Its samples must follow immediately.
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing into a String cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub(super) fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = match labels {
            "" => writeln!(self.0, "{name} {value}"),
            labels => writeln!(self.0, "{name}{{{labels}}} {value}"),
        };
    }
}

/// Formats labels as `a="b",c="d"`, escaped.
pub(super) fn labels(pairs: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        if !text.is_empty() {
            text.push(',');
        }
        let value = value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        let _ = write!(text, "{name}=\"{value}\"");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_cannot_end_its_label() {
        assert_eq!(
            labels(&[("a", "x\"} 1\n\\"), ("b", "")]),
            "a=\"x\\\"} 1\\n\\\\\",b=\"\""
        );
    }

    #[test]
    fn a_family_is_help_type_and_samples() {
        let mut text = Text::new(String::new());
        text.family("n", "gauge", "Of something.");
        text.sample("n", "a=\"b\"", 1.5);
        assert_eq!(
            text.into_string(),
            "# HELP n Of something.\n# TYPE n gauge\nn{a=\"b\"} 1.5\n"
        );
    }
}
