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
    let before: Vec<String> = items.iter().map(|item| element_key(&kind, item)).collect();
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
    order(items, patch, &before, &kind);
}

/// Puts the elements of a patch in its order. Another element stays before the one that it was before.
fn order(items: &mut Vec<Value>, patch: &[Value], before: &[String], kind: &ListType) {
    let named: Vec<String> = patch.iter().map(|change| element_key(kind, change)).collect();
    let (mut patched, others): (Vec<Value>, Vec<Value>) = items
        .drain(..)
        .partition(|item| named.contains(&element_key(kind, item)));
    let place = |item: &Value, keys: &[String]| keys.iter().position(|key| *key == element_key(kind, item));
    patched.sort_by_key(|item| place(item, &named));
    let mut others = others.into_iter().peekable();
    for item in patched {
        let own = place(&item, before);
        while let Some(other) = others.next_if(|other| own.is_some() && place(other, before) < own) {
            items.push(other);
        }
        items.push(item);
    }
    items.extend(others);
}
