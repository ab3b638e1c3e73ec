//! Patches: JSON merge patch, JSON patch, and the typed merge of server-side apply.

use serde_json::Value;

use super::{
    error::ApiError,
    fields::FieldSet,
    shape::{ListType, Shape, element_key},
};

/// Applies a JSON merge patch.
pub(super) fn merge_patch(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Some(fields) = target.as_object_mut() else {
        return;
    };
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge_patch(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Applies a JSON patch.
pub(super) fn json_patch(target: &mut Value, patch: &Value) -> Result<(), ApiError> {
    let Some(steps) = patch.as_array() else {
        return Err(ApiError::bad_request("a JSON patch is a list of operations"));
    };
    steps.iter().try_for_each(|step| json_step(target, step))
}

fn json_step(target: &mut Value, step: &Value) -> Result<(), ApiError> {
    let path = step["path"].as_str().unwrap_or_default();
    let from = step["from"].as_str().unwrap_or_default();
    let failed = |why: &str| {
        let why = format!("the server rejected our request due to an error in our request: {path}: {why}");
        let mut error = ApiError::new(422, "Invalid", why);
        error.details = serde_json::json!({});
        error
    };
    let value = || step.get("value").cloned().unwrap_or(Value::Null);
    match step["op"].as_str().unwrap_or_default() {
        "test" if target.pointer(path) == Some(&value()) => Ok(()),
        "test" => Err(failed("testing value failed")),
        "add" => insert(target, path, value()).ok_or_else(|| failed("missing parent")),
        "replace" => {
            let place = target.pointer_mut(path).ok_or_else(|| failed("missing value"))?;
            *place = value();
            Ok(())
        }
        "remove" => take(target, path)
            .map(drop)
            .ok_or_else(|| failed("missing value")),
        "move" => {
            let moved = take(target, from).ok_or_else(|| failed("missing value"))?;
            insert(target, path, moved).ok_or_else(|| failed("missing parent"))
        }
        "copy" => {
            let copied = target
                .pointer(from)
                .cloned()
                .ok_or_else(|| failed("missing value"))?;
            insert(target, path, copied).ok_or_else(|| failed("missing parent"))
        }
        _ => Err(failed("unknown operation")),
    }
}

fn insert(target: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *target = value;
        return Some(());
    }
    let (parent, name) = path.rsplit_once('/')?;
    let name = name.replace("~1", "/").replace("~0", "~");
    match target.pointer_mut(parent)? {
        Value::Object(fields) => {
            fields.insert(name, value);
        }
        Value::Array(items) if name == "-" => items.push(value),
        Value::Array(items) => {
            let index = name.parse().ok().filter(|index| *index <= items.len())?;
            items.insert(index, value);
        }
        _ => return None,
    }
    Some(())
}

fn take(target: &mut Value, path: &str) -> Option<Value> {
    let (parent, name) = path.rsplit_once('/')?;
    let name = name.replace("~1", "/").replace("~0", "~");
    match target.pointer_mut(parent)? {
        Value::Object(fields) => fields.remove(&name),
        Value::Array(items) => {
            let index = name.parse().ok().filter(|index| *index < items.len())?;
            Some(items.remove(index))
        }
        _ => None,
    }
}

/// Merges an applied configuration into an object, list by list as their types require.
pub(super) fn typed(live: &Value, config: &Value, shape: Shape<'_>) -> Value {
    match (live, config) {
        (Value::Object(live), Value::Object(config)) if !shape.is_atomic_map() => {
            let mut merged = live.clone();
            for (name, value) in config {
                let former = live.get(name).unwrap_or(&Value::Null);
                merged.insert(name.clone(), typed(former, value, shape.field(name)));
            }
            Value::Object(merged)
        }
        (Value::Array(live), Value::Array(config)) => match shape.list_type() {
            ListType::Atomic => config.clone().into(),
            list @ (ListType::Set | ListType::Map(_)) => {
                let mut merged = live.clone();
                for item in config {
                    let key = element_key(&list, item);
                    match merged.iter_mut().find(|other| element_key(&list, other) == key) {
                        Some(former) => *former = typed(former, item, shape.items()),
                        None => merged.push(item.clone()),
                    }
                }
                merged.into()
            }
        },
        (_, config) => config.clone(),
    }
}

/// Removes the fields of `dropped`, except those that `kept` contains or has a part of.
pub(super) fn remove(value: &mut Value, dropped: &FieldSet, kept: &FieldSet) {
    let nothing = FieldSet::default();
    for (key, child) in &dropped.children {
        let keeps = kept.children.get(key);
        let Some((kind, name)) = key.split_once(':') else {
            continue;
        };
        if child.is_member && keeps.is_none() {
            remove_one(value, kind, name);
            continue;
        }
        let Some(below) = find(value, kind, name) else {
            continue;
        };
        remove(below, child, keeps.unwrap_or(&nothing));
        let is_empty = match below {
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        if is_empty && !keeps.is_some_and(|keeps| keeps.is_member) {
            remove_one(value, kind, name);
        }
    }
}

fn is_named(item: &Value, kind: &str, name: &Value) -> bool {
    match name.as_object().filter(|_| kind == "k") {
        Some(keys) => keys.iter().all(|(key, value)| item.get(key) == Some(value)),
        None => item == name,
    }
}

fn find<'a>(value: &'a mut Value, kind: &str, name: &str) -> Option<&'a mut Value> {
    if kind == "f" {
        return value.as_object_mut()?.get_mut(name);
    }
    let name = serde_json::from_str(name).ok()?;
    value
        .as_array_mut()?
        .iter_mut()
        .find(|item| is_named(item, kind, &name))
}

fn remove_one(value: &mut Value, kind: &str, name: &str) {
    match value {
        Value::Object(fields) if kind == "f" => {
            fields.remove(name);
        }
        Value::Array(items) => {
            if let Ok(name) = serde_json::from_str::<Value>(name) {
                items.retain(|item| !is_named(item, kind, &name));
            }
        }
        _ => {}
    }
}
