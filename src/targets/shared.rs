//! State that the targets of one process share, so that a thousand targets do not send a thousand requests.

mod jobs;
mod watch;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use kube::{Client, api::ApiResource};

use super::{
    AllowedFields,
    fencing::{FencedPods, Namespaces},
    kind::Kinds,
    label_pods::Selections,
    leader_lease::LeaseFence,
};
use jobs::Jobs;
pub(super) use jobs::{Index, JobsOf};
use watch::Objects;
pub(super) use watch::{Followed, Known};

pub(crate) struct Shared {
    /// The client of lists and watches.
    client: Client,
    pub(super) kinds: Kinds,
    pub(super) lease_fence: LeaseFence,
    /// The fields that the action Patch may set.
    pub(super) allowed_fields: AllowedFields,
    /// The watches that have followers, by resource and namespace.
    watches: Mutex<HashMap<(String, String), Weak<Objects>>>,
    fenced: Namespaces,
    /// The pods that targets with action LabelPods select.
    pub(super) selections: Selections,
    /// The Jobs that have followers, by namespace.
    jobs: Mutex<HashMap<String, Weak<Jobs>>>,
}

impl Shared {
    pub(crate) fn new(client: Client, lease_fence: LeaseFence, allowed_fields: AllowedFields) -> Self {
        Self {
            client,
            lease_fence,
            allowed_fields,
            kinds: Kinds::default(),
            fenced: Namespaces::default(),
            selections: Selections::default(),
            watches: Mutex::default(),
            jobs: Mutex::default(),
        }
    }

    /// Follows one object, with the watch of its kind and namespace.
    pub(super) fn follow(&self, resource: &ApiResource, namespace: &str, name: &str) -> Followed {
        let key = (
            format!("{}/{}", resource.api_version, resource.plural),
            namespace.to_owned(),
        );
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let objects = watches.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
            let objects = Arc::new(Objects::follow(&self.client, resource, namespace));
            watches.retain(|_, objects| objects.strong_count() > 0);
            watches.insert(key, Arc::downgrade(&objects));
            objects
        });
        Followed::new(&objects, name)
    }

    /// Follows the pods that mount the volume of a lock, with the watch of all pods of its namespace.
    pub(crate) fn fenced_pods(&self, namespace: &str, lock: &str) -> FencedPods {
        self.fenced.follow(&self.client, namespace, lock)
    }

    /// Follows the Jobs of one CronJob, with the watch of all Jobs of its namespace.
    pub(super) fn jobs_of(&self, namespace: &str, cron_job: &str) -> JobsOf {
        let mut watches = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let jobs = watches.get(namespace).and_then(Weak::upgrade).unwrap_or_else(|| {
            let jobs = Arc::new(Jobs::follow(&self.client, namespace));
            watches.retain(|_, jobs| jobs.strong_count() > 0);
            watches.insert(namespace.to_owned(), Arc::downgrade(&jobs));
            jobs
        });
        JobsOf::new(jobs, cron_job)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}
