//! Reads an object of the API server without the parts that the operator never reads, and within bounds.
//!
//! A namespace may fill the annotations and the managed fields of an object with hundreds of kilobytes, and a spec with more
//! than a megabyte. None of it is decoded, and so none of it takes memory.

mod metadata;

use kube::{
    Resource,
    core::{DeserializeGuard, ObjectMeta, error_boundary::InvalidObject},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::{
    LeaderLock, LeaderLockSpec, RedisQuorum, RedisQuorumSpec,
    bounds::{SPEC_LIMIT, STATUS_LIMIT},
    lock_status::LeaderLockStatus,
    quorum_status::RedisQuorumStatus,
};
pub(crate) use metadata::trim;

/// A kind whose spec and status are read separately.
pub(crate) trait ReadInParts: Resource + Sized {
    type Spec: DeserializeOwned;
    type Status: DeserializeOwned;

    fn of(metadata: ObjectMeta, spec: Self::Spec, status: Option<Self::Status>) -> Self;
}

impl ReadInParts for LeaderLock {
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
    let read =
        read_spec::<K::Spec>(spec).and_then(|spec| Ok((spec, read_status::<K::Status>(parts.status)?)));
    Ok(DeserializeGuard(match read {
        Ok((spec, status)) => Ok(K::of(metadata, spec, status)),
        Err(error) => Err(InvalidObject { error, metadata }),
    }))
}

fn read_spec<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    if text.len() > SPEC_LIMIT {
        return Err(format!(
            "invalid spec: has {} bytes of JSON: use at most {SPEC_LIMIT} bytes; shorten its targets, or declare several locks",
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

#[cfg(test)]
mod tests;
