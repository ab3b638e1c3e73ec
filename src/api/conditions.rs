//! Bounds of conditions in the definitions: those of `metav1.Condition`, which its Rust type does not carry. Messages are
//! shorter, because each replica keeps those of every object.

use schemars::Schema;
use serde_json::{Value, json};

use super::bounds::{CONDITION_LIMIT, MESSAGE_LIMIT};

/// Bounds every condition of a list, and each field of it.
pub(super) fn bounded(list: &mut Schema) {
    list.insert("maxItems".to_owned(), json!(CONDITION_LIMIT));
    let fields = list
        .get_mut("items")
        .and_then(|items| items.get_mut("properties"))
        .and_then(Value::as_object_mut);
    // A field that cannot be bounded would be missing in `crds/`, which a test compares.
    let Some(fields) = fields else { return };
    for (name, bounds) in [
        (
            "type",
            json!({
                "maxLength": 316,
                "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
            }),
        ),
        ("status", json!({ "enum": ["True", "False", "Unknown"] })),
        (
            "reason",
            json!({
                "minLength": 1,
                "maxLength": 1_024,
                "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            }),
        ),
        ("message", json!({ "maxLength": MESSAGE_LIMIT })),
        ("observedGeneration", json!({ "minimum": 0 })),
    ] {
        if let (Some(Value::Object(field)), Value::Object(bounds)) = (fields.get_mut(name), bounds) {
            field.extend(bounds);
        }
    }
}
