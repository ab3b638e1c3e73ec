//! Decides whether the holder of a lock hands it over, as requested by an annotation of the object. Pure except for the
//! write of the answer.
//!
//! Running targets are stopped first; the request stays on the object until it is answered, according to the
//! result of the stop. A request names the lease by its token, so it takes effect at most once: the hand-over
//! itself ends that lease, and no other lease ever has the token. The request takes effect before it is
//! answered, so a lost answer changes nothing.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use tokio::time;

use super::object::ObjectKey;
use crate::{
    api::{
        LeaderLock,
        hand_over::{ANSWER, HandOverAnswer, HandOverRequest, HandOverResult, REQUEST, read},
        plan::LockPlan,
    },
    lease::{ClusterId, FencingToken},
    targets::deepest,
};

/// The maximum number of attempts to write an answer. If the API server is unavailable for longer, the token
/// shows later that the request is outdated.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(500);

/// Returns the request annotation of an object, verbatim.
pub(super) fn request(metadata: &ObjectMeta) -> Option<&String> {
    metadata.annotations.as_ref()?.get(REQUEST)
}

/// The decision of the holder.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decision {
    /// The cluster that receives the lease; `None` if the request is refused.
    pub(super) to: Option<ClusterId>,
    /// The time that the requester still waits.
    pub(super) patience: Duration,
    pub(super) answer: HandOverAnswer,
}

/// Returns the answer to a request that is granted.
pub(super) fn acceptance(text: &str, held: FencingToken, to: &ClusterId) -> HandOverAnswer {
    let message = format!("the lease with token {} ends with a reservation for {to}", held.0);
    reply(text, HandOverResult::Reserving, message)
}

/// Returns the answer to a request that is refused.
pub(super) fn refusal(text: &str, message: String) -> HandOverAnswer {
    reply(text, HandOverResult::Refused, message)
}

fn reply(text: &str, result: HandOverResult, message: String) -> HandOverAnswer {
    let request: Option<HandOverRequest> = read(text);
    HandOverAnswer {
        id: request.map_or_else(String::new, |request| request.id),
        result,
        message,
    }
}

/// The lock of a lease that is to be handed over.
#[derive(Clone, Copy)]
pub(super) struct Held<'a> {
    pub(super) token: FencingToken,
    pub(super) plan: &'a LockPlan,
    pub(super) paused: Option<&'a str>,
}

/// Decides on a request, as the holder of the lease. A request for any lease but this one is refused (P-59).
pub(super) fn decide(text: &str, held: Held<'_>, own: &ClusterId, unix_now: Duration) -> Decision {
    let request: Option<HandOverRequest> = read(text);
    let patience = request.as_ref().map_or(Duration::ZERO, |request| {
        Duration::from_secs(request.not_after).saturating_sub(unix_now)
    });
    let (to, answer) = match resolve(request.as_ref(), held, own, unix_now) {
        Ok(to) => (Some(to.clone()), acceptance(text, held.token, &to)),
        Err(message) => (None, refusal(text, message)),
    };
    Decision { to, patience, answer }
}

fn resolve(
    request: Option<&HandOverRequest>,
    held: Held<'_>,
    own: &ClusterId,
    unix_now: Duration,
) -> Result<ClusterId, String> {
    let Held { token, plan, paused } = held;
    let request = request.ok_or("the annotation cannot be read: write it with `redlock hand-over`")?;
    if request.token != token.0 {
        return Err(format!(
            "the lease with token {} is over; the present one has token {}",
            request.token, token.0
        ));
    }
    if unix_now.as_secs() > request.not_after {
        let late = unix_now.as_secs() - request.not_after;
        return Err(format!(
            "the request expired {late} s ago by the clock of the operator"
        ));
    }
    let Some(to) = request.cluster() else {
        return Err(format!("{:?} is not a cluster: expected NAME/UID", request.to));
    };
    if to.uid() == own.uid() {
        return Err(format!("cluster {own} already holds the lock"));
    }
    if let Some(why) = paused.filter(|_| plan.switches()) {
        return Err(format!(
            "the targets are paused ({why}), and running targets must be stopped first: remove the annotation \
             redlock.dev/paused"
        ));
    }
    Ok(to)
}

