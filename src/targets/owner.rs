//! Finds the manager that declares a field: a start does not overwrite the field of another manager.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, OwnerReference, Time};
use serde_json::{Map, Value};

/// The prefix of all field managers of the operator.
const OWN: &str = "redlock-operator";
/// The annotation in which `kubectl apply` without `--server-side` (and Argo CD) stores the manifest.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The annotation on an object whose replicas were changed at its creation by the chart's admission policy for
/// standbys.
const CREATED_ON_STANDBY: &str = "redlock.dev/created-on-standby";

/// Returns the other manager that declares this field, such as `["spec", "replicas"]`.
///
/// Not every owner in managedFields declares it: a manager that creates an object, or applies it from the client, also
/// owns the defaults. A creation therefore declares nothing, and an apply from the client declares the fields of its
/// manifest.
pub(super) fn declared_by<P: AsRef<str>>(metadata: &ObjectMeta, path: &[P]) -> Option<String> {
    let owner = foreign(metadata, path).find(|entry| declares(entry, metadata, path))?;
    Some(manager(owner).to_owned())
}

/// Returns the other manager that wrote this field last, even if it only wrote a default.
pub(super) fn last_writer<P: AsRef<str>>(metadata: &ObjectMeta, path: &[P]) -> Option<String> {
    let last = foreign(metadata, path).max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?;
    Some(manager(last).to_owned())
}

/// Returns each manager that owns this field, with the time of its last write: a value that was changed and changed back
/// has another owner, or a later one.
pub(super) fn writers<P: AsRef<str>>(metadata: &ObjectMeta, path: &[P]) -> Vec<String> {
    let named = |entry: &ManagedFieldsEntry| {
        let time = entry.time.as_ref().map(|time| time.0.to_string());
        format!("{} {}", manager(entry), time.unwrap_or_default())
    };
    owners(metadata, path).map(named).collect()
}

/// Reports whether the operator owns this field, according to managedFields.
pub(super) fn is_own<P: AsRef<str>>(metadata: &ObjectMeta, path: &[P]) -> bool {
    owners(metadata, path).any(|entry| manager(entry).starts_with(OWN))
}

/// Returns the object that controls this one.
pub(super) fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true))
}

/// Returns the controller that decides on `spec.suspend` of a Job. It would undo a start, and a stop as well.
pub(super) fn suspends(metadata: &ObjectMeta) -> Option<String> {
    if let Some(set) = controller(metadata).filter(|owner| owner.kind == "JobSet") {
        return Some(format!("JobSet {}", set.name));
    }
    let queue = metadata.labels.as_ref()?.get(QUEUE)?;
    Some(format!("Kueue (LocalQueue {queue})"))
}

/// The label of a workload that Kueue admits.
const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// Names a field manager in messages, with its product if that is known.
pub(super) fn named(manager: &str) -> String {
    let name = manager.to_lowercase();
    let known = [
        ("argocd", "Argo CD"),
        ("helm-controller", "Flux"),
        ("jobset", "JobSet"),
        ("keda", "KEDA"),
        (
            "kube-controller-manager",
            "a controller of Kubernetes such as a HorizontalPodAutoscaler",
        ),
        ("kueue", "Kueue"),
        ("kustomize-controller", "Flux"),
    ];
    let product = known.iter().find(|(prefix, _)| name.starts_with(prefix));
    product.map_or_else(
        || format!("{manager:?}"),
        |(_, product)| format!("{product} (field manager {manager:?})"),
    )
}

fn foreign<'a, P: AsRef<str>>(
    metadata: &'a ObjectMeta,
    path: &'a [P],
) -> impl Iterator<Item = &'a ManagedFieldsEntry> {
    owners(metadata, path).filter(|entry| !manager(entry).starts_with(OWN))
}

/// Returns the entries of all managers that own this field, individually or as part of a map that has one
/// owner as a whole.
fn owners<'a, P: AsRef<str>>(
    metadata: &'a ObjectMeta,
    path: &'a [P],
) -> impl Iterator<Item = &'a ManagedFieldsEntry> {
    let entries = metadata.managed_fields.as_deref().unwrap_or_default();
    let fields = |entry: &'a ManagedFieldsEntry| entry.fields_v1.as_ref().map(|fields| &fields.0);
    // If a manager owns the field individually, an entry of the map alone shows only that the map exists.
    let by_itself = entries.iter().filter_map(fields).any(|fields| has(fields, path));
    let owns = move |entry: &&'a ManagedFieldsEntry| {
        fields(entry).is_some_and(|fields| {
            if by_itself {
                has(fields, path)
            } else {
                has_whole(fields, path)
            }
        })
    };
    entries.iter().filter(owns)
}

