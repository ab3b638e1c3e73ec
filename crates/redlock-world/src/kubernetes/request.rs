//! The paths and the parameters of requests.

use std::{collections::BTreeMap, time::Duration};

use super::{
    error::ApiError,
    object::ObjectKey,
    registry::ResourceKind,
    resource::ResourceId,
    selector::Selector,
    write::{Subresource, WriteOptions},
};

/// The target of a request, by its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Health,
    Version,
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/GROUP`
    Group(String),
    /// `/api/v1` or `/apis/GROUP/VERSION`
    Resources {
        group: String,
        version: String,
    },
    Object(ObjectRoute),
}

/// A resource, or an object of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObjectRoute {
    pub(super) resource: ResourceId,
    pub(super) version: String,
    pub(super) namespace: Option<String>,
    /// Empty for the whole resource.
    pub(super) name: String,
    pub(super) subresource: String,
}

impl ObjectRoute {
    pub(super) fn key(&self) -> ObjectKey {
        ObjectKey::new(
            self.resource.clone(),
            self.namespace.clone().unwrap_or_default(),
            self.name.clone(),
        )
    }
}

impl Route {
    pub(super) fn parse(path: &str) -> Option<Self> {
        let path: Vec<String> = path.trim_matches('/').split('/').map(decode).collect();
        let parts: Vec<&str> = path.iter().map(String::as_str).collect();
        match &parts[..] {
            ["livez" | "readyz" | "healthz", ..] => Some(Self::Health),
            ["version"] => Some(Self::Version),
            ["api"] => Some(Self::CoreVersions),
            ["apis"] => Some(Self::Groups),
            ["apis", group] => Some(Self::Group((*group).to_owned())),
            ["api", version] => Some(Self::resources("", version)),
            ["apis", group, version] => Some(Self::resources(group, version)),
            ["api", version, rest @ ..] => object("", version, rest),
            ["apis", group, version, rest @ ..] => object(group, version, rest),
            _ => None,
        }
    }

    fn resources(group: &str, version: &str) -> Self {
        Self::Resources {
            group: group.to_owned(),
            version: version.to_owned(),
        }
    }
}

fn object(group: &str, version: &str, rest: &[&str]) -> Option<Route> {
    let (namespace, plural, rest) = match rest {
        ["namespaces", _, "status" | "finalize"] if group.is_empty() => (None, "namespaces", &rest[1..]),
        ["namespaces", namespace, plural, rest @ ..] => (Some((*namespace).to_owned()), *plural, rest),
        [plural, rest @ ..] => (None, *plural, rest),
        [] => return None,
    };
    let (name, subresource) = match rest {
        [] => ("", ""),
        [name] => (*name, ""),
        [name, subresource] => (*name, *subresource),
        _ => return None,
    };
    Some(Route::Object(ObjectRoute {
        resource: ResourceId::new(group, plural),
        version: version.to_owned(),
        namespace,
        name: name.to_owned(),
        subresource: subresource.to_owned(),
    }))
}

fn decode(part: &str) -> String {
    if !part.contains('%') {
        return part.to_owned();
    }
    let mut bytes = Vec::new();
    let mut rest = part.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex
            .and_then(|hex| u8::from_str_radix(hex, 16).ok())
            .filter(|_| *first == b'%')
        {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The parameters of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Parameters(BTreeMap<String, String>);

impl Parameters {
    pub(super) fn parse(query: &str) -> Self {
        Self(
            url::form_urlencoded::parse(query.as_bytes())
                .into_owned()
                .collect(),
        )
    }

    pub(super) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        matches!(self.text(name), "true" | "1")
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name).parse().ok()
    }

    pub(super) fn seconds(&self, name: &str) -> Option<Duration> {
        self.number(name)
            .filter(|seconds| *seconds > 0)
            .map(Duration::from_secs)
    }

    pub(super) fn selector(&self, kind: &ResourceKind) -> Result<Selector, ApiError> {
        Selector::parse(kind, self.text("labelSelector"), self.text("fieldSelector"))
    }

    pub(super) fn write_options(&self, subresource: Subresource) -> WriteOptions {
        let manager = Some(self.text("fieldManager").to_owned());
        WriteOptions {
            manager: manager.filter(|manager| !manager.is_empty()),
            subresource,
            is_strict: self.text("fieldValidation") == "Strict",
            is_dry_run: self.text("dryRun") == "All",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(path: &str) -> (String, Option<String>, String, String) {
        match Route::parse(path) {
            Some(Route::Object(route)) => (
                route.resource.to_string(),
                route.namespace,
                route.name,
                route.subresource,
            ),
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn paths_name_resources_objects_and_subresources() {
        let text = str::to_owned;
        let of = |resource: &str, namespace: Option<&str>, name: &str, subresource: &str| {
            (text(resource), namespace.map(text), text(name), text(subresource))
        };
        assert_eq!(route("/api/v1/pods"), of("pods", None, "", ""));
        assert_eq!(route("/api/v1/namespaces/n"), of("namespaces", None, "n", ""));
        assert_eq!(
            route("/api/v1/namespaces/n/status"),
            of("namespaces", None, "n", "status")
        );
        assert_eq!(
            route("/api/v1/namespaces/n/pods/p"),
            of("pods", Some("n"), "p", "")
        );
        let scale = of("deployments.apps", Some("n"), "web", "scale");
        assert_eq!(route("/apis/apps/v1/namespaces/n/deployments/web/scale"), scale);
        assert_eq!(Route::parse("/livez"), Some(Route::Health));
        assert_eq!(Route::parse("/other"), None);
    }
}
