//! Measures when statuses named a holder, as seen by a client that watches them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::TryStreamExt;
use kube::ResourceExt;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use redlock::api::LeaderLock;
use tokio::task::JoinHandle;

use crate::log;

type Seen = HashMap<(String, String, i64), Duration>;

/// A watch of the statuses, which ends on drop.
pub struct Statuses {
    /// The time at which a status first named this identity with this token as the holder of a lock.
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl Statuses {
    pub fn watch(locks: Api<LeaderLock>) -> Self {
        let seen = Arc::new(Mutex::new(Seen::new()));
        let shared = seen.clone();
        let task = tokio::spawn(async move {
            let events = watcher(locks, watcher::Config::default()).default_backoff();
            let record = events.applied_objects().try_for_each(|lock| {
                let now = log::now();
                let status = lock.status.clone().unwrap_or_default();
                if let (Some(identity), Some(token)) = (status.holder_identity, status.fencing_token) {
                    let key = (lock.name_any(), identity, token);
                    shared.lock().unwrap().entry(key).or_insert(now);
                }
                futures_util::future::ready(Ok(()))
            });
            record.await.unwrap();
        });
        Self { seen, task }
    }

    /// Returns the time since 1970 at which a status first had this token. `lock` is the name on the masters.
    pub fn reported_at(&self, lock: &str, token: u64) -> Option<Duration> {
        let name = lock.rsplit_once('/').map_or(lock, |(_, name)| name);
        let seen = self.seen.lock().unwrap();
        let found = seen
            .iter()
            .find(|((lock, _, reported), _)| lock == name && *reported == token as i64);
        found.map(|(_, at)| *at)
    }
}

impl Drop for Statuses {
    fn drop(&mut self) {
        self.task.abort();
    }
}
