//! The strategic merge patch of built-in kinds: lists of named elements merge by their keys.

use serde_json::Value;

use super::shape::{ListType, Shape, element_key};

/// Applies a strategic merge patch. Of the directives, `$patch: delete` and `$patch: replace` are supported.
pub(super) fn strategic_patch(target: &mut Value, patch: &Value, shape: Shape<'_>) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object()
        || patch
            .get("$patch")
            .is_some_and(|directive| directive == "replace")
    {
        *target = Value::Object(serde_json::Map::new());
    }
    let Some(fields) = target.as_object_mut() else {
        return;
    };
    for (name, value) in patch.iter().filter(|(name, _)| !name.starts_with('$')) {
        let shape = shape.field(name);
        match value {
            Value::Null => {
                fields.remove(name);
            }
            Value::Array(items) if shape.list_type() != ListType::Atomic => {
                let place = fields
                    .entry(name.clone())
                    .or_insert_with(|| Value::Array(Vec::new()));
                list(place, items, shape);
            }
            value => strategic_patch(fields.entry(name.clone()).or_insert(Value::Null), value, shape),
        }
    }
}

fn list(target: &mut Value, patch: &[Value], shape: Shape<'_>) {
    if !target.is_array() {
        *target = Value::Array(Vec::new());
    }
    let kind = shape.list_type();
    let Some(items) = target.as_array_mut() else {
        return;
    };
    for change in patch {
        let key = element_key(&kind, change);
        let place = items.iter().position(|item| element_key(&kind, item) == key);
        let deletes = change
            .get("$patch")
            .is_some_and(|directive| directive == "delete");
        match place {
            Some(place) if deletes => {
                items.remove(place);
            }
            Some(place) if change.is_object() => strategic_patch(&mut items[place], change, shape.items()),
            Some(_) => {}
            None if deletes => {}
            None => items.push(change.clone()),
        }
    }
}
