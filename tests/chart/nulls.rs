//! Tests keys that are null, as a key is whose content is commented out. Helm removes them from the values.

use serde_json::{Map, Value, json};

use crate::render::{defaults, one, render, try_render_values};

/// Returns the values in which each key of the map at this path is null.
pub fn nulls(map: &Map<String, Value>, path: &[String]) -> Value {
    let nulls: Map<String, Value> = map.keys().map(|key| (key.clone(), Value::Null)).collect();
    let outward = path.iter().rev();
    outward.fold(Value::Object(nulls), |inner, key| {
        let mut outer = Map::new();
        outer.insert(key.clone(), inner);
        Value::Object(outer)
    })
}

/// Adds each map of the values that has keys, with its path.
fn collect_maps(value: &Value, path: &[String], found: &mut Vec<(Vec<String>, Map<String, Value>)>) {
    let Some(map) = value.as_object().filter(|map| !map.is_empty()) else {
        return;
    };
    found.push((path.to_vec(), map.clone()));
    for (key, value) in map {
        let path = [path, std::slice::from_ref(key)].concat();
        collect_maps(value, &path, found);
    }
}

/// A policy, a limit or a check that is on by default stays on.
#[test]
fn a_key_that_is_null_has_its_default() {
    let (defaults, rendered) = (defaults(), render(&[]));
    let keys = defaults.as_object().unwrap().keys();
    for key in keys {
        let mut values = Map::new();
        values.insert(key.clone(), Value::Null);
        let objects = try_render_values(&Value::Object(values));
        let objects = objects.unwrap_or_else(|error| panic!("{key}: {error}"));
        assert!(objects == rendered, "{key} has another default where it is null");
    }
}

#[test]
fn all_keys_of_a_map_may_be_null() {
    let (defaults, rendered) = (defaults(), render(&[]));
    let mut maps = Vec::new();
    collect_maps(&defaults, &[], &mut maps);
    assert!(maps.len() > 20, "{}", maps.len());
    for (path, map) in maps {
        let name = path.join(".");
        let objects = try_render_values(&nulls(&map, &path));
        let objects = objects.unwrap_or_else(|error| panic!("{name}: {error}"));
        // Requests and limits are free maps: without an entry they are empty.
        let removed = name == "resources" || name.starts_with("resources.");
        assert_eq!(objects == rendered, !removed, "{name}");
    }
}

/// Adds the path of each text that is not empty by default, without those of free maps.
fn collect_texts(value: &Value, path: &[String], found: &mut Vec<Vec<String>>) {
    match value {
        Value::String(text) if !text.is_empty() => found.push(path.to_vec()),
        Value::Object(map) if path.last().is_none_or(|key| key != "resources") => {
            for (key, value) in map {
                collect_texts(value, &[path, std::slice::from_ref(key)].concat(), found);
            }
        }
        _ => {}
    }
}

/// As `--set clusterName=$CLUSTER` without the variable.
#[test]
fn a_text_that_is_empty_has_its_default() {
    let (defaults, rendered) = (defaults(), render(&[]));
    let mut texts = Vec::new();
    collect_texts(&defaults, &[], &mut texts);
    assert!(texts.len() > 10, "{texts:?}");
    let mut all = Value::Null;
    for path in texts {
        let mut at = &mut all;
        for key in path {
            at = &mut at[key];
        }
        *at = Value::from("");
    }
    let objects = try_render_values(&all).unwrap_or_else(|error| panic!("{all}: {error}"));
    assert!(objects == rendered, "{all}");
}

#[test]
fn a_removed_entry_of_a_free_map_stays_removed() {
    let objects = render(&[
        "admission.authorCheck.enabled=true",
        "admission.authorCheck.resources.Service=null",
        "resources.limits=null",
        "networkPolicy.restrictEgress=true",
        "networkPolicy.masterPorts=null",
    ]);
    let policy = one(&objects, "ValidatingAdmissionPolicy");
    let variables = policy["spec"]["variables"].as_array().unwrap();
    let resources = variables.iter().find(|variable| variable["name"] == "resources");
    let resources = resources.unwrap()["expression"].as_str().unwrap();
    assert!(resources.contains("Deployment.apps"), "{resources}");
    assert!(!resources.contains("\"Service\""), "{resources}");
    let container = &one(&objects, "Deployment")["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["resources"]["limits"], json!({}));
    assert!(container["resources"]["requests"]["memory"].is_string());
    let policies = serde_json::to_string(&objects).unwrap();
    assert!(policies.contains(r#""port":443,"protocol""#), "{policies}");
    assert!(!policies.contains(r#""port":6379,"protocol""#), "{policies}");
}
