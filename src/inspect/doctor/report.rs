//! The diagnosis as text.

use std::fmt::Write;

use super::{Check, Diagnosis, Level};

impl Diagnosis {
    /// A line for each check, and what to do about those that are not good.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for patient in &self.masters {
            let _ = writeln!(text, "{} {}", patient.name, patient.url);
            for check in &patient.checks {
                line(&mut text, check);
            }
            text.push('\n');
        }
        for object in &self.objects {
            let _ = writeln!(text, "{} {}", object.kind, object.name);
            for check in &object.checks {
                line(&mut text, check);
            }
            text.push('\n');
        }
        if let Some(turns) = &self.turns {
            let _ = writeln!(text, "{}\n", turns.text());
        }
        if let Some(away) = &self.away {
            let _ = writeln!(text, "{away}\n");
        }
        if let Some(id) = &self.quorum_id {
            let _ = writeln!(text, "quorum id: {id}");
        }
        let verdict = if self.healthy { "healthy" } else { "not healthy" };
        let _ = writeln!(
            text,
            "{verdict}: {} of {} masters vote, {} are needed",
            self.voting,
            self.masters.len(),
            self.majority
        );
        text
    }
}

fn line(text: &mut String, check: &Check) {
    let mark = match check.level {
        Level::Good => '✓',
        Level::Warning => '!',
        Level::Bad => '✗',
    };
    let _ = writeln!(text, "  {mark} {:<16} {}", check.name, check.found);
    if let Some(hint) = &check.hint {
        let _ = writeln!(text, "    {:<16} → {hint}", "");
    }
}
