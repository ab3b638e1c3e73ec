//! The owners of fields: `metadata.managedFields`.

use serde_json::{Value, json};

use super::{
    compare::Difference,
    fields::FieldSet,
    merge,
    object::{metadata_of, put},
    shape::Shape,
};

/// The number of managers with operation `Update` that are kept; older ones are combined.
const MOST_UPDATERS: usize = 10;
const SCALE: &str = "scale";
const ANCIENT: &str = "ancient-changes";

/// The manager of a write.
#[derive(Clone, Debug)]
pub(super) struct Manager<'a> {
    pub(super) name: &'a str,
    pub(super) api_version: String,
    pub(super) subresource: &'static str,
    pub(super) time: String,
}

/// Fields that an apply would take from other managers: the manager as errors name it, and the paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldConflict {
    pub(super) manager: String,
    pub(super) paths: Vec<String>,
}

/// One entry of `managedFields`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    operation: String,
    time: String,
    manager: String,
    api_version: String,
    subresource: String,
    fields: FieldSet,
}

impl Entry {
    fn new(manager: &Manager<'_>, operation: &str, fields: FieldSet) -> Self {
        Self {
            operation: operation.to_owned(),
            // The owners of a scale are recorded without a time.
            time: if manager.subresource == SCALE {
                String::new()
            } else {
                manager.time.clone()
            },
            manager: manager.name.to_owned(),
            api_version: manager.api_version.clone(),
            subresource: manager.subresource.to_owned(),
            fields,
        }
    }

    fn is_of(&self, manager: &Manager<'_>, operation: &str) -> bool {
        self.manager == manager.name && self.operation == operation && self.subresource == manager.subresource
    }

    fn read(value: &Value) -> Self {
        let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
        Self {
            operation: text("operation"),
            time: text("time"),
            manager: text("manager"),
            api_version: text("apiVersion"),
            subresource: text("subresource"),
            fields: FieldSet::from_value(&value["fieldsV1"]),
        }
    }

    fn write(&self) -> Value {
        let mut entry = json!({
            "manager": self.manager, "operation": self.operation, "apiVersion": self.api_version,
            "fieldsType": "FieldsV1", "fieldsV1": self.fields.to_value(),
        });
        if !self.time.is_empty() {
            entry["time"] = self.time.clone().into();
        }
        if !self.subresource.is_empty() {
            entry["subresource"] = self.subresource.clone().into();
        }
        entry
    }
}

fn read(object: &Value) -> Vec<Entry> {
    let entries = object["metadata"]["managedFields"].as_array();
    entries.into_iter().flatten().map(Entry::read).collect()
}

fn write(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.fields.is_empty());
    let order = |entry: &Entry| {
        let Entry {
            operation,
            time,
            manager,
            subresource,
            ..
        } = entry;
        (
            operation.clone(),
            time.clone(),
            manager.clone(),
            subresource.clone(),
        )
    };
    entries.sort_by_cached_key(order);
    combine_ancient(&mut entries);
    let written = (!entries.is_empty()).then(|| entries.iter().map(Entry::write).collect());
    put(metadata_of(object), "managedFields", written);
}

/// Combines the oldest updates into one entry if there are too many.
fn combine_ancient(entries: &mut Vec<Entry>) {
    while entries.iter().filter(|entry| entry.operation == "Update").count() > MOST_UPDATERS {
        // Sorted by operation and time.
        let Some(first) = entries.iter().position(|entry| entry.operation == "Update") else {
            return;
        };
        let mut oldest = entries.remove(first);
        if let Some(next) = entries.get_mut(first) {
            oldest.fields.union(&next.fields);
            next.fields = oldest.fields;
            next.manager = ANCIENT.to_owned();
            next.subresource = String::new();
        }
    }
}