fn declares<P: AsRef<str>>(entry: &ManagedFieldsEntry, metadata: &ObjectMeta, path: &[P]) -> bool {
    let later =
        entry.time.as_ref().map(second) > metadata.creation_timestamp.as_ref().map(|at| second(at) + 1);
    let annotations = metadata.annotations.as_ref();
    if !later && annotations.is_some_and(|all| all.contains_key(CREATED_ON_STANDBY)) {
        // The admission policy, and not the manager, chose the value.
        return false;
    }
    if entry.operation.as_deref() == Some("Apply") {
        return true;
    }
    match last_applied(metadata) {
        // The manifest does not describe a write through a subresource.
        Some(manifest) if entry.subresource.is_none() => {
            let mut at = Some(&manifest);
            for part in path {
                at = at.and_then(|at| at.get(part.as_ref()));
            }
            at.is_some()
        }
        // A subresource creates no object, so the write is later than the creation.
        _ if entry.subresource.is_some() => true,
        _ => later,
    }
}

/// Truncates a time to whole seconds. An entry of managedFields may be a little later than the creation that
/// it records.
fn second(time: &Time) -> i64 {
    time.0.as_second()
}

fn last_applied(metadata: &ObjectMeta) -> Option<Value> {
    let annotations = metadata.annotations.as_ref()?;
    serde_json::from_str(annotations.get(LAST_APPLIED)?).ok()
}

fn manager(entry: &ManagedFieldsEntry) -> &str {
    entry.manager.as_deref().unwrap_or_default()
}

/// Reports whether `fields` contains the field at this path.
fn has<P: AsRef<str>>(fields: &Value, path: &[P]) -> bool {
    let mut at = Some(fields);
    for part in path {
        at = at.and_then(|at| at.get(format!("f:{}", part.as_ref())));
    }
    at.is_some()
}

