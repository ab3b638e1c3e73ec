//! The request on the object: writes it, withdraws it, and reads its answer.

use std::time::Duration;

use kube::{
    Api, Error,
    api::{PartialObjectMeta, Patch, PatchParams},
};

use super::{HandOverError, Plan};
use crate::{
    api::{
        LeaderLock,
        hand_over::{ANSWER, HandOverAnswer, HandOverRequest, REQUEST, read},
    },
    clock,
    inspect::cluster::ClusterError,
};

/// Number of attempts to write the object: the operator writes it on transitions only.
const TRIES: usize = 10;
/// The tolerated difference between the clocks of the user and of the operator.
const CLOCKS: Duration = Duration::from_secs(60);

type Metadata = PartialObjectMeta<LeaderLock>;

/// Writes the request; returns its id.
pub(super) async fn write(locks: &Api<LeaderLock>, name: &str, plan: &Plan) -> Result<String, HandOverError> {
    let now = clock::unix_time();
    let request = HandOverRequest {
        id: format!("{:016x}", fastrand::u64(..)),
        to: plan.to.to_string(),
        token: plan.token,
        not_after: (now + plan.wait + CLOCKS).as_secs(),
    };
    let text = serde_json::to_string(&request).unwrap_or_default();
    let object = format!("LeaderLock {}", plan.called);
    let (reading, patching) = (
        format!("reading {object}"),
        format!("patch of the annotation {REQUEST} of {object}"),
    );
    for _ in 0..TRIES {
        let metadata = locks.get_metadata(name).await;
        let metadata = metadata.map_err(|error| ClusterError::asked(&reading, Some(&object), &error))?;
        if let Some(other) = annotation(&metadata, REQUEST).and_then(|text| read::<HandOverRequest>(text))
            && other.token == plan.token
            && now.as_secs() <= other.not_after
        {
            return Err(HandOverError::UnderWay {
                lock: plan.called.clone(),
                to: other.to,
                answer: ANSWER,
            });
        }
        match set(locks, name, &metadata, Some(&text)).await {
            Ok(()) => return Ok(request.id),
            Err(Error::Api(status)) if status.is_conflict() => {}
            Err(error) => return Err(ClusterError::asked(&patching, Some(&object), &error).into()),
        }
    }
    Err(HandOverError::Busy(plan.called.clone()))
}

/// Withdraws the request. Returns false if it was answered or is missing, or the API server cannot be
/// reached: the request then takes effect at most once, and not after its deadline.
pub(super) async fn withdraw(locks: &Api<LeaderLock>, name: &str, id: &str) -> bool {
    for _ in 0..TRIES {
        let Ok(metadata) = locks.get_metadata(name).await else {
            return false;
        };
        let mine = annotation(&metadata, REQUEST).and_then(|text| read::<HandOverRequest>(text));
        if mine.is_none_or(|request| request.id != id) {
            return false;
        }
        match set(locks, name, &metadata, None).await {
            Ok(()) => return true,
            Err(Error::Api(status)) if status.is_conflict() => {}
            Err(_) => return false,
        }
    }
    false
}

/// Returns the answer to this request, once there is one.
pub(super) fn answered(object: &LeaderLock, id: &str) -> Option<HandOverAnswer> {
    let text = object.metadata.annotations.as_ref()?.get(ANSWER)?;
    read::<HandOverAnswer>(text).filter(|answer| answer.id == id)
}

fn annotation<'a>(metadata: &'a Metadata, name: &str) -> Option<&'a String> {
    metadata.metadata.annotations.as_ref()?.get(name)
}

/// Sets or removes the request, only if the object still has the version that was read.
async fn set(
    locks: &Api<LeaderLock>,
    name: &str,
    seen: &Metadata,
    request: Option<&str>,
) -> Result<(), Error> {
    let patch = serde_json::json!({
        "metadata": {
            "resourceVersion": seen.metadata.resource_version,
            "annotations": { REQUEST: request },
        },
    });
    let parameters = PatchParams {
        field_manager: Some("redlock-hand-over".into()),
        ..PatchParams::default()
    };
    locks
        .patch_metadata(name, &parameters, &Patch::Merge(&patch))
        .await
        .map(|_| ())
}
