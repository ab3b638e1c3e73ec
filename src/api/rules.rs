//! The CEL rules of the definitions. The API server checks them when an object is written, so that an invalid object is
//! refused where its user sees it. Each rule has a message that states the expected value, and the path of its field.
//!
//! [`super::validate`] holds the same rules, for manifests without Kubernetes and for objects that were stored before a
//! rule was added. Only [`super::validate`] can check:
//!
//! - whether a lockName is for the namespace of its object: CEL reads the name of an object, not its namespace;
//! - whether a lease is longer than the quorum's longest, and whether three command timeouts fit into the renew
//!   deadline: both belong to the RedisQuorum, another object;
//! - timings that depend on the stop time of a target that does not give it: the time is in a pod template;
//! - the values of the action Patch, which are any JSON;
//! - that two urls in different spelling are one server, and conflicts between objects: a lock name or a master that
//!   another object has.
//!
//! Bounds of numbers and lengths are part of the schema, not rules. They also keep the rules within the cost limit of
//! the API server, which assumes the longest list of the longest texts.

mod lock;
mod patch;
mod quorum;
mod target;
mod timings;

pub(super) use lock::*;
pub(super) use patch::*;
pub(super) use quorum::*;
pub(super) use target::*;
pub(super) use timings::*;

use kube::core::{Message, Reason, Rule};
use schemars::Schema;

use super::reasons;

/// Patterns of names in Kubernetes, as in [`super::validate`].
const LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// A version alone, or after its group.
const API_VERSION: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[a-z]([-a-z0-9]{0,61}[a-z0-9])?$";
/// Keys and values of labels.
const LABEL_KEY: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$";
const LABEL_VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?$";

/// Returns a rule of the object that holds `field`. The path of the error is `field`.
fn rule(field: &str, expression: impl Into<String>, message: impl Into<Message>) -> Rule {
    Rule::new(expression)
        .field_path(format!(".{field}"))
        .message(message)
}

/// Returns a [`rule`] for a field that is missing.
fn required(field: &str, expression: impl Into<String>, message: impl Into<Message>) -> Rule {
    rule(field, expression, message).reason(Reason::FieldValueRequired)
}

/// Returns a message that a CEL expression builds.
fn message_expression(expression: impl Into<String>) -> Message {
    Message::Expression(expression.into())
}

/// Requires that `field` is a name of one part, such as that of a namespace.
pub(super) fn label(field: &str) -> Rule {
    rule(
        field,
        format!("self.{}.matches('{LABEL}')", escaped(field)),
        reasons::LABEL,
    )
}

/// Requires that `field` is a name of several parts, such as that of most objects.
pub(super) fn subdomain(field: &str) -> Rule {
    rule(
        field,
        format!("self.{}.matches('{SUBDOMAIN}')", escaped(field)),
        reasons::SUBDOMAIN,
    )
}

/// Escapes the names that CEL reserves.
fn escaped(field: &str) -> String {
    if field == "namespace" {
        format!("__{field}__")
    } else {
        field.to_owned()
    }
}

/// Attaches a rule to each text in a list. A rule of the list could not name the invalid text.
fn of_items(list: &mut Schema, rule: &Rule) {
    let items = list
        .get_mut("items")
        .and_then(|items| <&mut Schema>::try_from(items).ok());
    // A rule that cannot be attached would be missing in `crds/`, and the test of these files fails.
    if let (Some(items), Ok(rule)) = (items, serde_json::to_value(rule)) {
        items.insert("x-kubernetes-validations".to_owned(), serde_json::json!([rule]));
    }
}

/// Requires that each text in a list is a name of one part.
pub(super) fn labels(list: &mut Schema) {
    let rule = Rule::new(format!("self.matches('{LABEL}')")).message(reasons::LABEL);
    of_items(list, &rule);
}
