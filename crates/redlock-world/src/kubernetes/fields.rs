//! Sets of fields in the format `FieldsV1`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::shape::{ListType, Shape, element_key};

/// A set of fields. A path can be a member and have members below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSet {
    pub(super) is_member: bool,
    pub(super) children: BTreeMap<String, FieldSet>,
}

/// The metadata that the server sets itself, which no manager owns.
const UNOWNED: [&str; 9] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "uid",
];

impl FieldSet {
    pub(super) fn is_empty(&self) -> bool {
        !self.is_member && self.children.is_empty()
    }

    pub(super) fn child(&mut self, key: String) -> &mut Self {
        self.children.entry(key).or_default()
    }

    /// Returns the set of all fields of a value: what an apply owns.
    pub(super) fn of(value: &Value, shape: Shape<'_>) -> Self {
        let mut set = Self::default();
        set.add(value, shape);
        set
    }

    fn add(&mut self, value: &Value, shape: Shape<'_>) {
        match value {
            Value::Object(fields) if !fields.is_empty() && !shape.is_atomic_map() => {
                for (name, value) in fields {
                    let field = Self::of(value, shape.field(name));
                    if !field.is_empty() {
                        self.children.insert(format!("f:{name}"), field);
                    }
                }
            }
            Value::Array(items) => match shape.list_type() {
                ListType::Atomic => self.is_member = true,
                list @ (ListType::Set | ListType::Map(_)) => {
                    for item in items {
                        let child = self.child(element_key(&list, item));
                        child.is_member = true;
                        if matches!(list, ListType::Map(_)) {
                            child.add(item, shape.items());
                        }
                    }
                }
            },
            _ => self.is_member = true,
        }
    }

    /// Removes the fields that no manager owns. Called on the set of a whole object.
    pub(super) fn strip(&mut self) {
        for name in ["f:apiVersion", "f:kind"] {
            self.children.remove(name);
        }
        if let Some(metadata) = self.children.get_mut("f:metadata") {
            metadata.is_member = false;
            for name in UNOWNED {
                metadata.children.remove(&format!("f:{name}"));
            }
            if metadata.is_empty() {
                self.children.remove("f:metadata");
            }
        }
    }

    pub(super) fn union(&mut self, other: &Self) {
        self.is_member |= other.is_member;
        for (key, child) in &other.children {
            self.child(key.clone()).union(child);
        }
    }

    pub(super) fn subtract(&mut self, other: &Self) {
        self.is_member &= !other.is_member;
        for (key, child) in &other.children {
            if let Some(own) = self.children.get_mut(key) {
                own.subtract(child);
                if own.is_empty() {
                    self.children.remove(key);
                }
            }
        }
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        let mut common = Self {
            is_member: self.is_member && other.is_member,
            children: BTreeMap::new(),
        };
        for (key, child) in &self.children {
            if let Some(other) = other.children.get(key) {
                let both = child.intersection(other);
                if !both.is_empty() {
                    common.children.insert(key.clone(), both);
                }
            }
        }
        common
    }

    pub(super) fn from_value(value: &Value) -> Self {
        let mut set = Self::default();
        for (key, value) in value.as_object().into_iter().flatten() {
            if key == "." {
                continue;
            }
            let mut child = Self::from_value(value);
            child.is_member = value.get(".").is_some() || value.as_object().is_none_or(Map::is_empty);
            set.children.insert(key.clone(), child);
        }
        set
    }

    pub(super) fn to_value(&self) -> Value {
        let mut map = Map::new();
        if self.is_member && !self.children.is_empty() {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for (key, child) in &self.children {
            map.insert(key.clone(), child.to_value());
        }
        Value::Object(map)
    }

    /// Returns the paths of all members, such as `.spec.replicas`.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect("", &mut paths);
        paths
    }

    /// Adds the paths of all members below `at`.
    fn collect(&self, at: &str, paths: &mut Vec<String>) {
        for (key, child) in &self.children {
            let part = match key.split_once(':') {
                Some(("f", name)) => format!("{at}.{name}"),
                Some(("k", keys)) => format!("{at}[{}]", key_text(keys)),
                Some((_, element)) => format!("{at}[={element}]"),
                None => format!("{at}.{key}"),
            };
            if child.is_member {
                paths.push(part.clone());
            }
            child.collect(&part, paths);
        }
    }
}

/// Returns the keys of a list element in the form of a path, such as `name="c"`.
fn key_text(keys: &str) -> String {
    let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
    let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
    keys.join(",")
}
