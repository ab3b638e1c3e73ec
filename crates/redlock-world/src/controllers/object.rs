//! Reads and changes the parts of an object that every kind has.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// An object of the cluster as it was read.
pub(super) type Object = Arc<Value>;

/// Reads a field by its path.
pub(super) trait FieldPath {
    /// Returns the field at a path such as `/metadata/name`. Like `Value::pointer`, without its allocations: no field of
    /// the controllers has a `/` or `~` in its name.
    fn at(&self, path: &str) -> Option<&Value>;
}

impl FieldPath for Value {
    fn at(&self, path: &str) -> Option<&Value> {
        let mut parts = path.split('/').skip(1);
        parts.try_fold(self, |value, part| match value {
            Value::Object(fields) => fields.get(part),
            Value::Array(items) => items.get(part.parse::<usize>().ok()?),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        })
    }
}

pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.at(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

pub(super) fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

pub(super) fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// Returns a number; 0 if the field is missing, as the API server omits a zero.
pub(super) fn count(object: &Value, pointer: &str) -> i64 {
    count_or(object, pointer, 0)
}

pub(super) fn count_or(object: &Value, pointer: &str, default: i64) -> i64 {
    object.at(pointer).and_then(Value::as_i64).unwrap_or(default)
}

pub(super) fn flag(object: &Value, pointer: &str) -> bool {
    object.at(pointer) == Some(&Value::Bool(true))
}

pub(super) fn is_deleting(object: &Value) -> bool {
    object
        .at("/metadata/deletionTimestamp")
        .is_some_and(|time| !time.is_null())
}

pub(super) fn time(object: &Value, pointer: &str) -> Option<Timestamp> {
    text(object, pointer).parse().ok()
}

/// Returns the time as the API writes it: in whole seconds.
pub(super) fn written(now: Timestamp) -> String {
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

pub(super) fn later(time: Timestamp, by: std::time::Duration) -> Timestamp {
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

pub(super) fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.at("/metadata/labels")?.get(key)?.as_str()
}

pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.at("/metadata/annotations")?.get(key)?.as_str()
}

/// Sets a label or an annotation: `map` is the name of the field in the metadata.
pub(super) fn set_metadata(object: &mut Value, map: &str, key: &str, value: &str) {
    let map = &mut object["metadata"][map];
    if !map.is_object() {
        *map = Value::Object(Map::new());
    }
    map[key] = json!(value);
}

pub(super) fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    let all = object.at("/metadata/finalizers").and_then(Value::as_array);
    all.into_iter().flatten().filter_map(Value::as_str)
}

pub(super) fn without_finalizer(object: &Value, finalizer: &str) -> Value {
    let mut changed = object.clone();
    if let Some(Value::Array(all)) = changed.pointer_mut("/metadata/finalizers") {
        all.retain(|one| one != finalizer);
    }
    changed
}

pub(super) fn is_pod_over(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Reports whether a pod counts for its controller: it has not ended and is not being deleted.
pub(super) fn is_pod_active(pod: &Value) -> bool {
    !is_pod_over(pod) && !is_deleting(pod)
}

pub(super) fn is_pod_ready(pod: &Value) -> bool {
    is_true(pod, "Ready")
}

pub(super) fn is_true(object: &Value, condition: &str) -> bool {
    self::condition(object.get("status"), condition).is_some_and(|found| found["status"] == "True")
}

pub(super) fn condition<'a>(status: Option<&'a Value>, kind: &str) -> Option<&'a Value> {
    let all = status?.get("conditions")?.as_array()?;
    all.iter().find(|condition| condition["type"] == kind)
}

/// A condition of a status, without its times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Condition<'a> {
    pub(super) kind: &'a str,
    pub(super) status: &'a str,
    pub(super) reason: &'a str,
    pub(super) message: &'a str,
}

impl<'a> Condition<'a> {
    pub(super) const fn new(kind: &'a str, status: bool, reason: &'a str, message: &'a str) -> Self {
        let status = if status { "True" } else { "False" };
        Self {
            kind,
            status,
            reason,
            message,
        }
    }

    /// Sets the condition. The time of the transition changes with the status only. Returns false if the status has the
    /// condition already.
    pub(super) fn set(self, status: &mut Value, now: Timestamp) -> bool {
        let now = written(now);
        let before = condition(Some(status), self.kind);
        let same = before.is_some_and(|before| before["status"] == self.status);
        let reason = |before: &Value| before["reason"].as_str().unwrap_or_default() == self.reason;
        if same && before.is_some_and(reason) {
            return false;
        }
        let since = before
            .filter(|_| same)
            .map(|before| before["lastTransitionTime"].clone());
        let mut condition = json!({
            "type": self.kind,
            "status": self.status,
            "lastTransitionTime": since.unwrap_or_else(|| json!(now)),
        });
        for (key, text) in [("reason", self.reason), ("message", self.message)] {
            if !text.is_empty() {
                condition[key] = json!(text);
            }
        }
        let conditions = &mut status["conditions"];
        if !conditions.is_array() {
            *conditions = json!([]);
        }
        if let Value::Array(all) = conditions {
            match all.iter_mut().find(|one| one["type"] == self.kind) {
                Some(one) => *one = condition,
                None => all.push(condition),
            }
        }
        true
    }
}

/// Sets a number, or removes the field for zero, as the API server does with most counts.
pub(super) fn set_count(status: &mut Value, field: &str, number: i64) {
    if number != 0 {
        status[field] = json!(number);
    } else if let Value::Object(fields) = status {
        fields.remove(field);
    }
}

/// Returns the status of an object, to change it.
pub(super) fn status_of(object: &Value) -> Value {
    match object.get("status") {
        Some(status) if status.is_object() => status.clone(),
        Some(_) | None => json!({}),
    }
}
