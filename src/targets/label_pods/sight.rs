//! A pod as this action sees it.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry, jiff::Timestamp};

use crate::targets::slim::Pod;

/// The label that a Service selects, and its value.
pub(super) const ROLE: &str = "redlock.dev/role";
pub(super) const ACTIVE: &str = "active";
/// The token under which the label was given.
pub(super) const TOKEN: &str = "redlock.dev/fencing-token";
/// Which lock gave the label, by which of its targets: what is left on a pod that the selector does not match any more
/// is found by it, and what another lock gave is left to that one.
pub(super) const BY: &str = "redlock.dev/labelled-by";

/// One pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sight {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) version: String,
    /// The selector matches it.
    pub(super) selected: bool,
    /// It is Ready and stays: since when.
    pub(super) ready: Option<Timestamp>,
    pub(super) labelled: bool,
    pub(super) by: Option<String>,
    pub(super) token: Option<u64>,
    pub(super) setter: Setter,
}

/// Who gave the label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Setter {
    /// The operator, or nobody.
    Own,
    /// The pod was made with it, by this manager: its template has it.
    Maker(String),
    /// Somebody else, later.
    Other(String),
}

impl Sight {
    pub(super) fn of(pod: Pod, selected: bool) -> Self {
        let ready = ready_since(&pod);
        let metadata = pod.metadata;
        let labels = metadata.labels.unwrap_or_default();
        let annotations = metadata.annotations.unwrap_or_default();
        Self {
            selected,
            ready: ready.filter(|_| metadata.deletion_timestamp.is_none()),
            labelled: labels.get(ROLE).is_some_and(|role| role == ACTIVE),
            by: annotations.get(BY).cloned(),
            token: annotations.get(TOKEN).and_then(|token| token.parse().ok()),
            setter: setter(metadata.managed_fields.as_deref().unwrap_or_default()),
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            version: metadata.resource_version.unwrap_or_default(),
        }
    }
}

impl Sight {
    /// The same in all but its version.
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

    fn seen(manager: &str, spec: bool) -> Sight {
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
        Sight::of(serde_json::from_value(pod).unwrap(), true)
    }

    #[test]
    fn a_pod_is_read() {
        let pod = seen("redlock-operator-label-pods", false);
        assert!(pod.labelled && pod.ready.is_some());
        assert_eq!((pod.token, pod.by.as_deref()), (Some(12), Some("n/lock/t")));
    }

    #[test]
    fn who_gave_the_label_is_told_by_what_else_they_wrote() {
        assert_eq!(seen("redlock-operator-label-pods", false).setter, Setter::Own);
        assert_eq!(
            seen("kubectl-label", false).setter,
            Setter::Other("kubectl-label".into())
        );
        let maker = "kube-controller-manager";
        assert_eq!(seen(maker, true).setter, Setter::Maker(maker.into()));
    }
}