/// Reports whether `fields` contains a map, below the top level, that includes this field, but no part of
/// that map.
fn has_whole<P: AsRef<str>>(fields: &Value, path: &[P]) -> bool {
    let mut at = fields;
    for (depth, part) in path.iter().enumerate() {
        match at.get(format!("f:{}", part.as_ref())) {
            Some(next) => at = next,
            None => return depth > 1 && at.as_object().is_some_and(Map::is_empty),
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLICAS: [&str; 2] = ["spec", "replicas"];

    /// An object that was created at 12:00 by `manager`, which wrote `replicas` a second after 12:`minute`.
    fn metadata(manager: &str, operation: &str, subresource: Option<&str>, minute: u8) -> ObjectMeta {
        serde_json::from_value(serde_json::json!({
            "creationTimestamp": "2026-01-01T12:00:00Z",
            "managedFields": [{
                "manager": manager, "operation": operation, "subresource": subresource,
                "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
                "time": format!("2026-01-01T12:{minute:02}:01Z"),
                "fieldsV1": {"f:spec": {"f:replicas": {}}},
            }],
        }))
        .unwrap()
    }

    fn applied(manifest: &str) -> ObjectMeta {
        let mut metadata = metadata("kubectl-client-side-apply", "Update", None, 5);
        metadata.annotations = Some([(LAST_APPLIED.to_owned(), manifest.to_owned())].into());
        metadata
    }

    #[test]
    fn the_declaring_manager_of_a_field_is_found() {
        let flux = metadata("kustomize-controller", "Apply", None, 0);
        assert_eq!(
            declared_by(&flux, &REPLICAS).as_deref(),
            Some("kustomize-controller")
        );
        assert_eq!(declared_by(&flux, &["spec", "suspend"]), None, "another field");
        let ours = metadata("redlock-operator-scale", "Update", Some("scale"), 5);
        assert_eq!(declared_by(&ours, &REPLICAS), None);
        let by_hand = metadata("kubectl", "Update", Some("scale"), 5);
        assert_eq!(declared_by(&by_hand, &REPLICAS).as_deref(), Some("kubectl"));
        let at_once = metadata("kube-controller-manager", "Update", Some("scale"), 0);
        assert!(
            declared_by(&at_once, &REPLICAS).is_some(),
            "an autoscaler is quick"
        );
        let edited = metadata("kubectl-edit", "Update", None, 5);
        assert_eq!(declared_by(&edited, &REPLICAS).as_deref(), Some("kubectl-edit"));
    }

    #[test]
    fn a_field_that_a_policy_set_is_not_declared_by_the_creator() {
        let mark = |mut metadata: ObjectMeta| {
            let annotations = metadata.annotations.get_or_insert_default();
            annotations.insert(CREATED_ON_STANDBY.to_owned(), "true".to_owned());
            metadata
        };
        let made = metadata("flux", "Apply", None, 0);
        assert!(declared_by(&made, &REPLICAS).is_some());
        assert_eq!(declared_by(&mark(made), &REPLICAS), None);
        let later = mark(metadata("flux", "Apply", None, 5));
        assert!(declared_by(&later, &REPLICAS).is_some(), "written since");
        let by_hand = mark(metadata("kubectl", "Update", Some("scale"), 5));
        assert!(declared_by(&by_hand, &REPLICAS).is_some());
    }

    #[test]
    fn known_writers_are_named() {
        for (manager, name) in [
            ("keda", "KEDA (field manager \"keda\")"),
            ("keda-operator", "KEDA (field manager \"keda-operator\")"),
            ("kueue", "Kueue (field manager \"kueue\")"),
            (
                "argocd-controller",
                "Argo CD (field manager \"argocd-controller\")",
            ),
            ("some-tool", "\"some-tool\""),
            ("kubectl", "\"kubectl\""),
        ] {
            assert_eq!(named(manager), name);
        }
        assert!(named("kube-controller-manager").contains("HorizontalPodAutoscaler"));
    }

    #[test]
    fn a_job_of_kueue_or_of_a_jobset_is_theirs_to_suspend() {
        let metadata = |value| serde_json::from_value::<ObjectMeta>(value).unwrap();
        let queued = metadata(serde_json::json!({"labels": {"kueue.x-k8s.io/queue-name": "team"}}));
        assert_eq!(suspends(&queued).as_deref(), Some("Kueue (LocalQueue team)"));
        let owner = |kind: &str, controller: bool| {
            metadata(serde_json::json!({"ownerReferences": [{
                "apiVersion": "x/v1", "kind": kind, "name": "train", "uid": "u", "controller": controller,
            }]}))
        };
        assert_eq!(suspends(&owner("JobSet", true)).as_deref(), Some("JobSet train"));
        assert_eq!(suspends(&owner("JobSet", false)), None);
        assert_eq!(suspends(&owner("CronJob", true)), None);
        assert_eq!(suspends(&ObjectMeta::default()), None);
    }

    #[test]
    fn a_map_with_one_owner_belongs_to_it_as_a_whole() {
        let owned = |fields: Value| {
            let mut metadata = metadata("flux", "Apply", None, 5);
            metadata.managed_fields.as_mut().unwrap()[0].fields_v1 = serde_json::from_value(fields).unwrap();
            metadata
        };
        let selector = owned(serde_json::json!({"f:spec": {"f:selector": {}}}));
        assert!(declared_by(&selector, &["spec", "selector"]).is_some());
        assert!(declared_by(&selector, &["spec", "selector", "app"]).is_some());
        assert_eq!(declared_by(&selector, &["spec", "ports"]), None);
        let part = owned(serde_json::json!({"f:spec": {"f:selector": {"f:app": {}}}}));
        assert!(
            declared_by(&part, &["spec", "selector"]).is_some(),
            "a part of it"
        );
        assert_eq!(declared_by(&part, &["spec", "selector", "tier"]), None);
        // An entry of a whole `spec` only shows that it exists.
        let bare = owned(serde_json::json!({"f:spec": {}}));
        assert_eq!(declared_by(&bare, &["spec", "replicas"]), None);
        // The same applies to an entry of a map if another manager owns a part of the map.
        let mut shared = owned(serde_json::json!({"f:spec": {"f:sync": {}}}));
        let mut entry = shared.managed_fields.as_ref().unwrap()[0].clone();
        entry.manager = Some("redlock-operator-patch".into());
        entry.fields_v1 =
            serde_json::from_value(serde_json::json!({"f:spec": {"f:sync": {"f:enabled": {}}}})).unwrap();
        shared.managed_fields.as_mut().unwrap().push(entry);
        assert_eq!(declared_by(&shared, &["spec", "sync", "enabled"]), None);
        let annotation = owned(serde_json::json!({"f:metadata": {"f:annotations": {"f:a.b/c": {}}}}));
        assert!(declared_by(&annotation, &["metadata", "annotations", "a.b/c"]).is_some());
    }

    #[test]
    fn value_that_was_changed_and_changed_back_has_other_writers() {
        let before = metadata("redlock-operator-patch", "Update", None, 5);
        let after = metadata("kubectl", "Update", None, 5);
        let later = metadata("redlock-operator-patch", "Update", None, 6);
        let [before, after, later] = [before, after, later].map(|metadata| writers(&metadata, &REPLICAS));
        assert_eq!(before.len(), 1);
        assert!(before != after && before != later);
    }

    #[test]
    fn a_default_declares_no_field() {
        let created = metadata("kubectl-create", "Update", None, 0);
        assert_eq!(declared_by(&created, &REPLICAS), None);
        assert_eq!(
            declared_by(&applied(r#"{"spec": {"template": {}}}"#), &REPLICAS),
            None
        );
        let declared = applied(r#"{"spec": {"replicas": 1}}"#);
        assert_eq!(
            declared_by(&declared, &REPLICAS).as_deref(),
            Some("kubectl-client-side-apply")
        );
    }
}
