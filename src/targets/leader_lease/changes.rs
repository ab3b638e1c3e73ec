//! Follows the holder of a Lease.

use std::sync::atomic::Ordering;

use futures_util::StreamExt;
use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};

use super::{LeaderLease, record::Record};
use crate::targets::{Changes, shared::Summary};

/// The holder of a Lease. It ignores renewals, which a leader makes all the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::targets) struct LeaseHolder {
    uid: Option<String>,
    holder: String,
    acquired: Option<Timestamp>,
}

impl Summary for LeaseHolder {
    type Object = Lease;

    fn of(lease: Lease) -> Option<Self> {
        let record = Record::of(&lease);
        Some(Self {
            uid: record.uid,
            holder: record.holder,
            acquired: record.acquired,
        })
    }

    fn is_news(&self, before: &Self) -> bool {
        self != before
    }
}

impl LeaderLease {
    /// Follows the holder of the Lease.
    pub(in crate::targets) fn changes(&self) -> Changes {
        let followed = self
            .context
            .shared
            .lease_holder(&self.context.namespace, &self.name);
        let changed = self.changed.clone();
        followed
            .changes()
            .map(move |()| changed.store(true, Ordering::SeqCst))
            .boxed()
    }
}
