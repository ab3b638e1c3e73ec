//! Keeps the CronJob as its watch shows it, so that reading it needs no request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::{StreamExt, future::ready};
use k8s_openapi::api::batch::v1::CronJob;
use kube::{Api, runtime::watcher};

use super::job::{Cron, cron};
use crate::targets::{Change, Changes, TargetContext, TargetError, api_error, watch_objects};

/// The observed CronJob. It may be behind the API server. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Cache(Arc<Mutex<Known>>);

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Known {
    /// The first list is not complete.
    #[default]
    NotYet,
    /// The first list failed.
    Failed(TargetError),
    Missing,
    Here(Cron),
}

impl Cache {
    /// Follows the CronJob while the stream is polled. The stream yields an item for each change.
    pub(super) fn follow(self, context: &TargetContext, name: &str) -> Changes {
        let api = Api::<CronJob>::namespaced(context.client.clone(), &context.namespace);
        let one = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let what = format!("following cronjobs in namespace {}", context.namespace);
        watch_objects(api, one)
            .filter_map(move |change| ready(self.take(change, &what).then_some(())))
            .boxed()
    }

    pub(super) fn known(&self) -> Known {
        self.lock().clone()
    }

    fn take(&self, change: Change<CronJob>, what: &str) -> bool {
        let mut known = self.lock();
        let unlisted = matches!(*known, Known::NotYet | Known::Failed(_));
        let now = match change {
            Change::Seen(object, _) => cron(object).map_or(Known::Missing, Known::Here),
            Change::Gone(_) => Known::Missing,
            Change::Synced if unlisted => Known::Missing,
            // After the first list, a failure of the watch changes nothing: writes report an unreachable API server.
            Change::Failed(error) if unlisted => match api_error(&error) {
                Some(error) => Known::Failed(TargetError::of(what, error)),
                None => return false,
            },
            Change::Synced | Change::Failed(_) => return false,
        };
        let changed = *known != now;
        *known = now;
        changed
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;

    use super::*;
    use crate::{
        lease::BootInstant,
        targets::{ObjectKey, Origin},
    };

    fn seen(uid: &str) -> Change<CronJob> {
        let object = json!({"metadata": {"name": "report", "uid": uid}});
        let origin = Origin::List(BootInstant::default());
        Change::Seen(serde_json::from_value(object).unwrap(), origin)
    }

    fn failed() -> Change<CronJob> {
        let status = Status::failure("away", "InternalError").with_code(500).boxed();
        Change::Failed(watcher::Error::InitialListFailed(kube::Error::Api(status)))
    }

    #[test]
    fn failure_of_a_watch_takes_nothing_away_that_was_listed() {
        let cache = Cache::default();
        assert!(cache.take(failed(), "listing"));
        assert!(!cache.take(failed(), "listing"), "the same");
        assert!(matches!(cache.known(), Known::Failed(_)));
        assert!(cache.take(seen("a"), "listing"));
        assert!(!cache.take(Change::Synced, "listing"));
        assert!(!cache.take(failed(), "listing"));
        assert!(matches!(cache.known(), Known::Here(cron) if cron.uid == "a"));
        assert!(cache.take(seen("b"), "listing"), "created again");
        let key = ObjectKey {
            namespace: "n".into(),
            name: "report".into(),
        };
        assert!(cache.take(Change::Gone(key), "listing"));
        assert_eq!(cache.known(), Known::Missing);
        let empty = Cache::default();
        assert!(empty.take(Change::Synced, "listing"));
        assert_eq!(empty.known(), Known::Missing);
    }
}
