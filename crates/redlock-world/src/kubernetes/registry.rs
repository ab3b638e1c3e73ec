//! The kinds that are served: the built-in table and the custom resources of the CRDs.

use std::sync::Arc;

use serde_json::Value;

use super::{
    resource::{BUILT_IN, ResourceId},
    schema::Schema,
};

/// A kind that is served.
#[derive(Clone, Debug)]
pub struct ResourceKind {
    pub id: ResourceId,
    pub version: String,
    pub kind: String,
    pub singular: String,
    pub short_names: Vec<String>,
    /// The further fields of a custom resource that a field selector may name.
    pub(super) selectable: Vec<String>,
    pub is_namespaced: bool,
    pub has_status: bool,
    pub has_generation: bool,
    pub(super) scale: Option<ScalePaths>,
    /// The schema of a custom resource; `None` for a built-in kind.
    pub(super) schema: Option<Arc<Schema>>,
}

/// The JSON pointers of the scale subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScalePaths {
    pub(super) wanted: String,
    pub(super) counted: String,
    pub(super) selector: Option<String>,
}

impl ResourceKind {
    pub fn api_version(&self) -> String {
        if self.id.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.id.group, self.version)
        }
    }

    pub(super) fn qualified(&self) -> String {
        if self.id.group.is_empty() {
            self.kind.clone()
        } else {
            format!("{}.{}", self.kind, self.id.group)
        }
    }

    pub(super) const fn is_custom(&self) -> bool {
        self.schema.is_some()
    }
}

/// Returns all built-in kinds.
pub(super) fn built_in() -> Vec<Arc<ResourceKind>> {
    let kinds = BUILT_IN.iter().map(|row| ResourceKind {
        id: row.id.clone(),
        version: row.version.to_owned(),
        kind: row.kind.to_owned(),
        singular: row.kind.to_lowercase(),
        short_names: Some(row.short_name.to_owned())
            .into_iter()
            .filter(|name| !name.is_empty())
            .collect(),
        selectable: Vec::new(),
        is_namespaced: row.namespaced,
        has_status: row.has_status,
        has_generation: row.has_generation,
        scale: row.has_scale.then(|| ScalePaths {
            wanted: "/spec/replicas".to_owned(),
            counted: "/status/replicas".to_owned(),
            selector: Some("/spec/selector".to_owned()),
        }),
        schema: None,
    });
    kinds.map(Arc::new).collect()
}

/// Returns the kind that a CRD defines, in its storage version; `None` if the CRD serves none.
pub(super) fn defined(definition: &Value) -> Option<ResourceKind> {
    let spec = &definition["spec"];
    let versions = spec["versions"].as_array()?;
    let version = versions
        .iter()
        .find(|version| version["storage"] == true && version["served"] == true)?;
    let names = &spec["names"];
    let subresources = &version["subresources"];
    let pointer = |field: &str| {
        let path = subresources["scale"][field].as_str()?;
        Some(path.replace('.', "/"))
    };
    let scale = subresources["scale"].is_object().then(|| ScalePaths {
        wanted: pointer("specReplicasPath").unwrap_or_default(),
        counted: pointer("statusReplicasPath").unwrap_or_default(),
        selector: pointer("labelSelectorPath"),
    });
    let selectable = version["selectableFields"].as_array().into_iter().flatten();
    let selectable = selectable.filter_map(|field| field["jsonPath"].as_str()?.strip_prefix('.'));
    let kind = names["kind"].as_str()?.to_owned();
    let short_names = names["shortNames"].as_array().into_iter().flatten();
    Some(ResourceKind {
        id: ResourceId::new(spec["group"].as_str()?, names["plural"].as_str()?),
        version: version["name"].as_str()?.to_owned(),
        singular: names["singular"]
            .as_str()
            .map_or_else(|| kind.to_lowercase(), str::to_owned),
        kind,
        short_names: short_names
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect(),
        selectable: selectable.map(str::to_owned).collect(),
        is_namespaced: spec["scope"] == "Namespaced",
        has_status: subresources["status"].is_object(),
        has_generation: true,
        scale,
        schema: Some(Arc::new(Schema::compile(&version["schema"]["openAPIV3Schema"]))),
    })
}
