//! The schemas of the types of Kubernetes that the definitions contain, in the words of Kubernetes.
//!
//! k8s-openapi has them for all of its types, by a feature that multiplies the time of its build.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::bounds::VALUE_LIMIT;

/// The schema of `Time` and of `MicroTime`.
pub(super) struct Time;
pub(super) struct Condition;
pub(super) struct LabelSelector;
/// Any JSON value. Rules cannot see it, so only its outermost text, list or map has a bound here: that of a value of
/// [`VALUE_LIMIT`] bytes.
pub(super) struct AnyValue;

macro_rules! schema {
    ($name:ident, $schema:expr) => {
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}

// The format allows any number of digits of a second.
schema!(
    Time,
    json_schema!({ "type": "string", "format": "date-time", "maxLength": 64 })
);
schema!(Condition, condition());
schema!(
    AnyValue,
    json_schema!({
        "x-kubernetes-preserve-unknown-fields": true,
        "maxLength": VALUE_LIMIT,
        "maxItems": VALUE_LIMIT / 2,
        "maxProperties": VALUE_LIMIT / 4,
    })
);
schema!(LabelSelector, label_selector());

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn condition() -> Schema {
    let transition = "lastTransitionTime is the last time the condition transitioned from one status to another. This should be when the underlying condition changed.  If that is not known, then using the time when the API field changed is acceptable.";
    let generation = "observedGeneration represents the .metadata.generation that the condition was set based upon. For instance, if .metadata.generation is currently 12, but the .status.conditions[x].observedGeneration is 9, the condition is out of date with respect to the current state of the instance.";
    json_schema!({
        "type": "object",
        "description": "Condition contains details for one aspect of the current state of this API Resource.",
        "properties": {
            "lastTransitionTime": { "type": "string", "format": "date-time", "maxLength": 64, "description": transition },
            "message": text("message is a human readable message indicating details about the transition. This may be an empty string."),
            "observedGeneration": { "type": "integer", "format": "int64", "description": generation },
            "reason": text("reason contains a programmatic identifier indicating the reason for the condition's last transition. Producers of specific condition types may define expected values and meanings for this field, and whether the values are considered a guaranteed API. The value should be a CamelCase string. This field may not be empty."),
            "status": text("status of the condition, one of True, False, Unknown."),
            "type": text("type of condition in CamelCase or in foo.example.com/CamelCase."),
        },
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
    })
}

fn label_selector() -> Schema {
    let labels = "matchLabels is a map of {key,value} pairs. A single {key,value} in the matchLabels map is equivalent to an element of matchExpressions, whose key field is \"key\", the operator is \"In\", and the values array contains only \"value\". The requirements are ANDed.";
    let values = "values is an array of string values. If the operator is In or NotIn, the values array must be non-empty. If the operator is Exists or DoesNotExist, the values array must be empty. This array is replaced during a strategic merge patch.";
    let requirement = json!({
        "type": "object",
        "description": "A label selector requirement is a selector that contains values, a key, and an operator that relates the key and values.",
        "properties": {
            "key": text("key is the label key that the selector applies to."),
            "operator": text("operator represents a key's relationship to a set of values. Valid operators are In, NotIn, Exists and DoesNotExist."),
            "values": { "type": "array", "items": { "type": "string" }, "description": values },
        },
        "required": ["key", "operator"],
    });
    json_schema!({
        "type": "object",
        "description": "A label selector is a label query over a set of resources. The result of matchLabels and matchExpressions are ANDed. An empty label selector matches all objects. A null label selector matches no objects.",
        "properties": {
            "matchExpressions": {
                "type": "array",
                "items": requirement,
                "description": "matchExpressions is a list of label selector requirements. The requirements are ANDed.",
            },
            "matchLabels": {
                "type": "object",
                "additionalProperties": { "type": "string" },
                "description": labels,
            },
        },
    })
}
