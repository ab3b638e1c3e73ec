//! How the fields of an object merge: which lists are sets or maps, and which objects are one value.

use serde_json::Value;

use super::schema::Schema;

/// How a list merges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum ListType {
    /// One value as a whole.
    #[default]
    Atomic,
    /// Each element is a field of its own.
    Set,
    /// Each element is identified by these keys.
    Map(Vec<String>),
}

/// The type of a value of an object.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape<'a> {
    /// A value of a built-in kind, or of the metadata: the field's own name decides.
    BuiltIn {
        field: &'a str,
    },
    /// The root of a custom resource.
    Root(&'a Schema),
    Custom(&'a Schema),
    /// A value that no schema describes: lists are atomic.
    Untyped,
}

impl<'a> Shape<'a> {
    pub(super) const fn of(schema: Option<&'a Schema>) -> Self {
        match schema {
            Some(schema) => Self::Root(schema),
            None => Self::BuiltIn { field: "" },
        }
    }

    pub(super) fn field(self, name: &'a str) -> Self {
        match self {
            Self::BuiltIn { .. } => Self::BuiltIn { field: name },
            Self::Root(_) if name == "metadata" => Self::BuiltIn { field: name },
            Self::Root(schema) | Self::Custom(schema) => {
                schema.property(name).map_or(Self::Untyped, Self::Custom)
            }
            Self::Untyped => Self::Untyped,
        }
    }

    pub(super) fn items(self) -> Self {
        match self {
            Self::BuiltIn { .. } => Self::BuiltIn { field: "" },
            Self::Root(schema) | Self::Custom(schema) => {
                schema.items.as_deref().map_or(Self::Untyped, Self::Custom)
            }
            Self::Untyped => Self::Untyped,
        }
    }

    pub(super) fn list_type(self) -> ListType {
        match self {
            Self::BuiltIn { field } => built_in_list(field),
            Self::Custom(schema) => schema.list_type.clone(),
            Self::Root(_) | Self::Untyped => ListType::Atomic,
        }
    }

    /// Reports whether an object is one value as a whole.
    pub(super) fn is_atomic_map(self) -> bool {
        match self {
            Self::BuiltIn { field } => matches!(
                field,
                "selector"
                    | "nodeSelector"
                    | "configMapKeyRef"
                    | "secretKeyRef"
                    | "fieldRef"
                    | "labelSelector"
                    | "involvedObject"
                    | "regarding"
                    | "related"
                    | "fieldsV1"
            ),
            Self::Custom(schema) => schema.is_atomic_map,
            Self::Root(_) | Self::Untyped => false,
        }
    }

    /// Reports whether this is the metadata of a built-in kind, or of a template.
    pub(super) fn is_metadata(self) -> bool {
        matches!(self, Self::BuiltIn { field: "metadata" })
    }

    /// Reports whether the writer of a new object of this shape also owns the object itself, beside its fields.
    pub(super) fn owns_new_map(self) -> bool {
        match self {
            Self::BuiltIn { field } => matches!(
                field,
                "labels"
                    | "annotations"
                    | "finalizers"
                    | "ownerReferences"
                    | "rollingUpdate"
                    | "data"
                    | "conditions"
                    | "podIPs"
                    | "series"
                    | "persistentVolumeClaimRetentionPolicy"
            ),
            Self::Custom(_) | Self::Untyped => true,
            Self::Root(_) => false,
        }
    }
}

fn built_in_list(field: &str) -> ListType {
    let keys: &[&str] = match field {
        "finalizers" => return ListType::Set,
        "ownerReferences" => &["uid"],
        "containers" | "initContainers" | "ephemeralContainers" | "env" | "volumes" | "imagePullSecrets" => {
            &["name"]
        }
        "ports" => &["containerPort", "protocol"],
        "volumeMounts" => &["mountPath"],
        "conditions" => &["type"],
        "podIPs" | "hostIPs" => &["ip"],
        _ => return ListType::Atomic,
    };
    ListType::Map(keys.iter().map(|key| (*key).to_owned()).collect())
}

/// Returns the key of a list element in the format of `fieldsV1`.
pub(super) fn element_key(list: &ListType, element: &Value) -> String {
    match list {
        ListType::Map(keys) => {
            let named = keys
                .iter()
                .filter_map(|key| element.get(key).map(|value| (key.clone(), value.clone())));
            format!("k:{}", Value::Object(named.collect()))
        }
        ListType::Set | ListType::Atomic => format!("v:{element}"),
    }
}
