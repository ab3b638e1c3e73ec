//! A pod as LabelPods sees it.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta},
    jiff::Timestamp,
};

use crate::targets::slim::Pod;

/// The label that a Service selects, and its value.
pub(super) const ROLE: &str = "redlock.dev/role";
pub(super) const ACTIVE: &str = "active";
/// The annotation with the token under which the label was given.
pub(super) const TOKEN: &str = "redlock.dev/fencing-token";
/// The annotation with the lock that gave the label, and its target. By it, the operator recognizes its label
/// on a pod that the selector no longer matches, and leaves the label of another lock alone.
pub(super) const BY: &str = "redlock.dev/labelled-by";

/// The annotation with the manager that created the pod with the label: after the operator has removed the label, it
/// shows that the template has it.
pub(super) const FROM_TEMPLATE: &str = "redlock.dev/role-from-template";

/// One pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodSnapshot {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) version: String,
    /// Whether the selector matches the pod.
    pub(super) selected: bool,
    /// The time since which the pod is Ready; `None` if the pod is not Ready or is being deleted.
    pub(super) ready: Option<Timestamp>,
    pub(super) created: Option<Timestamp>,
    /// `None` for a pod without the labels of a controller.
    pub(super) revision: Option<Revision>,
    pub(super) labelled: bool,
    pub(super) by: Option<String>,
    pub(super) token: Option<u64>,
    pub(super) setter: Setter,
    /// The manager that created the pod with the label.
    pub(super) template: Option<String>,
}

/// The pod template that a pod was created from, as the labels of its controller identify it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Revision {
    /// The object whose template changes from revision to revision.
    pub(super) object: String,
    pub(super) hash: String,
}

/// The labels with the revision in pods of Deployments, and of StatefulSets and DaemonSets.
const HASHES: [&str; 2] = ["pod-template-hash", "controller-revision-hash"];

impl Revision {
    fn of(metadata: &ObjectMeta) -> Option<Self> {
        let labels = metadata.labels.as_ref()?;
        let hash = HASHES.iter().find_map(|name| labels.get(*name))?;
        let mut owners = metadata.owner_references.iter().flatten();
        let owner = owners.find(|owner| owner.controller == Some(true));
        let object = owner.map_or_else(String::new, |owner| {
            // The name of a Deployment's ReplicaSet is the name of the Deployment, followed by the hash.
            let own = owner.name.strip_suffix(&**hash);
            let of_deployment = own.and_then(|name| name.strip_suffix('-'));
            format!("{} {}", owner.kind, of_deployment.unwrap_or(&owner.name))
        });
        Some(Self {
            object,
            hash: hash.clone(),
        })
    }
}

/// The writer of the label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Setter {
    /// The operator, or an unknown manager.
    Own,
    /// The manager that created the pod: its template has the label.
    Maker(String),
    /// Another manager, after the creation.
    Other(String),
}

/// The longest annotation that is kept, in characters: longer than any that the operator writes.
const KEPT: usize = 1_024;

fn short(text: &str) -> String {
    text.chars().take(KEPT).collect()
}

impl PodSnapshot {
    pub(super) fn of(pod: Pod, selected: bool) -> Self {
        let ready = ready_since(&pod);
        let revision = Revision::of(&pod.metadata);
        let metadata = pod.metadata;
        let labels = metadata.labels.unwrap_or_default();
        let annotations = metadata.annotations.unwrap_or_default();
        let setter = setter(metadata.managed_fields.as_deref().unwrap_or_default());
        let template = match &setter {
            Setter::Maker(manager) => Some(manager.clone()),
            Setter::Own | Setter::Other(_) => annotations.get(FROM_TEMPLATE).map(|manager| short(manager)),
        };
        Self {
            selected,
            template,
            created: metadata.creation_timestamp.map(|time| time.0),
            revision,
            ready: ready.filter(|_| metadata.deletion_timestamp.is_none()),
            labelled: labels.get(ROLE).is_some_and(|role| role == ACTIVE),
            by: annotations.get(BY).map(|by| short(by)),
            token: annotations.get(TOKEN).and_then(|token| token.parse().ok()),
            setter,
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            version: metadata.resource_version.unwrap_or_default(),
        }
    }
}

impl PodSnapshot {
    /// Reports whether all fields but the version are equal.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let version = self.version.clone();
        *self
            == Self {
                version,
                ..other.clone()
            }
    }
}

fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions
        .iter()
        .find(|condition| condition.type_ == "Ready" && condition.status == "True")?;
    let since = ready.last_transition_time.as_ref();
    since
        .or(pod.metadata.creation_timestamp.as_ref())
        .map(|time| time.0)
}

fn setter(entries: &[ManagedFieldsEntry]) -> Setter {
    let of = |entry: &ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0)?;
        fields["f:metadata"]["f:labels"].get(format!("f:{ROLE}"))?;
        let manager = entry.manager.clone().unwrap_or_default();
        Some(match manager == super::pods::MANAGER {
            true => Setter::Own,
            false if fields.get("f:spec").is_some() => Setter::Maker(manager),
            false => Setter::Other(manager),
        })
    };
    entries.iter().find_map(of).unwrap_or(Setter::Own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn seen(manager: &str, spec: bool) -> PodSnapshot {
        let mut fields = json!({"f:metadata": {"f:labels": {".": {}, "f:redlock.dev/role": {}}}});
        if spec {
            fields["f:spec"] = json!({"f:containers": {}});
        }
        let pod = json!({
            "metadata": {
                "name": "a", "uid": "u", "resourceVersion": "7",
                "labels": {"redlock.dev/role": "active"},
                "annotations": {"redlock.dev/fencing-token": "12", "redlock.dev/labelled-by": "n/lock/t"},
                "managedFields": [
                    {"manager": "kubelet", "fieldsV1": {"f:status": {}}},
                    {"manager": manager, "fieldsV1": fields},
                ],
            },
            "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"}]},
        });
        PodSnapshot::of(serde_json::from_value(pod).unwrap(), true)
    }

    #[test]
    fn a_pod_is_read() {
        let pod = seen("redlock-operator-label-pods", false);
        assert!(pod.labelled && pod.ready.is_some());
        assert_eq!((pod.token, pod.by.as_deref()), (Some(12), Some("n/lock/t")));
    }

    #[test]
    fn the_writer_of_the_label_is_found_by_its_other_fields() {
        assert_eq!(seen("redlock-operator-label-pods", false).setter, Setter::Own);
        assert_eq!(
            seen("kubectl-label", false).setter,
            Setter::Other("kubectl-label".into())
        );
        let maker = "kube-controller-manager";
        assert_eq!(seen(maker, true).setter, Setter::Maker(maker.into()));
    }

    #[test]
    fn label_of_a_template_is_known_after_its_removal() {
        let of = |value| PodSnapshot::of(serde_json::from_value(value).unwrap(), true);
        assert_eq!(
            seen("kube-controller-manager", true).template.as_deref(),
            Some("kube-controller-manager")
        );
        assert_eq!(seen("kubectl-label", false).template, None);
        let taken = of(json!({"metadata": {"name": "a", "annotations": {FROM_TEMPLATE: "m"}}}));
        assert_eq!((taken.labelled, taken.template.as_deref()), (false, Some("m")));
        assert_eq!(of(json!({"metadata": {"name": "a"}})).template, None);
    }

    #[test]
    fn its_revision_is_of_the_object_that_is_rolled_out() {
        let of = |label: &str, owner: Option<(&str, &str)>| {
            let owners: Vec<_> = owner
                .iter()
                .map(|(kind, name)| json!({"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "o", "controller": true}))
                .collect();
            let pod =
                json!({"metadata": {"name": "a", "labels": {label: "5d9f"}, "ownerReferences": owners}});
            let snapshot = PodSnapshot::of(serde_json::from_value(pod).unwrap(), true);
            snapshot.revision.map(|revision| (revision.object, revision.hash))
        };
        let found = |object: &str| Some((object.to_owned(), "5d9f".to_owned()));
        let hash = "pod-template-hash";
        assert_eq!(
            of(hash, Some(("ReplicaSet", "web-5d9f"))),
            found("ReplicaSet web")
        );
        assert_eq!(of(hash, Some(("Other", "web"))), found("Other web"));
        let hash = "controller-revision-hash";
        assert_eq!(of(hash, Some(("StatefulSet", "web"))), found("StatefulSet web"));
        assert_eq!(of(hash, None), found(""));
        assert_eq!(of("app", Some(("ReplicaSet", "web-5d9f"))), None);
    }
}
