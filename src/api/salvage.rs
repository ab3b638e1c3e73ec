//! Reads as much as possible of a `LeaderLock` that this version cannot read as a whole, such as one of a later
//! version.
//!
//! The result has one use: to stop targets that may run of an object that is being deleted. The operator never contends
//! for such a lock.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{
    LeaderLock,
    leader_lock::{Enforcement, LeaderLockSpec},
    target::{Target, TargetRef},
};
use crate::lease::identity::LockName;

/// An object that could be read at least in part.
#[derive(Clone, Debug, PartialEq)]
pub struct Salvaged {
    pub object: LeaderLock,
    /// The targets (by name) and fields that this version cannot read, so that targets are not stopped.
    pub lost: Vec<String>,
}

/// Returns every field that can be read by itself. The other fields get their defaults, except that an enforcement that
/// cannot be read becomes `Observe`. `None` if even the metadata cannot be read.
pub fn salvage(object: &Value) -> Option<Salvaged> {
    let metadata = serde_json::from_value(object.get("metadata")?.clone()).ok()?;
    let fields = object.get("spec").and_then(Value::as_object);
    let empty = Map::new();
    let fields = fields.unwrap_or(&empty);
    let mut lost = Vec::new();
    let given = fields.get("targets").and_then(Value::as_array);
    let targets: Vec<Target> = given
        .into_iter()
        .flatten()
        .enumerate()
        .filter_map(|(index, target)| {
            let read = salvage_target(target);
            if read.is_none() {
                let name = target.get("name").and_then(Value::as_str);
                lost.push(name.map_or_else(|| format!("spec.targets[{index}]"), str::to_owned));
            }
            read
        })
        .collect();
    let mut rest = fields.clone();
    rest.remove("targets");
    let unnamed = |name: &Value| name.as_str().is_none_or(|name| LockName::parse(name).is_err());
    if rest.get("lockName").is_some_and(unnamed) {
        rest.remove("lockName");
    }
    let unknown = |mode: &Value| serde_json::from_value::<Enforcement>(mode.clone()).is_err();
    if rest.get("enforcement").is_some_and(unknown) {
        // An unknown mode is one of a later version: the default would stop targets that this mode may only observe.
        rest.insert("enforcement".to_owned(), json!(Enforcement::Observe));
        lost.push("spec.enforcement".to_owned());
    }
    let base = as_map(json!({ "quorumRef": { "name": "" } }));
    let mut spec: LeaderLockSpec = readable(base, &rest)?;
    spec.targets = targets;
    Some(Salvaged {
        object: LeaderLock {
            metadata,
            spec,
            status: None,
        },
        lost,
    })
}

/// Returns the target without the settings that cannot be read. Their defaults stop it as well.
fn salvage_target(target: &Value) -> Option<Target> {
    let fields = target.as_object()?;
    let base: Map<String, Value> = ["name", "action"]
        .into_iter()
        .filter_map(|field| Some((field.to_owned(), fields.get(field)?.clone())))
        .collect();
    let object = fields
        .get("ref")
        .map(|object| serde_json::from_value::<TargetRef>(object.clone()));
    if object.is_some_and(|object| object.is_err()) {
        return None;
    }
    readable(base, fields)
}

/// Returns `base` with each of `fields` that can be read together with it. `None` if `base` cannot be read.
fn readable<T: DeserializeOwned>(base: Map<String, Value>, fields: &Map<String, Value>) -> Option<T> {
    let parse = |map: &Map<String, Value>| serde_json::from_value::<T>(Value::Object(map.clone())).ok();
    let mut read = base;
    parse(&read)?;
    for (name, value) in fields {
        let mut more = read.clone();
        more.insert(name.clone(), value.clone());
        if parse(&more).is_some() {
            read = more;
        }
    }
    parse(&read)
}

fn as_map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{
        leader_lock::{Candidates, DeletionPolicy},
        target::Action,
    };

    #[test]
    fn unreadable_fields_are_left_out_and_unreadable_targets_named() {
        let object = json!({
            "metadata": {"name": "l", "namespace": "n", "uid": "u"},
            "spec": {
                "quorumRef": {"name": "default"},
                "lockName": "n/other",
                "candidates": "Everybody",
                "deletionPolicy": "Orphan",
                "leaseDurationSeconds": "long",
                "targets": [
                    {"name": "a", "action": "Scale", "stopSeconds": "soon",
                     "ref": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}},
                    {"name": "b", "action": "Teleport"},
                    {"name": "c", "action": "Suspend", "ref": "d"},
                    {"action": "Scale"},
                ],
            },
            "status": 7,
        });
        let salvaged = salvage(&object).unwrap();
        assert_eq!(salvaged.lost, ["b", "c", "spec.targets[3]"]);
        let spec = salvaged.object.spec;
        assert_eq!(spec.quorum_ref.name, "default");
        assert_eq!(spec.lock_name.as_deref(), Some("n/other"));
        assert_eq!(spec.candidates, Candidates::Operator);
        assert_eq!(spec.deletion_policy, DeletionPolicy::Orphan);
        assert_eq!(spec.lease_duration_seconds, None);
        assert_eq!(spec.targets.len(), 1);
        assert_eq!(
            (&*spec.targets[0].name, spec.targets[0].action),
            ("a", Action::Scale)
        );
        assert_eq!(spec.targets[0].stop_seconds, None);
        assert!(spec.targets[0].reference.is_some());
    }

    #[test]
    fn unreadable_enforcement_switches_nothing() {
        let salvaged = |enforcement: &str| {
            let target = json!({"name": "a", "action": "Scale",
                "ref": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}});
            let spec = json!({"quorumRef": {"name": "q"}, "enforcement": enforcement, "targets": [target]});
            salvage(&json!({"metadata": {"name": "l"}, "spec": spec})).unwrap()
        };
        let unknown = salvaged("DryRun");
        assert_eq!(unknown.object.spec.enforcement, Enforcement::Observe);
        assert_eq!(unknown.lost, ["spec.enforcement"]);
        let known = salvaged("Enforce");
        assert_eq!(known.object.spec.enforcement, Enforcement::Enforce);
        assert!(known.lost.is_empty());
    }

    #[test]
    fn an_object_without_a_spec_has_nothing_to_stop() {
        for spec in [
            json!(null),
            json!([]),
            json!({"quorumRef": 7, "lockName": "a b", "targets": {}}),
        ] {
            let object = json!({"metadata": {"name": "l", "namespace": "n"}, "spec": spec});
            let salvaged = salvage(&object).unwrap();
            assert_eq!(salvaged.object.spec.quorum_ref.name, "");
            assert_eq!(salvaged.object.spec.lock_name, None);
            assert!(salvaged.object.spec.targets.is_empty() && salvaged.lost.is_empty());
        }
        assert_eq!(salvage(&json!({"metadata": 7})), None);
    }
}
