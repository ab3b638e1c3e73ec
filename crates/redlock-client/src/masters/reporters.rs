//! Finds the clusters that are alive on a quorum: those that hold their reporter lock.
//!
//! Reads from every master that answers and writes nothing. Used for display and to check that names are
//! unique, never for an election.

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
    /// The clusters that at least one master shows.
    pub clusters: BTreeSet<ClusterId>,
    /// The number of masters whose keys were read to the end. If it is less than a majority, a missing cluster may be
    /// alive.
    pub complete: usize,
}

/// Returns the lock that the operators of a cluster hold in turn, which shows other clusters that the cluster
/// is alive.
///
/// # Errors
/// Returns an error for a UID that is too long for a name.
pub fn reporter_lock(cluster: &ClusterId) -> Result<LockName, IdentityError> {
    LockName::internal(PURPOSE, cluster.uid())
}

/// Returns the lock of the operators of a cluster that watch the same namespaces.
///
/// # Errors
/// Returns an error for a UID that is too long for a name.
pub fn scope_reporter_lock(cluster: &ClusterId, scope: &str) -> Result<LockName, IdentityError> {
    LockName::internal(PURPOSE, &format!("{}/{scope}", cluster.uid()))
}

impl Masters {
    /// Reads the reporters; the walk through the keys of a master takes at most `bound`.
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
        // The key is gone since the walk, or its value is foreign.
        _ => None,
    });
    Ok((clusters.collect(), found.complete))
}
