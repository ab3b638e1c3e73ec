//! Follows the holder of a Lease.

use std::sync::atomic::Ordering;

use futures_util::{StreamExt, future::ready};
use k8s_openapi::api::coordination::v1::Lease;
use kube::runtime::watcher;

use super::{LeaderLease, record::Record};
use crate::targets::{Change, Changes, watch_objects};

impl LeaderLease {
    /// Follows the holder of the Lease and ignores renewals, which a leader makes all the time.
    pub(in crate::targets) fn changes(&self) -> Changes {
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let changed = self.changed.clone();
        let mut known = None;
        let held = move |change: Change<Lease>| {
            let now = match change {
                Change::Seen(lease, _) => {
                    let record = Record::of(&lease);
                    Some((record.uid, record.holder, record.acquired))
                }
                Change::Gone(_) => None,
                Change::Synced | Change::Failed(_) => return ready(None),
            };
            if known.replace(now.clone()) == Some(now) {
                return ready(None);
            }
            changed.store(true, Ordering::SeqCst);
            ready(Some(()))
        };
        watch_objects(self.api.clone(), config).filter_map(held).boxed()
    }
}
