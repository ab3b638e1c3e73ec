//! Reports each problem once when it appears and once when it is resolved.

use std::{collections::BTreeSet, fmt};

use super::manifests::Problem;

/// A problem that keeps a declared object, or a part of it, from being used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Finding {
    /// A problem of a manifest. If `kept`, the last valid version of the object stays in force.
    Manifest { problem: Problem, kept: bool },
    /// A problem of a valid object that this process cannot use.
    Object {
        object: String,
        field: &'static str,
        reason: String,
    },
    /// A problem of the whole folder, which was readable before.
    Folder(String),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manifest { problem, kept: false } => problem.fmt(f),
            Self::Manifest { problem, kept: true } => {
                write!(f, "{problem}; the last valid version stays in force")
            }
            Self::Object {
                object,
                field,
                reason,
            } => write!(f, "{object}, {field}: {reason}"),
            Self::Folder(reason) => f.write_str(reason),
        }
    }
}

/// The problems that were reported and are not resolved.
#[derive(Debug, Default)]
pub(super) struct Report {
    reported: BTreeSet<Finding>,
}

impl Report {
    /// Reports the problems that are new and those that are resolved.
    pub(super) fn update(&mut self, findings: BTreeSet<Finding>) {
        for finding in findings.difference(&self.reported) {
            match finding {
                Finding::Manifest { problem, kept } => tracing::warn!(
                    file = problem.file,
                    document = problem.document,
                    object = problem.object,
                    field = problem.field,
                    reason = problem.reason,
                    last_valid_stays = kept,
                    "problem in a manifest"
                ),
                Finding::Object {
                    object,
                    field,
                    reason,
                } => tracing::warn!(object, field, reason, "object cannot be used"),
                Finding::Folder(reason) => {
                    tracing::warn!(
                        reason,
                        "folder cannot be read; the manifests of the last successful read stay in force"
                    );
                }
            }
        }
        for finding in self.reported.difference(&findings) {
            tracing::info!(problem = %finding, "problem resolved");
        }
        self.reported = findings;
    }

    pub(super) fn texts(&self) -> Vec<String> {
        self.reported.iter().map(ToString::to_string).collect()
    }
}
