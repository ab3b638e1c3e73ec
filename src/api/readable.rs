//! Reads an object of the API server without the parts that the operator never reads, and within bounds.
//!
//! A namespace may fill the annotations and the managed fields of an object with hundreds of kilobytes, and a spec with more
//! than a megabyte. None of it is decoded, and so none of it takes memory.

mod metadata;

use std::collections::BTreeMap;

use kube::{
    Resource,
    core::{DeserializeGuard, ObjectMeta, error_boundary::InvalidObject},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json, value::RawValue};

use super::{
    LeaderLock, LeaderLockSpec, RedisQuorum, RedisQuorumSpec,
    bounds::{LOCK_SPEC_LIMIT, QUORUM_SPEC_LIMIT, STATUS_LIMIT},
    lock_status::LeaderLockStatus,
    quorum_status::RedisQuorumStatus,
    target::TARGET_LIMIT,
};
pub(crate) use metadata::trim;

/// A kind whose spec and status are read separately.
pub(crate) trait ReadInParts: Resource + Sized {
    /// The longest spec, as JSON in bytes.
    const SPEC_LIMIT: usize;
    type Spec: DeserializeOwned;
    type Status: DeserializeOwned;

    fn of(metadata: ObjectMeta, spec: Self::Spec, status: Option<Self::Status>) -> Self;
}

impl ReadInParts for LeaderLock {
    const SPEC_LIMIT: usize = LOCK_SPEC_LIMIT;

    type Spec = LeaderLockSpec;
    type Status = LeaderLockStatus;

    fn of(metadata: ObjectMeta, spec: Self::Spec, status: Option<Self::Status>) -> Self {
        Self {
            metadata,
            spec,
            status,
        }
    }
}

impl ReadInParts for RedisQuorum {
    const SPEC_LIMIT: usize = QUORUM_SPEC_LIMIT;

    type Spec = RedisQuorumSpec;
    type Status = RedisQuorumStatus;

    fn of(metadata: ObjectMeta, spec: Self::Spec, status: Option<Self::Status>) -> Self {
        Self {
            metadata,
            spec,
            status,
        }
    }
}

#[derive(Deserialize)]
struct Parts<'a> {
    metadata: metadata::Kept,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
}

/// Reads an object from its JSON. An object that this version cannot use has its metadata and the reason.
///
/// # Errors
/// Returns an error if the text is not an object with metadata.
pub(crate) fn read_in_parts<K: ReadInParts>(text: &str) -> serde_json::Result<DeserializeGuard<K>> {
    let parts: Parts<'_> = serde_json::from_str(text)?;
    let metadata = ObjectMeta::from(parts.metadata);
    let spec = parts.spec.map_or("null", RawValue::get);
    let read = read_spec::<K::Spec>(spec, K::SPEC_LIMIT)
        .and_then(|spec| Ok((spec, read_status::<K::Status>(parts.status)?)));
    Ok(DeserializeGuard(match read {
        Ok((spec, status)) => Ok(K::of(metadata, spec, status)),
        Err(error) => Err(InvalidObject { error, metadata }),
    }))
}

fn read_spec<T: DeserializeOwned>(text: &str, limit: usize) -> Result<T, String> {
    if text.len() > limit {
        return Err(format!(
            "invalid spec: has {} bytes of JSON: use at most {limit} bytes; shorten it, or declare several objects",
            text.len()
        ));
    }
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// Reads a status. One that is longer than any that the operator writes is of another writer: the operator replaces it.
fn read_status<T: DeserializeOwned>(status: Option<&RawValue>) -> Result<Option<T>, String> {
    let status = status.filter(|status| status.get().len() <= STATUS_LIMIT);
    let status = status.map(|status| serde_json::from_str(status.get()));
    status
        .transpose()
        .map(Option::flatten)
        .map_err(|error| error.to_string())
}

/// The longest field of a spec, and the longest target, that [`outline`] keeps.
const FIELD_LIMIT: usize = 8_192;

/// Returns the metadata and the spec of an object that [`read_in_parts`] refuses, for [`super::salvage`]. A field that is too
/// long is left out; of a target that is too long, only its name is left.
pub(crate) fn outline(text: &str) -> Option<Value> {
    let parts: Parts<'_> = serde_json::from_str(text).ok()?;
    let fields = parts.spec.and_then(|spec| serde_json::from_str(spec.get()).ok());
    let fields: BTreeMap<String, &RawValue> = fields.unwrap_or_default();
    let field = |(name, value): (&String, &&RawValue)| {
        let value = if name == "targets" {
            targets(value)
        } else {
            short(value)
        };
        Some((name.clone(), value?))
    };
    let spec: Map<String, Value> = fields.iter().filter_map(field).collect();
    Some(json!({ "metadata": ObjectMeta::from(parts.metadata), "spec": spec }))
}

fn short(value: &RawValue) -> Option<Value> {
    let text = Some(value.get()).filter(|text| text.len() <= FIELD_LIMIT)?;
    serde_json::from_str(text).ok()
}

fn targets(list: &RawValue) -> Option<Value> {
    let all: Vec<&RawValue> = serde_json::from_str(list.get()).ok()?;
    let named = |target: &RawValue| {
        let fields: Option<BTreeMap<String, &RawValue>> = serde_json::from_str(target.get()).ok();
        let name = fields.and_then(|fields| short(fields.get("name")?));
        json!({ "name": name })
    };
    let target = |target: &RawValue| short(target).unwrap_or_else(|| named(target));
    Some(all.into_iter().take(TARGET_LIMIT).map(target).collect())
}

#[cfg(test)]
mod tests;
