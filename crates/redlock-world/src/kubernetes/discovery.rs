//! Discovery: the groups, versions and resources that are served.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{error::ApiError, registry::ResourceKind, state::State};

const VERBS: [&str; 8] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];

pub(super) fn version() -> Value {
    json!({"major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z", "goVersion": "go1.26", "compiler": "gc", "platform": "linux/amd64"})
}

pub(super) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

impl State {
    /// Returns the versions of each group, except the core group.
    fn groups(&self) -> BTreeMap<String, Vec<String>> {
        let mut groups = BTreeMap::<String, Vec<String>>::new();
        for kind in self.kinds.values().filter(|kind| !kind.id.group.is_empty()) {
            let versions = groups.entry(kind.id.group.to_string()).or_default();
            if !versions.contains(&kind.version) {
                versions.push(kind.version.clone());
            }
        }
        for group in ["authentication.k8s.io", "authorization.k8s.io"] {
            groups.insert(group.to_owned(), vec!["v1".to_owned()]);
        }
        groups
    }

    /// Reports whether a version of a group is served.
    pub(super) fn serves(&self, group: &str, version: &str) -> bool {
        self.kinds
            .values()
            .any(|kind| kind.id.group == group && kind.version == version)
    }

    pub(super) fn group_list(&self) -> Value {
        let groups: Vec<Value> = self
            .groups()
            .iter()
            .map(|(name, versions)| group(name, versions))
            .collect();
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    }

    pub(super) fn group(&self, name: &str) -> Result<Value, ApiError> {
        let groups = self.groups();
        let versions = groups.get(name).ok_or_else(ApiError::no_resource)?;
        let mut found = group(name, versions);
        found["kind"] = "APIGroup".into();
        found["apiVersion"] = "v1".into();
        Ok(found)
    }

    pub(super) fn resource_list(&self, group: &str, version: &str) -> Result<Value, ApiError> {
        let kinds = self
            .kinds
            .values()
            .filter(|kind| kind.id.group == group && kind.version == version);
        let resources: Vec<Value> = kinds.flat_map(|kind| resources(kind)).collect();
        if resources.is_empty() {
            return Err(ApiError::no_resource());
        }
        let version = if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        };
        Ok(
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}),
        )
    }
}

fn group(name: &str, versions: &[String]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

fn resources(kind: &ResourceKind) -> Vec<Value> {
    let plural = &kind.id.plural;
    let mut all = vec![json!({
        "name": plural, "singularName": kind.singular, "namespaced": kind.is_namespaced, "kind": kind.kind,
        "verbs": VERBS,
    })];
    if !kind.short_names.is_empty() {
        all[0]["shortNames"] = kind.short_names.clone().into();
    }
    let verbs = ["get", "patch", "update"];
    if kind.has_status {
        all.push(
            json!({"name": format!("{plural}/status"), "singularName": "", "kind": kind.kind,
            "namespaced": kind.is_namespaced, "verbs": verbs}),
        );
    }
    if kind.scale.is_some() {
        all.push(
            json!({"name": format!("{plural}/scale"), "singularName": "", "kind": "Scale",
            "namespaced": kind.is_namespaced, "group": "autoscaling", "version": "v1", "verbs": verbs}),
        );
    }
    all
}
