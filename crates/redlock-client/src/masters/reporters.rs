//! Which clusters are alive on a quorum: those that hold the lock with which each of them reports.
//!
//! Reads only, at every master that answers. A heartbeat for people and for the check that names are unique; nothing is
//! elected by it.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;

use redlock_core::{BootInstant, ClusterId, LockName, Obstacle, Unknown, identity::IdentityError};

use super::{
    Masters,
    link::Link,
    scan::{accounts, lock_names},
};
use crate::clock;

const PURPOSE: &str = "reporter";

/// The clusters that report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reporters {
    /// By any master.
    pub clusters: BTreeSet<ClusterId>,
    /// The masters whose keys were looked through to their end. With less than a majority of them, a cluster that is
    /// missing may be alive.
    pub complete: usize,
}

/// The lock that the operators of a cluster hold in turn, and by which others see that it is alive.
///
/// # Errors
/// A UID that is too long for a name.
pub fn reporter_lock(cluster: &ClusterId) -> Result<LockName, IdentityError> {
    LockName::internal(PURPOSE, cluster.uid())
}

/// The lock of those among them that watch the same namespaces.
///
/// # Errors
/// A UID that is too long for a name.
pub fn scope_reporter_lock(cluster: &ClusterId, scope: &str) -> Result<LockName, IdentityError> {
    LockName::internal(PURPOSE, &format!("{}/{scope}", cluster.uid()))
}

impl Masters {
    /// Asks for them; the walk through the keys of a master takes at most `bound`.
    pub async fn clusters(&self, bound: Duration) -> Reporters {
        let until = clock::now() + bound;
        let each = join_all(self.links().iter().map(|link| clusters(link, until))).await;
        let mut reporters = Reporters::default();
        for (clusters, complete) in each.into_iter().flatten() {
            reporters.clusters.extend(clusters);
            reporters.complete += usize::from(complete);
        }
        reporters
    }
}

async fn clusters(link: &Link, until: BootInstant) -> Result<(Vec<ClusterId>, bool), Unknown> {
    let pattern = link.keys.pattern(&format!("lease:_{PURPOSE}/*"));
    let found = lock_names(link, &pattern, until).await?;
    let locks: Vec<_> = found.names.iter().map(|name| link.keys.lock(name)).collect();
    let accounts = accounts(link, &locks).await?.into_iter();
    let clusters = accounts.filter_map(|account| match account.lease {
        Some((Obstacle::Lease(lease), _)) => Some(lease.cluster),
        // Gone since it was found, or written by somebody else.
        _ => None,
    });
    Ok((clusters.collect(), found.complete))
}
