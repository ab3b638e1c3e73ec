//! Failures of requests to the API server.

use kube::core::Status;
use thiserror::Error;

use super::ConditionReason;

/// The reason why a request to the API server failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum TargetError {
    #[error("{what}: {reason}")]
    Api {
        what: String,
        reason: String,
        /// Whether the request has no effect, such as after a refusal. Otherwise, the API server may still
        /// carry it out.
        refusal: bool,
    },
    #[error("{what}: {reason}{grant}")]
    Forbidden {
        what: String,
        reason: String,
        /// The missing RBAC rule, ready to paste; empty if the action does not know it.
        grant: String,
    },
    #[error("{what}: denied: {reason}; change the policy, or the object, that denies it")]
    Denied { what: String, reason: String },
    #[error("apiVersion {api_version:?} of kind {kind} is not valid: write GROUP/VERSION, such as apps/v1")]
    ApiVersion { api_version: String, kind: String },
    #[error(
        "no version of kind {kind} of {api_version} is served by the API server{}: whether the target runs is \
         unknown until the kind is served", elsewhere(.api_version, .kind)
    )]
    UnknownKind { api_version: String, kind: String },
    #[error(
        "{what}: kind {kind} is not served as {api_version} any more ({reason}): whether the target runs is unknown until \
         the object is found again"
    )]
    NotServed {
        what: String,
        api_version: String,
        kind: String,
        reason: String,
    },
    #[error(
        "kind {kind} of {api_version} has no scale subresource, which action Scale requires; use action Suspend for \
         CronJobs and Jobs"
    )]
    NoScale { api_version: String, kind: String },
    #[error(
        "kind {kind} of {api_version} belongs to no namespace: a lock switches objects of its own namespace"
    )]
    ClusterScoped { api_version: String, kind: String },
    #[error(
        "{what}: the API server rejects the write: {reason}; correct the path or the value in patch.fields, or change what \
         rejects it"
    )]
    Rejected { what: String, reason: String },
    #[error(
        "field {path} of {resource} may not be switched: {}", allowing(.group, .resource, .path)
    )]
    NotAllowed {
        path: String,
        group: String,
        resource: String,
    },
}

/// Returns the setting that allows the field, ready to paste.
fn allowing(group: &str, resource: &str, path: &str) -> String {
    let dot = if group.is_empty() { "" } else { "." };
    format!(
        "with the chart: targetFields: [{{group: {group:?}, resource: {resource}, path: {path:?}}}]; without: \
         --target-fields {resource}{dot}{group}:{path}"
    )
}

/// Kinds that every cluster serves and that may be targets, each with its apiVersion in a manifest.
const WELL_KNOWN: [(&str, &str); 8] = [
    ("CronJob", "batch/v1"),
    ("DaemonSet", "apps/v1"),
    ("Deployment", "apps/v1"),
    ("Job", "batch/v1"),
    ("Pod", "v1"),
    ("ReplicaSet", "apps/v1"),
    ("ReplicationController", "v1"),
    ("StatefulSet", "apps/v1"),
];

/// Returns a hint at the right group of a well-known kind that was requested in another group; empty for
/// every other kind.
fn elsewhere(api_version: &str, kind: &str) -> String {
    let group = |api_version: &str| api_version.rsplit_once('/').map(|(group, _)| group.to_owned());
    let known = WELL_KNOWN.iter().find(|(known, _)| *known == kind);
    let other = known.filter(|(_, at)| group(at) != group(api_version));
    other.map_or_else(String::new, |(kind, at)| {
        format!(" ({kind} is in {at}: set ref.apiVersion to that)")
    })
}

/// Reports whether a policy, a webhook or a quota denied a valid request of a client that has the right to send it. A missing
/// right is always reported with the verb and the resource.
fn is_denied(status: &Status) -> bool {
    match status.code {
        403 => !(status.message.contains("User \"") && status.message.contains(" cannot ")),
        422 => true,
        _ => false,
    }
}

impl TargetError {
    /// Reports whether the request failed without an effect, and cannot take effect later.
    pub(crate) const fn is_refusal(&self) -> bool {
        match self {
            Self::Api { refusal, .. } => *refusal,
            Self::Forbidden { .. }
            | Self::Denied { .. }
            | Self::ApiVersion { .. }
            | Self::UnknownKind { .. }
            | Self::NotServed { .. }
            | Self::NoScale { .. }
            | Self::ClusterScoped { .. }
            | Self::Rejected { .. }
            | Self::NotAllowed { .. } => true,
        }
    }

    /// Reports whether the schema of the object has no such field: strict validation refuses it, so no write can have
    /// set it.
    pub(crate) fn is_unknown_field(&self) -> bool {
        matches!(self, Self::Rejected { reason, .. } if reason.contains("unknown field"))
    }

