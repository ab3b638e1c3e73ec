//! Tests that values.yaml and values.schema.json agree.

use std::fs;

use serde_json::{Map, Value};

use crate::render::{chart, defaults, try_render, try_render_values};

fn schema() -> Value {
    serde_json::from_str(&fs::read_to_string(chart().join("values.schema.json")).unwrap()).unwrap()
}

/// Returns the schema that a reference names.
fn resolved<'a>(all: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(path) => all.pointer(path.trim_start_matches('#')).expect(path),
        None => schema,
    }
}

#[test]
fn the_schema_knows_every_value_and_no_other() {
    fn compare(all: &Value, schema: &Value, values: &Value, path: &str) {
        let schema = resolved(all, schema);
        let Some(known) = schema["properties"].as_object() else {
            return;
        };
        assert_eq!(schema["additionalProperties"], false, "{path} takes anything");
        let none = Map::new();
        let given = values.as_object().unwrap_or(&none);
        for name in given.keys() {
            assert!(
                known.contains_key(name),
                "{path}.{name} is in values.yaml and not in the schema"
            );
        }
        for (name, schema) in known {
            // The values that Helm reserves for charts with subcharts.
            if path.is_empty() && name == "global" {
                continue;
            }
            let value = given.get(name);
            let value =
                value.unwrap_or_else(|| panic!("{path}.{name} is in the schema and not in values.yaml"));
            compare(all, schema, value, &format!("{path}.{name}"));
        }
    }
    let schema = schema();
    compare(&schema, &schema, &defaults(), "");
}

/// A misspelt key would have no effect, which a user notices too late.
#[test]
fn unknown_keys_are_refused() {
    fn misspell(all: &Value, schema: &Value, values: &mut Value, path: &str, paths: &mut Vec<String>) {
        let schema = resolved(all, schema);
        let known = schema["properties"].as_object();
        // Parent charts have further keys in `global`.
        let known = known.filter(|_| schema["additionalProperties"] == false);
        if let (Some(known), Some(given)) = (known, values.as_object_mut()) {
            for (name, value) in given.iter_mut() {
                misspell(all, &known[name], value, &format!("{path}/{name}"), paths);
            }
            let name = format!("unknown{}", paths.len());
            given.insert(name.clone(), true.into());
            paths.push(name);
        }
    }
    let (schema, mut values) = (schema(), defaults());
    let mut names = Vec::new();
    misspell(&schema, &schema, &mut values, "", &mut names);
    assert!(names.len() > 10, "{names:?}");
    let refused = try_render_values(&values).unwrap_err();
    for name in &names {
        assert!(
            refused.contains(&format!("'{name}'")),
            "{name} was taken: {refused}"
        );
    }
}

#[test]
fn global_values_of_parent_charts_are_accepted() {
    try_render(&["--set=global.imageRegistry=x,global.anything.at=all"]).unwrap();
}
