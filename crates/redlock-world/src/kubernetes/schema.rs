//! The structural schema of a custom resource: defaults and pruning.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{path::FieldPath, shape::ListType};

/// A compiled schema.
#[derive(Clone, Debug, Default)]
pub(super) struct Schema {
    pub(super) value_type: Option<String>,
    pub(super) properties: BTreeMap<String, Schema>,
    pub(super) additional: Option<Box<Schema>>,
    pub(super) items: Option<Box<Schema>>,
    pub(super) required: Vec<String>,
    pub(super) choices: Vec<Value>,
    pub(super) default: Option<Value>,
    pub(super) bounds: Bounds,
    pub(super) format: Option<String>,
    pub(super) is_nullable: bool,
    pub(super) keeps_unknown: bool,
    pub(super) is_int_or_string: bool,
    pub(super) list_type: ListType,
    pub(super) is_atomic_map: bool,
    /// Whether this value, or one below, has CEL rules. They are not evaluated.
    pub(super) has_rules: bool,
    /// Whether a value below has a default.
    has_defaults: bool,
}

/// The bounds of a number, of a length or of a count.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounds {
    pub(super) minimum: Option<f64>,
    pub(super) maximum: Option<f64>,
    pub(super) min_length: Option<u64>,
    pub(super) max_length: Option<u64>,
    pub(super) min_items: Option<u64>,
    pub(super) max_items: Option<u64>,
    pub(super) max_properties: Option<u64>,
}

impl Schema {
    pub(super) fn compile(source: &Value) -> Self {
        let text = |field: &str| source[field].as_str().map(str::to_owned);
        let flag = |field: &str| source[field].as_bool() == Some(true);
        let boxed = |field: &str| {
            let schema = source.get(field).filter(|schema| schema.is_object());
            schema.map(|schema| Box::new(Self::compile(schema)))
        };
        let properties = source["properties"].as_object().into_iter().flatten();
        let mut schema = Self {
            value_type: text("type"),
            properties: properties
                .map(|(name, schema)| (name.clone(), Self::compile(schema)))
                .collect(),
            additional: boxed("additionalProperties"),
            items: boxed("items"),
            required: texts(&source["required"]),
            choices: source["enum"].as_array().cloned().unwrap_or_default(),
            default: source.get("default").cloned(),
            bounds: Bounds::of(source),
            format: text("format"),
            is_nullable: flag("nullable"),
            keeps_unknown: flag("x-kubernetes-preserve-unknown-fields") || flag("additionalProperties"),
            is_int_or_string: flag("x-kubernetes-int-or-string"),
            list_type: list_type(source),
            is_atomic_map: source["x-kubernetes-map-type"] == "atomic",
            has_rules: source["x-kubernetes-validations"].is_array(),
            has_defaults: false,
        };
        let below = schema.properties.values();
        let below = below
            .chain(schema.items.as_deref())
            .chain(schema.additional.as_deref());
        let below: Vec<&Self> = below.collect();
        let has_defaults = below.iter().any(|one| one.has_defaults || one.default.is_some());
        let has_rules = below.iter().any(|one| one.has_rules);
        schema.has_defaults = has_defaults;
        schema.has_rules |= has_rules;
        schema
    }

    pub(super) fn property(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(self.additional.as_deref())
    }

    /// Removes the fields that the schema of a custom resource does not have, and adds their paths to `unknown`.
    pub(super) fn prune_root(&self, object: &mut Value, unknown: &mut Vec<String>) {
        let Some(fields) = object.as_object_mut() else {
            return;
        };
        if self.keeps_unknown {
            return;
        }
        fields.retain(|name, value| {
            if matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                return true;
            }
            self.keep(name, value, &FieldPath::Root, unknown)
        });
    }

    fn keep(&self, name: &str, value: &mut Value, at: &FieldPath<'_>, unknown: &mut Vec<String>) -> bool {
        let path = at.field(name);
        match self.property(name) {
            Some(schema) if value.is_null() && !schema.is_nullable && schema.default.is_none() => false,
            Some(schema) => {
                schema.prune(value, &path, unknown);
                true
            }
            None => {
                if !self.keeps_unknown {
                    unknown.push(path.to_string());
                }
                self.keeps_unknown
            }
        }
    }

    fn prune(&self, value: &mut Value, at: &FieldPath<'_>, unknown: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                fields.retain(|name, value| self.keep(name, value, at, unknown));
            }
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    for (index, item) in items.iter_mut().enumerate() {
                        schema.prune(item, &at.index(index), unknown);
                    }
                }
            }
            _ => {}
        }
    }

    /// Sets the defaults of absent fields.
    pub(super) fn fill(&self, value: &mut Value) {
        if !self.has_defaults {
            return;
        }
        match value {
            Value::Object(fields) => self.fill_map(fields),
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    items.iter_mut().for_each(|item| schema.fill(item));
                }
            }
            _ => {}
        }
    }

    fn fill_map(&self, fields: &mut Map<String, Value>) {
        for (name, schema) in &self.properties {
            let absent = match fields.get(name) {
                None => true,
                Some(value) => value.is_null() && !schema.is_nullable,
            };
            if absent && let Some(default) = &schema.default {
                fields.insert(name.clone(), default.clone());
            }
        }
        for (name, value) in fields {
            if let Some(schema) = self.property(name) {
                schema.fill(value);
            }
        }
    }
}

impl Bounds {
    fn of(source: &Value) -> Self {
        let number = |field: &str| source[field].as_f64();
        let count = |field: &str| source[field].as_u64();
        Self {
            minimum: number("minimum"),
            maximum: number("maximum"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            max_properties: count("maxProperties"),
        }
    }
}

fn texts(list: &Value) -> Vec<String> {
    let all = list.as_array().into_iter().flatten();
    all.filter_map(|one| one.as_str().map(str::to_owned)).collect()
}

fn list_type(source: &Value) -> ListType {
    match source["x-kubernetes-list-type"].as_str() {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(texts(&source["x-kubernetes-list-map-keys"])),
        _ => ListType::Atomic,
    }
}
