//! A copy of the database, and its restoration.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    registry::ResourceKind,
    resource::ResourceId,
    state::{Objects, State},
    watch::WatchEnd,
};

/// A copy of the database, as a backup of etcd.
#[derive(Clone, Debug)]
pub struct ApiSnapshot {
    objects: BTreeMap<ResourceId, Objects>,
    kinds: BTreeMap<ResourceId, Arc<ResourceKind>>,
    revision: u64,
}

impl ApiSnapshot {
    pub const fn revision(&self) -> u64 {
        self.revision
    }
}

impl State {
    pub(super) fn snapshot(&self) -> ApiSnapshot {
        ApiSnapshot {
            objects: self.objects.clone(),
            kinds: self.kinds.clone(),
            revision: self.revision,
        }
    }

    /// Restores a copy: the revision goes back, all watches break, and no earlier change is known.
    pub(super) fn restore(&mut self, snapshot: &ApiSnapshot) {
        self.objects = snapshot.objects.clone();
        self.kinds = snapshot.kinds.clone();
        self.revision = snapshot.revision;
        self.compacted = snapshot.revision;
        self.restorations += 1;
        self.end_watches(WatchEnd::Broken, |_| true);
        for log in self.logs.values_mut() {
            log.events.clear();
            log.dropped = 0;
            log.changed.notify_waiters();
        }
        self.committed.notify_waiters();
    }
}
