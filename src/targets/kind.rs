//! Where objects of a kind are found.

use std::{collections::HashMap, sync::Arc, time::Duration};

use kube::{Client, api::ApiResource, core::GroupVersionKind, discovery};
use tokio::{sync::Mutex, task::JoinSet};

use super::TargetError;
use crate::{api::target::TargetRef, clock, lease::Moment};

/// A kind that was not there is asked for again after this long, however many targets name it.
const ASKED_AGAIN: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub(super) struct Kind {
    pub(super) resource: ApiResource,
    /// By `/scale`.
    pub(super) scales: bool,
}

/// Asks the API server.
pub(super) async fn kind(client: &Client, reference: &TargetRef) -> Result<Kind, TargetError> {
    let (api_version, kind) = (reference.api_version.clone(), reference.kind.clone());
    let version = reference.api_version.parse::<kube::core::GroupVersion>();
    let Some(version) = version.ok().filter(|_| is_api_version(&api_version)) else {
        return Err(TargetError::ApiVersion { api_version, kind });
    };
    let kind_of = GroupVersionKind::gvk(&version.group, &version.version, &kind);
    match discovery::pinned_kind(client, &kind_of).await {
        Ok((resource, can)) => Ok(Kind {
            resource,
            scales: can.subresources.iter().any(|(sub, _)| sub.plural == "scale"),
        }),
        // Of a group that nobody serves it says so without a reason.
        Err(kube::Error::Api(status)) if status.code == 404 => {
            Err(TargetError::UnknownKind { api_version, kind })
        }
        Err(kube::Error::Discovery(_)) => Err(TargetError::UnknownKind { api_version, kind }),
        Err(error) => Err(TargetError::of(
            format!("looking for kind {kind} of {api_version}"),
            &error,
        )),
    }
}

/// Anything else would be the path of something else.
fn is_api_version(text: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || ".-".contains(c))
    };
    text.split('/').count() <= 2 && text.split('/').all(is_part)
}

type Asked = Result<Kind, (Moment, TargetError)>;

/// What was asked before: which resource a kind is does not change, once it is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Kinds(Arc<Mutex<HashMap<(String, String), Asked>>>);

impl Kinds {
    /// A kind with a scale subresource.
    pub(super) async fn scaled(
        &self,
        client: &Client,
        reference: &TargetRef,
    ) -> Result<ApiResource, TargetError> {
        let (kinds, client, reference) = (self.clone(), client.clone(), reference.clone());
        // A task of its own: who asks may not be polled for a while, and the others wait meanwhile.
        let mut task = JoinSet::new();
        task.spawn(async move { kinds.ask(&client, &reference).await });
        match task.join_next().await {
            Some(Ok(found)) => found,
            Some(Err(_)) | None => Err(TargetError::Api {
                what: "looking for a kind".into(),
                reason: "what looked for it broke".into(),
                refusal: true,
            }),
        }
    }

    async fn ask(&self, client: &Client, reference: &TargetRef) -> Result<ApiResource, TargetError> {
        let key = (reference.api_version.clone(), reference.kind.clone());
        // Held while it is asked: a thousand targets of a kind ask once.
        let mut asked = self.0.lock().await;
        match asked.get(&key) {
            Some(Ok(kind)) => return Ok(kind.resource.clone()),
            Some(Err((at, error))) if clock::now().since(*at) < ASKED_AGAIN => return Err(error.clone()),
            _ => {}
        }
        let (api_version, name) = key.clone();
        let found = match kind(client, reference).await {
            // It may get one with its next version.
            Ok(found) if !found.scales => Err(TargetError::NoScale {
                api_version,
                kind: name,
            }),
            found => found,
        };
        let known = found.clone().map_err(|error| (clock::now(), error));
        asked.insert(key, known);
        Ok(found?.resource)
    }
}
