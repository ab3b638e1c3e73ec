//! Tests that every field of the definitions has a bound.

use serde_json::Value;

use super::{leader_lock_crd_yaml, redis_quorum_crd_yaml};

/// The fields that may contain any JSON. The API server cannot bound the values inside of them: `validate` does.
const ANY_VALUES: [&str; 3] = [
    "LeaderLock.spec.targets[].patch.fields[].active",
    "LeaderLock.spec.targets[].patch.fields[].standby",
    "LeaderLock.spec.targets[].patch.stoppedWhen[].equals",
];

fn schemas() -> [(&'static str, Value); 2] {
    [
        ("LeaderLock", leader_lock_crd_yaml().unwrap()),
        ("RedisQuorum", redis_quorum_crd_yaml().unwrap()),
    ]
    .map(|(kind, yaml)| {
        let crd: Value = serde_yaml::from_str(&yaml).unwrap();
        let schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
        (kind, schema)
    })
}

/// Collects the fields without a bound, and the fields that may contain any JSON.
fn walk(schema: &Value, path: &str, unbounded: &mut Vec<String>, any: &mut Vec<String>) {
    let has = |bound: &str| schema[bound].is_u64();
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        any.push(path.to_owned());
        let bounds = ["maxLength", "maxItems", "maxProperties"];
        unbounded.extend(
            bounds
                .into_iter()
                .filter(|bound| !has(bound))
                .map(|bound| format!("{path}: {bound}")),
        );
        return;
    }
    let bound = match schema["type"].as_str().unwrap() {
        "string" => (schema.get("enum").is_some() || has("maxLength")).then_some("maxLength"),
        "array" => has("maxItems").then_some("maxItems"),
        "object" => {
            let closed = schema.get("additionalProperties").is_none() && schema.get("properties").is_some();
            (closed || has("maxProperties")).then_some("maxProperties")
        }
        "integer" | "boolean" => Some("its type"),
        other => panic!("{path}: {other}"),
    };
    if bound.is_none() {
        unbounded.push(path.to_owned());
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        walk(field, &format!("{path}.{name}"), unbounded, any);
    }
    for (key, suffix) in [("items", "[]"), ("additionalProperties", "{}")] {
        if let Some(inner) = schema.get(key).filter(|inner| inner.is_object()) {
            walk(inner, &format!("{path}{suffix}"), unbounded, any);
        }
    }
}

#[test]
fn every_text_list_map_and_any_value_has_a_bound() {
    let (mut unbounded, mut any) = (Vec::new(), Vec::new());
    for (kind, schema) in schemas() {
        for part in ["spec", "status"] {
            walk(
                &schema["properties"][part],
                &format!("{kind}.{part}"),
                &mut unbounded,
                &mut any,
            );
        }
    }
    assert_eq!(unbounded, Vec::<String>::new());
    assert_eq!(any, ANY_VALUES);
}
