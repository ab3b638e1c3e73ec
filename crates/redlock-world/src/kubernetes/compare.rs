//! Compares two versions of an object, field by field.

use serde_json::{Map, Value};

use super::{
    fields::FieldSet,
    shape::{ListType, Shape, element_key},
};

/// The difference between two versions of an object.
#[derive(Clone, Debug, Default)]
pub(super) struct Difference {
    /// The fields that were added, or have another value.
    pub(super) changed: FieldSet,
    pub(super) removed: FieldSet,
}

impl Difference {
    pub(super) fn between(before: &Value, after: &Value, shape: Shape<'_>) -> Self {
        let mut difference = Self::default();
        compare(
            Some(before),
            Some(after),
            shape,
            &mut difference.changed,
            &mut difference.removed,
        );
        difference.changed.strip();
        difference.removed.strip();
        difference
    }
}

fn compare(
    before: Option<&Value>,
    after: Option<&Value>,
    shape: Shape<'_>,
    changed: &mut FieldSet,
    removed: &mut FieldSet,
) {
    if before == after {
        return;
    }
    match (before, after) {
        (_, Some(Value::Object(new))) if !new.is_empty() && !shape.is_atomic_map() => {
            maps(before, new, shape, changed, removed);
        }
        (_, Some(Value::Array(new))) if !new.is_empty() && shape.list_type() != ListType::Atomic => {
            lists(before, new, shape, changed, removed);
        }
        // Empty metadata of a template: no manager owns it.
        (None, Some(Value::Object(new))) if new.is_empty() && shape.is_metadata() => {}
        (_, Some(_)) => {
            if let Some(before) = before.filter(|before| before.is_object() || before.is_array()) {
                removed.union(&FieldSet::of(before, shape));
                removed.is_member = false;
            }
            changed.is_member = true;
        }
        (Some(before), None) => {
            removed.union(&FieldSet::of(before, shape));
            removed.is_member = true;
        }
        (None, None) => {}
    }
}

fn maps(
    before: Option<&Value>,
    new: &Map<String, Value>,
    shape: Shape<'_>,
    changed: &mut FieldSet,
    removed: &mut FieldSet,
) {
    let old = before.and_then(Value::as_object);
    if old.is_none() {
        removed.is_member = before.is_some();
        changed.is_member = shape.owns_new_map();
    }
    for (name, value) in new {
        let former = old.and_then(|old| old.get(name));
        if former != Some(value) {
            pair(
                format!("f:{name}"),
                former,
                Some(value),
                shape.field(name),
                (changed, removed),
            );
        }
    }
    for (name, value) in old
        .into_iter()
        .flatten()
        .filter(|(name, _)| !new.contains_key(*name))
    {
        pair(
            format!("f:{name}"),
            Some(value),
            None,
            shape.field(name),
            (changed, removed),
        );
    }
}

fn lists(
    before: Option<&Value>,
    new: &[Value],
    shape: Shape<'_>,
    changed: &mut FieldSet,
    removed: &mut FieldSet,
) {
    let list = shape.list_type();
    let old = before.and_then(Value::as_array);
    if old.is_none() {
        removed.is_member = before.is_some();
        changed.is_member = shape.owns_new_map();
    }
    let keyed =
        |items: &[Value]| -> Vec<String> { items.iter().map(|item| element_key(&list, item)).collect() };
    let old = old.map_or(&[][..], Vec::as_slice);
    let (old_keys, new_keys) = (keyed(old), keyed(new));
    for (key, value) in new_keys.iter().zip(new) {
        let former = old_keys
            .iter()
            .position(|other| other == key)
            .map(|place| &old[place]);
        if former.is_none() {
            changed.child(key.clone()).is_member = true;
        }
        if matches!(list, ListType::Map(_)) {
            pair(
                key.clone(),
                former,
                Some(value),
                shape.items(),
                (changed, removed),
            );
        }
    }
    for (key, value) in old_keys
        .iter()
        .zip(old)
        .filter(|(key, _)| !new_keys.contains(*key))
    {
        pair(key.clone(), Some(value), None, shape.items(), (changed, removed));
    }
}

/// Compares one field, and adds an entry for it only if it differs.
fn pair(
    key: String,
    before: Option<&Value>,
    after: Option<&Value>,
    shape: Shape<'_>,
    (changed, removed): (&mut FieldSet, &mut FieldSet),
) {
    if before == after {
        return;
    }
    let (mut new, mut gone) = (FieldSet::default(), FieldSet::default());
    compare(before, after, shape, &mut new, &mut gone);
    if !new.is_empty() {
        changed.child(key.clone()).union(&new);
    }
    if !gone.is_empty() {
        removed.child(key).union(&gone);
    }
}
