//! One problem of a folder of manifests.

use std::fmt;

use crate::api::validate::{FieldError, redact};

/// The reason why a manifest, or a part of it, is not used. Shown on one line:
/// `locks.yaml, document 2 (LeaderLock billing/report), spec.leaseDurationSeconds: 1 is shorter than …`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    /// The name of the file in the folder.
    pub(crate) file: String,
    /// The document in the file, counted from 1; 0 if the problem concerns the file as a whole.
    pub(crate) document: usize,
    /// The kind and the name, such as `LeaderLock billing/report`, as far as they could be read.
    pub(crate) object: Option<String>,
    /// The path of the field, such as `spec.masters[1].url`.
    pub(crate) field: Option<String>,
    pub(crate) reason: String,
}

impl Problem {
    /// Reports whether the problem names its object. A document that is not YAML, or that lacks its name, may
    /// be any object of the file.
    pub(in crate::standalone) fn names_its_object(&self) -> bool {
        self.object.as_ref().is_some_and(|object| object.contains(' '))
    }

    pub(super) fn of_file(file: &str, reason: impl Into<String>) -> Problem {
        Place {
            file: file.to_owned(),
            document: 0,
            object: None,
        }
        .problem(reason)
    }
}

/// The place of a document, and the object that it declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) file: String,
    pub(super) document: usize,
    pub(super) object: Option<String>,
}

impl Place {
    pub(super) fn problem(&self, reason: impl Into<String>) -> Problem {
        Problem {
            file: self.file.clone(),
            document: self.document,
            object: self.object.clone(),
            field: None,
            reason: one_line(&reason.into()),
        }
    }

    pub(super) fn problem_at(&self, field: impl Into<String>, reason: impl Into<String>) -> Problem {
        Problem {
            field: Some(one_line(&field.into())),
            ..self.problem(reason)
        }
    }

    pub(super) fn field_problems(&self, errors: Vec<FieldError>) -> Vec<Problem> {
        errors
            .into_iter()
            .map(|error| self.problem_at(error.field.clone(), error.statement()))
            .collect()
    }
}

/// Returns a text on one line and without secrets: the messages of a parser may quote the file, including line breaks
/// and urls with passwords.
fn one_line(text: &str) -> String {
    redact(text)
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.255}", self.file.escape_debug().to_string())?;
        if self.document > 0 {
            write!(f, ", document {}", self.document)?;
        }
        if let Some(object) = &self.object {
            write!(f, " ({object})")?;
        }
        if let Some(field) = &self.field {
            write!(f, ", {field}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_one_line_from_file_to_reason() {
        let place = Place {
            file: "locks.yaml".into(),
            document: 2,
            object: Some("LeaderLock billing/report".into()),
        };
        assert_eq!(
            place
                .problem_at("spec.leaseDurationSeconds", "1 is shorter than 2 s")
                .to_string(),
            "locks.yaml, document 2 (LeaderLock billing/report), spec.leaseDurationSeconds: 1 is shorter than 2 s"
        );
        assert_eq!(
            Problem::of_file("a\n.yaml", "cannot be\nread").to_string(),
            "a\\n.yaml: cannot be read"
        );
        let shown = place
            .problem("invalid type: string \"redis://u:secret@h\"")
            .to_string();
        assert!(!shown.contains("secret"), "{shown}");
    }
}
