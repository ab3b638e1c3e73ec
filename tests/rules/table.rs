//! The table: objects and changes of objects, and the expected answers. It holds for both judges, `validate` and the
//! API server; where one answers differently, the case has both answers.

// Each test binary uses a part of this module.
#![allow(dead_code)]

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The namespace of the locks of the table, for the rules that depend on it.
pub const NAMESPACE: &str = "team";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Kind {
    LeaderLock,
    RedisQuorum,
}

/// An object, and the expected answer; an object without one must be accepted.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub case: String,
    #[serde(default)]
    pub spec: Map<String, Value>,
    pub field: Option<String>,
    pub message: Option<String>,
    /// A text that must not be repeated in the answer.
    pub never: Option<String>,
    server: Option<Otherwise>,
    pure: Option<Otherwise>,
}

/// A change of an object, and the expected answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    pub case: String,
    pub kind: Kind,
    pub before: Map<String, Value>,
    pub after: Map<String, Value>,
    pub field: Option<String>,
    pub message: Option<String>,
}

/// The answer of one of the two judges where it differs from that of the other.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Otherwise {
    field: Option<String>,
    message: Option<String>,
    /// The reason why this judge accepts the object.
    accepts: Option<String>,
}

/// The expected answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    Accepted,
    /// `field` is empty where only the text counts.
    Refused {
        field: String,
        message: String,
    },
}

/// The answer: empty, or each field with its text.
pub type FieldErrors = Vec<(String, String)>;

impl Case {
    pub fn wanted_of_server(&self) -> Wanted {
        self.wanted(self.server.as_ref())
    }

    pub fn wanted_of_validate(&self) -> Wanted {
        self.wanted(self.pure.as_ref())
    }

    fn wanted(&self, otherwise: Option<&Otherwise>) -> Wanted {
        let otherwise = otherwise.cloned().unwrap_or_default();
        match (
            otherwise.accepts,
            otherwise.message.or_else(|| self.message.clone()),
        ) {
            (None, Some(message)) => Wanted::Refused {
                field: otherwise.field.or_else(|| self.field.clone()).unwrap_or_default(),
                message,
            },
            _ => Wanted::Accepted,
        }
    }
}

impl Change {
    pub fn wanted(&self) -> Wanted {
        match &self.message {
            Some(message) => Wanted::Refused {
                field: self.field.clone().unwrap_or_default(),
                message: message.clone(),
            },
            None => Wanted::Accepted,
        }
    }
}

impl Wanted {
    /// Returns the difference from the expected answer, if any.
    pub fn missing_in(&self, errors: &FieldErrors) -> Option<String> {
        let holds = match self {
            Wanted::Accepted => errors.is_empty(),
            Wanted::Refused { field, message } => errors
                .iter()
                .any(|(at, text)| (field.is_empty() || at == field) && text.contains(message)),
        };
        (!holds).then(|| format!("wanted {self:?}, got {errors:?}"))
    }
}

pub fn cases() -> Vec<(Kind, Case)> {
    let read = |kind, text: &str| -> Vec<(Kind, Case)> {
        let cases: Vec<Case> = serde_yaml::from_str(text).unwrap();
        cases.into_iter().map(|case| (kind, case)).collect()
    };
    let mut all = read(Kind::RedisQuorum, include_str!("quorums.yaml"));
    all.extend(read(Kind::LeaderLock, include_str!("locks.yaml")));
    all
}

pub fn changes() -> Vec<Change> {
    serde_yaml::from_str(include_str!("updates.yaml")).unwrap()
}

/// Returns the whole object, with the fields that every spec needs.
pub fn object(kind: Kind, name: &str, spec: &Map<String, Value>) -> Value {
    let usual = match kind {
        Kind::LeaderLock => json!({"quorumRef": {"name": "default"}}),
        Kind::RedisQuorum => json!({"masters": [
            {"name": "a", "url": "redis://a"}, {"name": "b", "url": "redis://b"}, {"name": "c", "url": "redis://c"},
        ]}),
    };
    let mut whole = usual.as_object().cloned().unwrap();
    whole.extend(spec.clone());
    json!({
        "apiVersion": "redlock.dev/v1alpha1",
        "kind": format!("{kind:?}"),
        "metadata": {"name": name},
        "spec": whole,
    })
}
