//! The fields that the action Patch may set. A lock switches its targets with the rights of the operator, which cannot be
//! granted for a single field, so the operator checks each field itself.

use std::{collections::BTreeSet, str::FromStr};

use kube::api::ApiResource;

use super::TargetError;
use crate::api::pointer::Pointer;

/// API groups whose resources may never be patched: a write could grant rights, change the rules of the API
/// server for accepting objects, or run other code, and locks switch workloads and Leases by other actions.
const FORBIDDEN_GROUPS: [&str; 13] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "extensions",
    "policy",
    "rbac.authorization.k8s.io",
    "redlock.dev",
];
/// The only resource of the core group that may be patched.
const CORE: &str = "services";

/// A field, identified by its path, in all objects of a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AllowedField {
    group: String,
    resource: String,
    path: Pointer,
}

impl FromStr for AllowedField {
    type Err = String;

    /// Parses `RESOURCE.GROUP:PATH`, or `RESOURCE:PATH` for the core group.
    fn from_str(text: &str) -> Result<Self, String> {
        let example =
            "write RESOURCE.GROUP:PATH, such as kustomizations.kustomize.toolkit.fluxcd.io:/spec/suspend";
        let (of, path) = text.split_once(':').ok_or(example)?;
        let (resource, group) = of.split_once('.').unwrap_or((of, ""));
        if resource.is_empty() || group.starts_with('.') || of.ends_with('.') {
            return Err(example.to_owned());
        }
        if FORBIDDEN_GROUPS.contains(&group) || (group.is_empty() && resource != CORE) {
            return Err(format!(
                "{of} is a resource that action Patch never switches: rights, admission, Secrets and workloads are excluded"
            ));
        }
        let path = Pointer::parse(path)
            .filter(|path| path.is_below("spec") || path.annotation().is_some())
            .ok_or_else(|| {
                format!("{path:?} is not a JSON Pointer below /spec/ or /metadata/annotations/")
            })?;
        let (group, resource) = (group.to_owned(), resource.to_owned());
        Ok(Self {
            group,
            resource,
            path,
        })
    }
}

/// The fields that the action Patch may set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AllowedFields(BTreeSet<AllowedField>);

impl FromIterator<AllowedField> for AllowedFields {
    fn from_iter<I: IntoIterator<Item = AllowedField>>(fields: I) -> Self {
        Self(fields.into_iter().collect())
    }
}

impl AllowedFields {
    /// Returns an error unless exactly this field may be set.
    pub(super) fn check(&self, resource: &ApiResource, path: &Pointer) -> Result<(), TargetError> {
        let (group, plural) = (&resource.group, &resource.plural);
        let is =
            |field: &AllowedField| field.group == *group && field.resource == *plural && field.path == *path;
        if self.0.iter().any(is) {
            return Ok(());
        }
        Err(TargetError::NotAllowed {
            path: path.to_string(),
            group: group.clone(),
            resource: plural.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_listed_fields_of_a_resource_are_allowed() {
        let list = [
            "kustomizations.kustomize.toolkit.fluxcd.io:/spec/suspend",
            "services:/spec/selector",
        ];
        let allowed: AllowedFields = list.iter().map(|field| field.parse().unwrap()).collect();
        let allow = |group: &str, plural: &str, path| {
            let resource = ApiResource {
                group: group.into(),
                version: "v1".into(),
                api_version: format!("{group}/v1"),
                kind: "Kind".into(),
                plural: plural.into(),
            };
            allowed.check(&resource, &Pointer::parse(path).unwrap()).is_ok()
        };
        let flux = "kustomize.toolkit.fluxcd.io";
        assert!(allow(flux, "kustomizations", "/spec/suspend") && allow("", "services", "/spec/selector"));
        for (group, resource, path) in [
            (flux, "kustomizations", "/spec/serviceAccountName"),
            (flux, "kustomizations", "/spec/suspend/deeper"),
            (flux, "helmreleases", "/spec/suspend"),
            ("", "kustomizations", "/spec/suspend"),
            ("", "services", "/spec/selector/app"),
        ] {
            assert!(!allow(group, resource, path), "{group} {resource} {path}");
        }
    }

    #[test]
    fn chart_refuses_the_same_groups() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/charts/redlock-operator/templates/_quorums.tpl"
        );
        let template = std::fs::read_to_string(path).unwrap();
        let (_, list) = template.split_once("$groups := list ").unwrap();
        let (list, _) = list.split_once(" -}}").unwrap();
        let groups: Vec<&str> = list.split(' ').map(|group| group.trim_matches('"')).collect();
        assert_eq!(groups, FORBIDDEN_GROUPS);
    }

    #[test]
    fn resources_that_carry_rights_or_run_code_are_refused() {
        for of in [
            "roles.rbac.authorization.k8s.io",
            "validatingwebhookconfigurations.admissionregistration.k8s.io",
            "customresourcedefinitions.apiextensions.k8s.io",
            "deployments.apps",
            "jobs.batch",
            "leases.coordination.k8s.io",
            "leaderlocks.redlock.dev",
            "secrets",
            "serviceaccounts",
            "pods",
        ] {
            let message = format!("{of}:/spec/a").parse::<AllowedField>().unwrap_err();
            assert!(message.contains("never switches"), "{of}: {message}");
        }
        for text in [
            "",
            "a",
            "a.b",
            ":/spec/a",
            ".b:/spec/a",
            "a.:/spec/a",
            "a.b:spec",
            "a.b:/status/a",
            "a.b:/spec",
            "a.b:/metadata/labels/x",
        ] {
            assert!(text.parse::<AllowedField>().is_err(), "{text:?}");
        }
    }
}