/// Replaces the request on the object with its answer. Gives up when the request has changed on the object,
/// or after [`TRIES`] failures.
pub(super) async fn answer(client: Client, key: ObjectKey, text: String, answer: HandOverAnswer) {
    let api = Api::<LeaderLock>::namespaced(client, &key.namespace);
    for _ in 0..TRIES {
        match write(&api, &key.name, &text, &answer).await {
            Ok(()) => return,
            Err(kube::Error::Api(status)) if status.is_not_found() => return,
            // Retried at once: the conflicting write is complete.
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(error) => {
                let reason = deepest(&error);
                tracing::debug!(object = %format!("LeaderLock {key}"), reason,
                    "the answer to the hand-over request could not be written yet");
                time::sleep(PAUSE).await;
            }
        }
    }
    tracing::warn!(object = %format!("LeaderLock {key}"),
        "the answer to the hand-over request could not be written; the lease of the request has ended");
}

async fn write(
    api: &Api<LeaderLock>,
    name: &str,
    text: &str,
    answer: &HandOverAnswer,
) -> Result<(), kube::Error> {
    let object = api.get_metadata(name).await?;
    if request(&object.metadata).map(String::as_str) != Some(text) {
        return Ok(());
    }
    let answer = serde_json::to_string(answer).map_err(kube::Error::SerdeError)?;
    let patch = serde_json::json!({
        "metadata": {
            "resourceVersion": object.metadata.resource_version,
            "annotations": { REQUEST: null, ANSWER: answer },
        },
    });
    api.patch_metadata(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::plan::tests::plan_of;

    fn decided(text: &str, targets: &str, paused: Option<&str>) -> Decision {
        let own = ClusterId::new("eu-1", "here").unwrap();
        let held = Held {
            token: FencingToken(7),
            plan: &plan_of(&format!(", targets: {targets}")),
            paused,
        };
        decide(text, held, &own, Duration::from_secs(100))
    }

    #[test]
    fn only_the_lease_that_was_asked_for_is_passed_on_and_in_time() {
        let good = r#"{"id":"x","to":"us-1/there","token":7,"notAfter":100}"#;
        let decision = decided(good, "[]", Some("x"));
        assert_eq!(decision.to.unwrap().to_string(), "us-1/there");
        assert_eq!(decision.answer.id, "x");
        for (text, why) in [
            (good.replace(":7", ":6"), "the present one has token 7"),
            (good.replace(":7", ":8"), "token 8 is over"),
            (good.replace(":100", ":99"), "expired 1 s ago"),
            (good.replace("us-1/there", "us-1"), "NAME/UID"),
            (good.replace("us-1/there", "eu-0/here"), "already holds the lock"),
            ("us-1".to_owned(), "cannot be read"),
        ] {
            let refused = decided(&text, "[]", None);
            assert_eq!(refused.to, None, "{text}");
            assert_eq!(refused.answer.result, HandOverResult::Refused);
            assert!(refused.answer.message.contains(why), "{refused:?}");
        }
    }

    #[test]
    fn paused_targets_cannot_be_stopped_for_it() {
        let good = r#"{"id":"x","to":"us-1/there","token":7,"notAfter":130}"#;
        let targets = "[{name: t, ref: {apiVersion: apps/v1, kind: Deployment, name: d}, action: Scale, stopSeconds: 5}]";
        let stopped = decided(good, targets, None);
        assert!(stopped.to.is_some(), "{stopped:?}");
        assert_eq!(stopped.patience, Duration::from_secs(30));
        let refused = decided(good, targets, Some("night shift"));
        assert_eq!(refused.to, None);
        assert!(refused.answer.message.contains("night shift"), "{refused:?}");
    }
}
