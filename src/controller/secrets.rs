//! Follows the Secrets that quorums name, each with its own watch, so that no permission to list other
//! Secrets is needed.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret as Object;
use kube::{Api, Client, runtime::watcher};
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
};

use super::{
    observe::{Observation, Trouble, follow},
    problem::{Problem, Reason},
};
use crate::{
    api::{plan::QuorumPlan, redis_quorum::SecretRef},
    operator::access::{Access, Data, SecretError},
};

/// Namespace and name.
pub(super) type SecretKey = (String, String);

fn key(reference: &SecretRef) -> SecretKey {
    (reference.namespace.clone(), reference.name.clone())
}

#[derive(Debug, Default, PartialEq)]
enum Content {
    /// Not observed yet.
    #[default]
    Awaited,
    Absent,
    Present(Data),
    Forbidden(String),
    Malformed(String),
}

#[derive(Debug)]
struct Followed {
    content: Content,
    task: AbortHandle,
}

/// The Secrets that are followed now. Their content is never printed.
#[derive(Debug, Default)]
pub(super) struct Secrets {
    followed: BTreeMap<SecretKey, Followed>,
    tasks: JoinSet<()>,
}

/// The Secrets of a quorum, resolved.
#[derive(Debug)]
pub(super) enum Found {
    /// Not known yet.
    Awaited,
    Missing(Problem),
    Here(Box<Access>),
}

impl Secrets {
    /// Follows exactly the Secrets that these plans name.
    pub(super) fn follow<'a, T: Send + 'static>(
        &mut self,
        plans: impl Iterator<Item = &'a QuorumPlan>,
        client: &Client,
        sender: &mpsc::Sender<T>,
        wrap: fn(SecretKey, Observation<Object>) -> T,
    ) {
        let references = plans.flat_map(|plan| plan.auth_secret.iter().chain(&plan.tls_secret));
        let wanted: BTreeSet<SecretKey> = references.map(key).collect();
        self.followed.retain(|key, followed| {
            let keep = wanted.contains(key);
            if !keep {
                followed.task.abort();
            }
            keep
        });
        for key in wanted {
            if self.followed.contains_key(&key) {
                continue;
            }
            let api = Api::namespaced(client.clone(), &key.0);
            let config = watcher::Config::default().fields(&format!("metadata.name={}", key.1));
            let (sender, named) = (sender.clone(), key.clone());
            let task = self.tasks.spawn(follow(api, config, sender, move |observation| {
                wrap(named.clone(), observation)
            }));
            let followed = Followed {
                content: Content::Awaited,
                task,
            };
            self.followed.insert(key, followed);
        }
        while self.tasks.try_join_next().is_some() {}
    }

    /// Applies an observation and reports whether it changes the content.
    pub(super) fn observe(&mut self, key: &SecretKey, observation: Observation<Object>) -> bool {
        let Some(followed) = self.followed.get_mut(key) else {
            return false;
        };
        let content = match observation {
            Observation::Seen(object, _) => {
                let data = object.data.unwrap_or_default().into_iter();
                Content::Present(data.map(|(name, bytes)| (name, bytes.0)).collect())
            }
            // A list delivers its objects before it is complete.
            Observation::Synced
                if matches!(followed.content, Content::Present(_) | Content::Malformed(_)) =>
            {
                return false;
            }
            Observation::Synced | Observation::Gone(_) => Content::Absent,
            Observation::Failed(Trouble {
                forbidden: true,
                text,
            }) => Content::Forbidden(text),
            Observation::Failed(trouble) => {
                tracing::debug!(
                    secret = key.1,
                    namespace = key.0,
                    reason = trouble.text,
                    "Secret cannot be watched now"
                );
                return false;
            }
            Observation::Malformed(_, error) => Content::Malformed(error),
        };
        // Content that was read stays valid while the Secret cannot be read.
        let changed = match (&followed.content, &content) {
            (Content::Present(_), Content::Forbidden(_) | Content::Malformed(_)) => false,
            (before, now) => before != now,
        };
        if changed {
            followed.content = content;
        }
        changed
    }

    /// Returns the credentials from the Secrets that a plan names.
    pub(super) fn access(&self, plan: &QuorumPlan) -> Found {
        let found = || {
            let auth = self.data(plan.auth_secret.as_ref(), "spec.auth.secretRef")?;
            let tls = self.data(plan.tls_secret.as_ref(), "spec.tls.secretRef")?;
            let missing = |error: SecretError| Problem::new(Reason::SecretKeyMissing, error.to_string());
            Access::of(plan, auth, tls).map_err(|error| Found::Missing(missing(error)))
        };
        found().map_or_else(|found| found, |access| Found::Here(Box::new(access)))
    }

    fn data(&self, reference: Option<&SecretRef>, field: &str) -> Result<Option<&Data>, Found> {
        let Some(reference) = reference else {
            return Ok(None);
        };
        let (namespace, name) = (&reference.namespace, &reference.name);
        let missing = |reason, text: String| {
            Err(Found::Missing(Problem::new(
                reason,
                format!("{field}: Secret {namespace}/{name} {text}"),
            )))
        };
        let followed = self.followed.get(&key(reference));
        match followed.map(|followed| &followed.content) {
            None | Some(Content::Awaited) => Err(Found::Awaited),
            Some(Content::Absent) => missing(Reason::SecretNotFound, "does not exist".into()),
            Some(Content::Forbidden(why)) => missing(
                Reason::SecretNotReadable,
                format!("cannot be read: {why}; grant the operator list and watch on it"),
            ),
            Some(Content::Malformed(why)) => {
                missing(Reason::SecretNotReadable, format!("cannot be read: {why}"))
            }
            Some(Content::Present(data)) => Ok(Some(data)),
        }
    }
}
