//! Finds the properties of a declared lock that a node must know.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::PathBuf,
    pin::Pin,
};

use redlock_client::masters::{Credentials, Secret};
use redlock_core::fence::Presence;
use serde::Deserialize;
use thiserror::Error;

use crate::{
    spec::{Access, ClusterSpec, LockSpec, QuorumSpec},
    table::PodName,
};

/// The reason why a lock fences no pod.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Unresolved {
    #[error(
        "there is no lock {name:?} in namespace {namespace:?}: create the LeaderLock, or correct volumeAttributes.lock"
    )]
    Unknown { namespace: String, name: String },
    #[error("lock {namespace}/{name} cannot fence: {reason}")]
    Unfit {
        namespace: String,
        name: String,
        reason: String,
    },
    #[error("which locks there are is not known yet: {reason}")]
    NotReady { reason: String },
}

/// The result of a read of the object of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectShown {
    Presence(Presence),
    /// The object exists, and its spec shows that a freeze of its cgroup does not reach its processes.
    CannotBeFenced {
        reason: String,
    },
}

/// Whether a container of a pod runs, as the object of the pod shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainersShown {
    Run,
    NoneRuns,
    /// The API server did not answer.
    Unknown,
}

/// A read of the object of a pod. The agent bounds its time.
pub type PresenceRead = Pin<Box<dyn Future<Output = ObjectShown> + Send>>;
/// A read of the status of a pod. The agent bounds its time.
pub type ContainersRead = Pin<Box<dyn Future<Output = ContainersShown> + Send>>;

/// The source of locks, credentials and pods, such as the API server. Locks and credentials are returned at
/// once, from earlier reads.
pub trait Resolver: Send + Sync + 'static {
    /// Returns a declared lock of a namespace.
    ///
    /// # Errors
    /// Returns an error if no pod can be fenced by this lock.
    fn resolve(&self, namespace: &str, name: &str) -> Result<LockSpec, Unresolved>;

    /// Returns the access to the masters of a quorum.
    ///
    /// # Errors
    /// Returns the reason why the access is unknown.
    fn access(&self, quorum: &QuorumSpec) -> Result<Access, String>;

    /// Reads whether the object of a pod exists, by a request that begins when the future is first polled.
    fn presence(&self, pod: &PodName) -> PresenceRead;

    /// Reads whether a container of a pod runs, by a request that begins when the future is first polled.
    fn containers(&self, pod: &PodName) -> ContainersRead;
}

/// Reads locks from a JSON file, for nodes without Kubernetes. Reads the file again for each call.
#[derive(Clone, Debug)]
pub struct FileResolver {
    path: PathBuf,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    cluster: ClusterSpec,
    quorums: Vec<QuorumSpec>,
    /// The locks, by `namespace/name`.
    locks: BTreeMap<String, DeclaredLock>,
    /// The users, by the name of the quorum; the password is in a file.
    #[serde(default)]
    users: BTreeMap<String, User>,
    /// The UIDs of the pods with a container that runs. Without this list, no pod is checked.
    #[serde(default)]
    pods_with_containers: BTreeSet<String>,
    /// The reasons why a pod cannot be fenced, by UID.
    #[serde(default)]
    pods_that_cannot_be_fenced: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeclaredLock {
    /// The name on the masters; by default, the declared name with its namespace.
    lock_name: Option<String>,
    quorum: String,
    lease_milliseconds: u64,
    retry_milliseconds: u64,
    /// Whether the lock has `spec.fencing: Node`.
    fencing: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct User {
    username: Option<String>,
    password_file: Option<PathBuf>,
}

impl FileResolver {
    #[must_use]
    pub const fn new(path: PathBuf) -> Self {
        Self { path }
    }

    fn read(&self) -> Result<File, String> {
        let failed = |cause: io::Error| format!("reading {}: {cause}", self.path.display());
        let text = fs::read(&self.path).map_err(failed)?;
        serde_json::from_slice(&text).map_err(|cause| format!("{}: {cause}", self.path.display()))
    }
}

impl Resolver for FileResolver {
    fn resolve(&self, namespace: &str, name: &str) -> Result<LockSpec, Unresolved> {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let file = self.read().map_err(|reason| Unresolved::NotReady { reason })?;
        let key = format!("{namespace}/{name}");
        let Some(lock) = file.locks.get(&key) else {
            return Err(Unresolved::Unknown { namespace, name });
        };
        let unfit = |reason: String| Unresolved::Unfit {
            namespace: namespace.clone(),
            name: name.clone(),
            reason,
        };
        if !lock.fencing {
            return Err(unfit("it has no fencing; expected fencing: Node".into()));
        }
        let quorum = file.quorums.iter().find(|quorum| quorum.name == lock.quorum);
        let quorum = quorum.ok_or_else(|| unfit(format!("quorum {:?} is not in the file", lock.quorum)))?;
        Ok(LockSpec {
            name: lock.lock_name.clone().unwrap_or(key),
            cluster: file.cluster.clone(),
            lease_milliseconds: lock.lease_milliseconds,
            retry_milliseconds: lock.retry_milliseconds,
            quorum: quorum.clone(),
        })
    }

    fn access(&self, quorum: &QuorumSpec) -> Result<Access, String> {
        let file = self.read()?;
        let Some(user) = file.users.get(&quorum.name) else {
            return Ok(Access::default());
        };
        let read = |path: &PathBuf| {
            let text = fs::read_to_string(path);
            let text = text.map_err(|cause| format!("reading {}: {cause}", path.display()))?;
            Ok::<_, String>(Secret::new(text.trim_end_matches(['\r', '\n']).to_owned()))
        };
        Ok(Access {
            credentials: Credentials {
                username: user.username.clone(),
                password: user.password_file.as_ref().map(read).transpose()?,
                ..Credentials::default()
            },
            ..Access::default()
        })
    }

    /// Without an API server, the caller of publish owns the pods.
    fn presence(&self, pod: &PodName) -> PresenceRead {
        let file = self.read().ok();
        let reason = file.and_then(|file| file.pods_that_cannot_be_fenced.get(&pod.uid).cloned());
        let shown = match reason {
            Some(reason) => ObjectShown::CannotBeFenced { reason },
            None => ObjectShown::Presence(Presence::Exists),
        };
        Box::pin(std::future::ready(shown))
    }

    fn containers(&self, pod: &PodName) -> ContainersRead {
        let shown = match self.read() {
            Ok(file) if file.pods_with_containers.contains(&pod.uid) => ContainersShown::Run,
            Ok(_) => ContainersShown::NoneRuns,
            Err(_) => ContainersShown::Unknown,
        };
        Box::pin(std::future::ready(shown))
    }
}
