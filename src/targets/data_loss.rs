//! Finds objects whose stop would delete data. Pure.
//!
//! A stop must be undone by a start: an object whose volumes are deleted when it is scaled down loses its data at each
//! failover.

use kube::api::ObjectMeta;
use serde_json::Value;

use crate::api::pointer::Pointer;

/// The annotation on an object by which its owner accepts that a stop deletes its volumes.
pub(super) const ACCEPTED: &str = "redlock.dev/accept-volume-deletion";
/// The policy of a StatefulSet, and of custom resources that copy it into the StatefulSets that they create.
const POLICY: &str = "/spec/persistentVolumeClaimRetentionPolicy/whenScaled";

/// Describes the data that is deleted when the object is scaled down; `None` if no data is deleted, or if its owner
/// accepts that.
pub(super) fn scaling_deletes(called: &str, metadata: &ObjectMeta, object: &Value) -> Option<String> {
    let annotations = metadata.annotations.as_ref();
    let accepted = annotations.and_then(|all| all.get(ACCEPTED));
    let policy = object.pointer(POLICY).and_then(Value::as_str);
    if policy != Some("Delete") || accepted.is_some_and(|accepted| accepted == "true") {
        return None;
    }
    Some(format!(
        "{called} has whenScaled: Delete in spec.persistentVolumeClaimRetentionPolicy, so a stop would delete its volumes: \
         set Retain, or accept the loss at each stop by the annotation {ACCEPTED}: \"true\" of that object. Until then \
         the operator neither starts nor stops it"
    ))
}

/// Reports whether a field sets a number of replicas.
pub(super) fn is_replicas(path: &Pointer) -> bool {
    path.parts().last().is_some_and(|last| last == "replicas")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deletes(policy: &Value, accepted: Option<&str>) -> bool {
        let annotations = accepted.map(|value| [(ACCEPTED.to_owned(), value.to_owned())].into());
        let metadata = ObjectMeta {
            annotations,
            ..ObjectMeta::default()
        };
        let object = json!({"spec": {"replicas": 1, "persistentVolumeClaimRetentionPolicy": policy}});
        scaling_deletes("StatefulSet n/db", &metadata, &object).is_some()
    }

    #[test]
    fn volumes_that_are_deleted_when_scaled_are_found_unless_accepted() {
        for (policy, accepted, expected) in [
            (
                json!({"whenScaled": "Delete", "whenDeleted": "Retain"}),
                None,
                true,
            ),
            (json!({"whenScaled": "Delete"}), Some("false"), true),
            (json!({"whenScaled": "Delete"}), Some(""), true),
            (json!({"whenScaled": "Delete"}), Some("true"), false),
            (
                json!({"whenScaled": "Retain", "whenDeleted": "Delete"}),
                None,
                false,
            ),
            (json!({}), None, false),
            (json!(null), None, false),
        ] {
            assert_eq!(deletes(&policy, accepted), expected, "{policy} {accepted:?}");
        }
    }

    #[test]
    fn number_of_replicas_is_named_by_its_path() {
        let of = |path| is_replicas(&Pointer::parse(path).unwrap());
        assert!(of("/spec/replicas") && of("/spec/shard/replicas"));
        assert!(!of("/spec/suspend") && !of("/spec/replicas/max"));
    }
}
