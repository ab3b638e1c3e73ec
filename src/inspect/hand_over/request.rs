//! The request on the object: written, withdrawn, and its answer read.

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

/// Another writer of the object is done by then: the operator writes it on transitions only.
const TRIES: usize = 10;
/// The clocks of the user and of the operator may differ by this much.
const CLOCKS: Duration = Duration::from_secs(60);

type Metadata = PartialObjectMeta<LeaderLock>;

/// Writes it; returns its id.
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

/// Takes it back. False if it was answered, or is not there, or the API server cannot be reached: then it acts no more
/// than once, and not after its time.
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

/// The answer to this request, once there is one.
pub(super) fn answered(object: &LeaderLock, id: &str) -> Option<HandOverAnswer> {
    let text = object.metadata.annotations.as_ref()?.get(ANSWER)?;
    read::<HandOverAnswer>(text).filter(|answer| answer.id == id)
}

fn annotation<'a>(metadata: &'a Metadata, name: &str) -> Option<&'a String> {
    metadata.metadata.annotations.as_ref()?.get(name)
}

/// Applies only to the version that was read.
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