/// Records an update: the manager owns each field that it changed.
pub(super) fn update(before: &Value, after: &mut Value, shape: Shape<'_>, manager: &Manager<'_>) {
    let difference = Difference::between(before, after, shape);
    let Difference { changed, removed } = difference;
    if changed.is_empty() && removed.is_empty() {
        put(
            metadata_of(after),
            "managedFields",
            before["metadata"].get("managedFields").cloned(),
        );
        return;
    }
    let mut entries = read(before);
    if !is_tracked(before, &entries, &changed, manager) {
        return put(metadata_of(after), "managedFields", of(before));
    }
    for entry in &mut entries {
        entry.fields.subtract(&removed);
        if !entry.is_of(manager, "Update") {
            entry.fields.subtract(&changed);
        }
    }
    if !changed.is_empty() && !owns_nothing(after, manager) {
        match entries.iter_mut().find(|entry| entry.is_of(manager, "Update")) {
            Some(entry) => {
                entry.fields.union(&changed);
                if manager.subresource != SCALE {
                    entry.time.clone_from(&manager.time);
                }
            }
            None => entries.push(Entry::new(manager, "Update", changed)),
        }
    }
    write(after, entries);
}

/// Reports whether the owners of an update are recorded: not for an object without owners, nor by a scale whose replicas
/// no manager owns.
fn is_tracked(before: &Value, entries: &[Entry], changed: &FieldSet, manager: &Manager<'_>) -> bool {
    let is_new = before.get("metadata").is_none();
    let owned = |entry: &Entry| !entry.fields.intersection(changed).is_empty();
    match manager.subresource {
        SCALE => entries.iter().any(owned),
        _ => is_new || !entries.is_empty(),
    }
}

/// Reports whether a write takes fields from their owners, but owns none: a scale omits zero replicas, and a finalization
/// only removes fields.
fn owns_nothing(after: &Value, manager: &Manager<'_>) -> bool {
    match manager.subresource {
        SCALE => after["spec"]["replicas"] == 0,
        other => other == "finalize",
    }
}

/// Applies a configuration: the manager owns exactly its fields. Returns the object with its owners.
pub(super) fn apply(
    before: &Value,
    config: &Value,
    shape: Shape<'_>,
    manager: &Manager<'_>,
    force: bool,
) -> Result<Value, Vec<FieldConflict>> {
    let mut wanted = FieldSet::of(config, shape);
    wanted.strip();
    let mut entries = read(before);
    let own = entries.iter().position(|entry| entry.is_of(manager, "Apply"));
    let former = own.map(|own| entries.remove(own));
    let mut after = merge::typed(before, config, shape);
    if let Some(former) = &former {
        let mut dropped = former.fields.clone();
        dropped.subtract(&wanted);
        let mut kept = wanted.clone();
        entries.iter().for_each(|entry| kept.union(&entry.fields));
        merge::remove(&mut after, &dropped, &kept);
    }
    let Difference { changed, removed } = Difference::between(before, &after, shape);
    let conflicts = conflicts(&entries, &changed);
    if !force && !conflicts.is_empty() {
        return Err(conflicts);
    }
    for entry in &mut entries {
        entry.fields.subtract(&changed);
        entry.fields.subtract(&removed);
    }
    let mut entry = Entry::new(manager, "Apply", wanted);
    if changed.is_empty() && removed.is_empty() {
        // Only an apply that changes a value has a time.
        entry.time = former.map(|former| former.time).unwrap_or_default();
    }
    entries.push(entry);
    write(&mut after, entries);
    Ok(after)
}

fn conflicts(others: &[Entry], changed: &FieldSet) -> Vec<FieldConflict> {
    let taken = others.iter().map(|entry| FieldConflict {
        manager: match entry.operation.as_str() {
            "Update" => format!("{:?} using {}", entry.manager, entry.api_version),
            _ => format!("{:?}", entry.manager),
        },
        paths: entry.fields.intersection(changed).paths(),
    });
    taken.filter(|conflict| !conflict.paths.is_empty()).collect()
}

/// Returns the owners of an object, as it stores them.
pub(super) fn of(object: &Value) -> Option<Value> {
    object["metadata"].get("managedFields").cloned()
}
