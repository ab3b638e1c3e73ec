//! Answers the questions of the agent from the objects of the API server.

use std::{
    fmt::{self, Debug},
    sync::{Arc, PoisonError, RwLock},
};

use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, core::DeserializeGuard};
use redlock_node::{
    resolver::{ContainersRead, ContainersShown, ObjectShown, PresenceRead, Resolver, Unresolved},
    spec::{Access, LockSpec, QuorumSpec},
    table::PodName,
};

use super::{
    Tasks,
    declared::{Declared, Followed},
    pod_object,
};
use crate::{
    api::{LeaderLock, RedisQuorum, readable::ReadInParts},
    lease::{ClusterId, fence::Presence},
    masters,
    targets::{Change, RuntimeClasses, deepest, watch_declared},
};

/// Reads the access to the masters again at each call: a Secret that is rotated changes its files.
pub(crate) type ReadAccess = Box<dyn Fn() -> Result<Access, String> + Send + Sync>;

/// Resolves locks from the declared objects, which it shares with the tasks that follow them.
pub(super) struct KubeResolver {
    declared: Arc<RwLock<Declared>>,
    access: ReadAccess,
    /// A client that never retries, because each question has a time limit.
    client: Client,
    namespaces: Vec<String>,
    runtime_classes: Arc<RuntimeClasses>,
}

impl Debug for KubeResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeResolver")
            .field("declared", &self.declared)
            .finish_non_exhaustive()
    }
}

impl KubeResolver {
    /// Creates a resolver that knows nothing until [`Self::follow`]. `namespaces` are the followed ones; an
    /// empty list stands for all.
    pub(super) fn new(
        client: Client,
        access: ReadAccess,
        namespaces: &[String],
        runtime_classes: RuntimeClasses,
    ) -> Self {
        let declared = Declared::new(namespaces);
        let namespaces = declared.locks.keys().cloned().collect();
        Self {
            declared: Arc::new(RwLock::new(declared)),
            access,
            client,
            namespaces,
            runtime_classes: Arc::new(runtime_classes),
        }
    }

    pub(super) fn set_cluster(&self, cluster: ClusterId) {
        tracing::info!(%cluster, "the UID of the cluster is known");
        change(&self.declared, |declared| declared.set_cluster(cluster));
    }

    /// Reads the object of a pod; `None` if the pod has no object. The reason of an error is in the log.
    fn read(&self, pod: &PodName) -> impl Future<Output = Result<Option<Pod>, ()>> + Send + 'static {
        let pods = Api::<Pod>::namespaced(self.client.clone(), &pod.namespace);
        let (name, uid) = (pod.name.clone(), pod.uid.clone());
        async move {
            // Without a resourceVersion, the answer is from the store and not from a cache that lags.
            let read = pods.get_opt(&name).await;
            read.map_err(|error| {
                let reason = deepest(&error);
                tracing::warn!(pod = uid, reason, "the object of the pod cannot be read");
            })
        }
    }

    /// Starts the watches.
    pub(super) fn follow(&self, client: &Client, tasks: &mut Tasks) {
        let quorums: Api<DeserializeGuard<RedisQuorum>> = Api::all(client.clone());
        let following = follow(quorums, self.declared.clone(), "RedisQuorums", |declared| {
            Some(&mut declared.quorums)
        });
        tasks.spawn("follows RedisQuorums", following);
        for namespace in &self.namespaces {
            let locks: Api<DeserializeGuard<LeaderLock>> = if namespace.is_empty() {
                Api::all(client.clone())
            } else {
                Api::namespaced(client.clone(), namespace)
            };
            let namespace = namespace.clone();
            let following = follow(locks, self.declared.clone(), "LeaderLocks", move |declared| {
                declared.locks.get_mut(&namespace)
            });
            tasks.spawn("follows LeaderLocks", following);
        }
    }
}

impl Resolver for KubeResolver {
    fn resolve(&self, namespace: &str, name: &str) -> Result<LockSpec, Unresolved> {
        let declared = self.declared.read().unwrap_or_else(PoisonError::into_inner);
        declared.resolve(namespace, name)
    }

    fn access(&self, quorum: &QuorumSpec) -> Result<Access, String> {
        let mut access = (self.access)()?;
        if !quorum.authenticated {
            access.credentials = masters::Credentials::default();
        }
        Ok(access)
    }

    fn presence(&self, pod: &PodName) -> PresenceRead {
        let (read, uid) = (self.read(pod), pod.uid.clone());
        let allowed = self.runtime_classes.clone();
        Box::pin(async move {
            match read.await {
                Ok(object) => pod_object::shown(object.as_ref(), &uid, &allowed),
                Err(()) => ObjectShown::Presence(Presence::Unknown),
            }
        })
    }

    fn containers(&self, pod: &PodName) -> ContainersRead {
        let (read, uid) = (self.read(pod), pod.uid.clone());
        Box::pin(async move {
            match read.await {
                Ok(object) => pod_object::containers(object.as_ref(), &uid),
                Err(()) => ContainersShown::Unknown,
            }
        })
    }
}

fn change(declared: &RwLock<Declared>, change: impl FnOnce(&mut Declared)) {
    change(&mut declared.write().unwrap_or_else(PoisonError::into_inner));
}

/// Follows the objects of one kind. Never ends by itself.
async fn follow<K>(
    api: Api<DeserializeGuard<K>>,
    declared: Arc<RwLock<Declared>>,
    kind: &'static str,
    followed: impl Fn(&mut Declared) -> Option<&mut Followed<K>> + Send + 'static,
) -> Result<(), super::NodeAgentError>
where
    K: ReadInParts<DynamicType: Clone> + Clone + Send + 'static,
{
    let changes = watch_declared(api);
    pin_mut!(changes);
    while let Some(seen) = changes.next().await {
        match &seen {
            Change::Failed(error) => {
                tracing::warn!(reason = deepest(error), "{kind} cannot be followed; retrying");
            }
            Change::Synced => tracing::info!("all {kind} are listed"),
            Change::Seen(..) | Change::Gone(_) => {}
        }
        change(&declared, |declared| {
            if let Some(followed) = followed(declared) {
                followed.take(seen);
            }
        });
    }
    Ok(())
}
