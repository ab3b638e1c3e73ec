//! Writes to a CronJob or Job.

use std::fmt::Debug;

use kube::{Api, api::Patch};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(super) use crate::targets::write::Write;
use crate::targets::{StartPermit, TargetError, in_flight::InFlight, write::managed_by};

/// The field manager that owns `spec.suspend`, and the mark of abandoned Jobs.
const MANAGER: &str = "redlock-operator-suspend";

/// Writes a merge patch. With a `resourceVersion` or `uid` in the patch, it applies only to that version or object.
pub(super) async fn patch<K>(
    api: &Api<K>,
    name: &str,
    patch: &Value,
    what: &str,
) -> Result<Write<K>, TargetError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let answer = api.patch(name, &managed_by(MANAGER), &Patch::Merge(patch)).await;
    Write::of(answer, what)
}

/// Like `patch`, for the status.
pub(super) async fn patch_status<K>(
    api: &Api<K>,
    name: &str,
    patch: &Value,
    what: &str,
) -> Result<Write<K>, TargetError>
where
    K: DeserializeOwned,
{
    let answer = api
        .patch_status(name, &managed_by(MANAGER), &Patch::Merge(patch))
        .await;
    Write::of(answer, what)
}

/// Writes a patch that starts the object, if the permit holds. The write is in flight until it is answered.
pub(super) async fn resume<K>(
    api: &Api<K>,
    (name, called): (&str, &str),
    change: &Value,
    in_flight: &mut InFlight,
    permit: &StartPermit,
) -> Result<Write<K>, TargetError>
where
    K: Clone + DeserializeOwned + Debug,
{
    if !permit.holds() {
        return Ok(Write::Late);
    }
    let before = in_flight.send();
    let written = patch(api, name, change, &format!("resuming {called}")).await;
    in_flight.answered(before, &written, |write| {
        matches!(write, Write::Done(_) | Write::Missing)
    });
    written
}
