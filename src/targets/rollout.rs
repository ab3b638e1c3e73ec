//! Decides whether a rollout of an object starts its new pod before the old one has ended. Pure.

use serde_json::Value;

use crate::api::target::TargetRef;

/// The order in which a rollout replaces the one pod of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rollout {
    /// The new pod starts next to the old one.
    Surges,
    /// The old pod is deleted before the new one is created.
    Replaces,
}

/// Returns the rollout of an object; `None` for other kinds, and for content that cannot be read.
pub(super) fn rollout(reference: &TargetRef, object: &Value) -> Option<Rollout> {
    if !is_judged(reference) {
        return None;
    }
    // The API server stores no Deployment without a spec.
    let spec = object.get("spec")?;
    let kind = spec.pointer("/strategy/type").and_then(Value::as_str);
    match kind.unwrap_or("RollingUpdate") {
        "Recreate" => Some(Rollout::Replaces),
        "RollingUpdate" => {
            let surge = spec.pointer("/strategy/rollingUpdate/maxSurge");
            Some(match surge.map_or(Some(true), surges)? {
                true => Rollout::Surges,
                false => Rollout::Replaces,
            })
        }
        _ => None,
    }
}

/// Reports whether rollouts of this kind are known. A StatefulSet never surges. Other kinds with a scale subresource
/// are unknown.
pub(crate) fn is_judged(reference: &TargetRef) -> bool {
    reference.kind == "Deployment" && reference.api_version.starts_with("apps/")
}

/// Reports whether `maxSurge` allows one pod more than the wanted one: a percentage is rounded up.
fn surges(max_surge: &Value) -> Option<bool> {
    match max_surge {
        Value::Null => Some(true),
        Value::Number(pods) => Some(pods.as_u64()? > 0),
        Value::String(share) => Some(share.strip_suffix('%')?.parse::<u64>().ok()? > 0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(spec: &Value) -> Option<Rollout> {
        of("apps/v1", "Deployment", spec)
    }

    fn of(api_version: &str, kind: &str, spec: &Value) -> Option<Rollout> {
        let reference = TargetRef {
            api_version: api_version.into(),
            kind: kind.into(),
            name: "web".into(),
        };
        rollout(&reference, &json!({ "spec": spec }))
    }

    #[test]
    fn one_pod_surges_unless_max_surge_is_zero() {
        use Rollout::{Replaces, Surges};
        for (surge, found) in [
            (json!("25%"), Some(Surges)),
            (json!("1%"), Some(Surges)),
            (json!("100%"), Some(Surges)),
            (json!("0%"), Some(Replaces)),
            (json!(0), Some(Replaces)),
            (json!(1), Some(Surges)),
            (json!(3), Some(Surges)),
            (json!(null), Some(Surges)),
            // The API server accepts none of these.
            (json!("1"), None),
            (json!(-1), None),
            (json!("x%"), None),
        ] {
            let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge}});
            assert_eq!(deployment(&json!({"strategy": strategy})), found, "{surge}");
            // `RollingUpdate` is the default type.
            let strategy = json!({"rollingUpdate": {"maxSurge": surge, "maxUnavailable": 1}});
            assert_eq!(deployment(&json!({"strategy": strategy})), found, "{surge}");
        }
    }

    #[test]
    fn without_a_strategy_kubernetes_rolls_with_a_surge() {
        use Rollout::{Replaces, Surges};
        for spec in [
            json!({"replicas": 1}),
            json!({"strategy": {}}),
            json!({"strategy": {"type": "RollingUpdate"}}),
            json!({"strategy": {"rollingUpdate": {"maxUnavailable": 1}}}),
        ] {
            assert_eq!(deployment(&spec), Some(Surges), "{spec}");
        }
        assert_eq!(
            deployment(&json!({"strategy": {"type": "Recreate"}})),
            Some(Replaces)
        );
        assert_eq!(deployment(&json!({"strategy": {"type": "Another"}})), None);
    }

    #[test]
    fn of_other_kinds_nothing_is_known() {
        for (api_version, kind) in [
            ("apps/v1", "StatefulSet"),
            ("apps/v1", "ReplicaSet"),
            ("argoproj.io/v1alpha1", "Rollout"),
            ("test.example/v1", "Deployment"),
        ] {
            assert_eq!(of(api_version, kind, &json!({"replicas": 1})), None, "{kind}");
        }
        assert_eq!(
            of("apps/v1beta2", "Deployment", &json!({})),
            Some(Rollout::Surges)
        );
        let reference = TargetRef {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            name: "web".into(),
        };
        assert_eq!(rollout(&reference, &json!({})), None, "no content");
    }
}
