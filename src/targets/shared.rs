//! State that the targets of one process share, so that a thousand targets do not send a thousand requests.

mod jobs;
mod watch;

use std::{
    collections::HashMap,
    fmt,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use kube::{Api, Client, api::ApiResource};

use super::{
    AllowedFields, RuntimeClasses,
    fencing::{FencedPods, Namespaces},
    kind::Kinds,
    label_pods::{NamespacePods, Selections},
    leader_lease::{LeaseFence, LeaseHolder},
    once_per_schedule::Cron,
};
use jobs::Jobs;
pub(super) use jobs::{FollowedJob, Index, JobsOf};
use watch::Objects;
pub(super) use watch::{Followed, Known, Shown, Summary};

pub(crate) struct Shared {
    /// The client of lists and watches.
    client: Client,
    pub(super) kinds: Kinds,
    pub(super) lease_fence: LeaseFence,
    /// The fields that the action Patch may set.
    pub(super) allowed_fields: AllowedFields,
    /// The runtime classes whose pods are fenced.
    runtime_classes: RuntimeClasses,
    /// The metadata of objects, by resource and namespace.
    objects: Running<(String, String), Objects<Known>>,
    /// The Leases, by namespace.
    leases: Running<String, Objects<LeaseHolder>>,
    /// The CronJobs, by namespace.
    cron_jobs: Running<String, Objects<Cron>>,
    fenced: Namespaces,
    /// The pods for targets with action LabelPods, by namespace.
    pods: Running<String, NamespacePods>,
    /// The pods that targets with action LabelPods select.
    pub(super) selections: Selections,
    /// The Jobs, by namespace.
    jobs: Running<String, Jobs>,
}

/// The watches that have followers.
struct Running<K, W>(Mutex<HashMap<K, Weak<W>>>);

impl<K, W> Default for Running<K, W> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, W> Running<K, W> {
    /// Returns the watch of this key, and starts it for its first follower.
    fn get(&self, key: K, start: impl FnOnce() -> W) -> Arc<W> {
        let mut watches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watches.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
            let watch = Arc::new(start());
            watches.retain(|_, watch| watch.strong_count() > 0);
            watches.insert(key, Arc::downgrade(&watch));
            watch
        })
    }
}

impl Shared {
    pub(crate) fn new(client: Client, lease_fence: LeaseFence, allowed_fields: AllowedFields) -> Self {
        Self {
            client,
            lease_fence,
            allowed_fields,
            runtime_classes: RuntimeClasses::default(),
            kinds: Kinds::default(),
            fenced: Namespaces::default(),
            pods: Running::default(),
            selections: Selections::default(),
            objects: Running::default(),
            leases: Running::default(),
            cron_jobs: Running::default(),
            jobs: Running::default(),
        }
    }

    /// Replaces the runtime classes whose pods are fenced: none by default.
    pub(crate) fn with_runtime_classes(mut self, runtime_classes: RuntimeClasses) -> Self {
        self.runtime_classes = runtime_classes;
        self
    }

    pub(super) const fn runtime_classes(&self) -> &RuntimeClasses {
        &self.runtime_classes
    }

    /// Follows one object, with the watch of its kind and namespace.
    pub(super) fn follow(&self, resource: &ApiResource, namespace: &str, name: &str) -> Followed {
        let key = (
            format!("{}/{}", resource.api_version, resource.plural),
            namespace.to_owned(),
        );
        let objects = self.objects.get(key, || {
            let api = Api::namespaced_with(self.client.clone(), namespace, resource);
            Objects::follow(
                api,
                format!("following {} in namespace {namespace}", resource.plural),
            )
        });
        Followed::new(objects, name)
    }

    /// Follows the holder of one Lease, with the watch of all Leases of its namespace.
    pub(super) fn lease_holder(&self, namespace: &str, name: &str) -> Followed<LeaseHolder> {
        let leases = self.leases.get(namespace.to_owned(), || {
            let api = Api::namespaced(self.client.clone(), namespace);
            Objects::follow(api, format!("following leases in namespace {namespace}"))
        });
        Followed::new(leases, name)
    }

    /// Follows one CronJob, with the watch of all CronJobs of its namespace.
    pub(super) fn cron_job(&self, namespace: &str, name: &str) -> Followed<Cron> {
        let cron_jobs = self.cron_jobs.get(namespace.to_owned(), || {
            let api = Api::namespaced(self.client.clone(), namespace);
            Objects::follow(api, format!("following cronjobs in namespace {namespace}"))
        });
        Followed::new(cron_jobs, name)
    }

    /// Returns the watch of all pods of a namespace.
    pub(super) fn pods(&self, namespace: &str) -> Arc<NamespacePods> {
        let start = || NamespacePods::follow(&self.client, namespace);
        self.pods.get(namespace.to_owned(), start)
    }

    /// Follows the pods that mount the volume of a lock, with the watch of all pods of its namespace.
    pub(crate) fn fenced_pods(&self, namespace: &str, lock: &str) -> FencedPods {
        self.fenced.follow(&self.client, namespace, lock)
    }

    /// Follows the Jobs of one CronJob, with the watch of all Jobs of its namespace.
    pub(super) fn jobs_of(&self, namespace: &str, cron_job: &str) -> JobsOf {
        JobsOf::new(self.jobs_in(namespace), cron_job)
    }

    /// Follows one Job, with the watch of all Jobs of its namespace.
    pub(super) fn job(&self, namespace: &str, name: &str) -> FollowedJob {
        FollowedJob::new(self.jobs_in(namespace), name)
    }

    fn jobs_in(&self, namespace: &str) -> Arc<Jobs> {
        self.jobs
            .get(namespace.to_owned(), || Jobs::follow(&self.client, namespace))
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}