    /// Reports whether the kind itself cannot be used, as opposed to a failure of the discovery.
    pub(crate) const fn is_about_kind(&self) -> bool {
        matches!(
            self,
            Self::ApiVersion { .. }
                | Self::UnknownKind { .. }
                | Self::NoScale { .. }
                | Self::ClusterScoped { .. }
        )
    }

    /// Returns the reason for the condition.
    pub(crate) const fn reason(&self) -> ConditionReason {
        match self {
            Self::Api { .. } => ConditionReason::TargetUnreachable,
            Self::Denied { .. } => ConditionReason::RequestDenied,
            Self::Forbidden { .. } | Self::NotAllowed { .. } => ConditionReason::Forbidden,
            Self::ApiVersion { .. } | Self::UnknownKind { .. } | Self::NotServed { .. } => {
                ConditionReason::KindUnknown
            }
            Self::ClusterScoped { .. } => ConditionReason::KindClusterScoped,
            Self::Rejected { .. } => ConditionReason::TargetNotSafe,
            Self::NoScale { .. } => ConditionReason::NoScaleSubresource,
        }
    }

    pub(crate) fn of(what: impl Into<String>, error: &kube::Error) -> Self {
        let what = what.into();
        match error {
            kube::Error::Api(status) if is_denied(status) => Self::Denied {
                what,
                reason: status.message.clone(),
            },
            kube::Error::Api(status) if status.is_forbidden() => Self::Forbidden {
                what,
                reason: status.message.clone(),
                grant: String::new(),
            },
            kube::Error::Api(status) => Self::Api {
                what,
                reason: status.message.clone(),
                refusal: (400..500).contains(&status.code),
            },
            other => Self::Api {
                what,
                reason: deepest(other),
                refusal: false,
            },
        }
    }

    /// Adds the rule that would allow the request.
    pub(crate) fn granting(self, rule: impl FnOnce() -> String) -> Self {
        match self {
            Self::Forbidden { what, reason, .. } => Self::Forbidden {
                what,
                reason,
                grant: format!("\n{}", rule()),
            },
            other => other,
        }
    }
}

/// Returns the innermost cause: the errors that wrap it only report that something failed.
pub(crate) fn deepest(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denial_by_a_policy_is_not_a_missing_right() {
        let refused = |code: u16, message: &str| {
            let status = Status {
                code,
                message: message.to_owned(),
                reason: if code == 403 { "Forbidden" } else { "Invalid" }.to_owned(),
                ..Status::default()
            };
            TargetError::of("writing", &kube::Error::Api(status.boxed())).reason()
        };
        let right = r#"deployments.apps "web" is forbidden: User "redlock" cannot patch resource "deployments/scale" in API group "apps""#;
        assert_eq!(refused(403, right), ConditionReason::Forbidden);
        for (code, denial) in [
            (
                403,
                r#"admission webhook "freeze.example" denied the request: change freeze"#,
            ),
            (
                403,
                r#"admission webhook "freeze.example" denied the request: replicas cannot be changed"#,
            ),
            (403, r#"pods "web" is forbidden: exceeded quota: team"#),
            (
                422,
                r#"deployments.apps "web" is forbidden: ValidatingAdmissionPolicy 'freeze' denied request: no"#,
            ),
        ] {
            assert_eq!(refused(code, denial), ConditionReason::RequestDenied, "{denial}");
        }
        assert_eq!(refused(500, "etcd"), ConditionReason::TargetUnreachable);
    }

    #[test]
    fn well_known_kind_in_the_wrong_group_is_named_with_the_right_one() {
        let unknown = |api_version: &str, kind: &str| {
            let (api_version, kind) = (api_version.to_owned(), kind.to_owned());
            TargetError::UnknownKind { api_version, kind }.to_string()
        };
        for (api_version, kind, wanted) in [
            ("v1", "Deployment", "Deployment is in apps/v1"),
            ("batch/v1", "StatefulSet", "StatefulSet is in apps/v1"),
            ("extensions/v1beta1", "Deployment", "Deployment is in apps/v1"),
            ("v1", "CronJob", "CronJob is in batch/v1"),
            ("apps/v1", "Pod", "Pod is in v1"),
        ] {
            let text = unknown(api_version, kind);
            assert!(text.contains(wanted), "{text}");
        }
        // The group is right, or the kind belongs to a custom resource.
        for (api_version, kind) in [("apps/v9", "Deployment"), ("v1", "Gate"), ("v2", "Pod")] {
            let text = unknown(api_version, kind);
            assert!(!text.contains(" is in "), "{text}");
        }
    }
}
