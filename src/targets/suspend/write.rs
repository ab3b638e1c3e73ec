//! Writes to a CronJob or Job, and what became of them.

use std::fmt::Debug;

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::targets::TargetError;

/// Owns `spec.suspend`, and the mark of what was abandoned.
const MANAGER: &str = "redlock-operator-suspend";

#[derive(Clone, Debug)]
pub(super) enum Write<K> {
    /// As it is now.
    Done(Box<K>),
    Missing,
    /// The object is another by now, or the authority is gone: read it again.
    Late,
}

/// A merge patch. With a `resourceVersion` or `uid` in it, only if the object is still that one.
pub(super) async fn patch<K>(
    api: &Api<K>,
    name: &str,
    patch: &Value,
    what: &str,
) -> Result<Write<K>, TargetError>
where
    K: Clone + DeserializeOwned + Debug,
{
    written(api.patch(name, &parameters(), &Patch::Merge(patch)).await, what)
}

/// The same for the status.
pub(super) async fn patch_status<K>(
    api: &Api<K>,
    name: &str,
    patch: &Value,
    what: &str,
) -> Result<Write<K>, TargetError>
where
    K: DeserializeOwned,
{
    let answer = api.patch_status(name, &parameters(), &Patch::Merge(patch)).await;
    written(answer, what)
}

fn parameters() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

fn written<K>(answer: kube::Result<K>, what: &str) -> Result<Write<K>, TargetError> {
    match answer {
        Ok(object) => Ok(Write::Done(Box::new(object))),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Write::Missing),
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(Write::Late),
        Err(error) => Err(TargetError::of(what, &error)),
    }
}
