//! Finds the clusters that are alive on a quorum: those that hold their reporter lock. Of these, finds the ones that are
//! willing to take a lock.
//!
//! Reads from every master that answers and writes nothing. Never used for an election.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;

use redlock_core::{BootInstant, ClusterId, LockName, Obstacle, Unknown, identity::IdentityError};

use super::{
    Masters,
    link::Link,
    scan::{LockAccount, accounts, lock_names},
};
use crate::clock;

const PURPOSE: &str = "reporter";
const WILLING: &str = "willing";
const ABSTAINING: &str = "abstaining";
const DECLINING: &str = "declining";

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

/// Returns the lock that the operators of a cluster hold while the cluster is willing to take `lock`.
///
/// # Errors
/// Returns an error for names that are too long together.
pub fn willing_lock(cluster: &ClusterId, lock: &LockName) -> Result<LockName, IdentityError> {
    LockName::internal(WILLING, &format!("{}/{lock}", cluster.uid()))
}

/// Returns the lock that the operators of a cluster hold while the cluster takes `lock` only if the lock is reserved for it.
///
/// # Errors
/// Returns an error for names that are too long together.
pub fn abstaining_lock(cluster: &ClusterId, lock: &LockName) -> Result<LockName, IdentityError> {
    LockName::internal(ABSTAINING, &format!("{}/{lock}", cluster.uid()))
}

/// Returns the lock that the operators of a cluster hold while the cluster does not take `lock`, even if the lock is reserved
/// for it.
///
/// # Errors
/// Returns an error for names that are too long together.
pub fn declining_lock(cluster: &ClusterId, lock: &LockName) -> Result<LockName, IdentityError> {
    LockName::internal(DECLINING, &format!("{}/{lock}", cluster.uid()))
}

/// Whether a cluster takes part in a lock, as the masters show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakesPart {
    /// The cluster is willing to take the lock.
    Willing,
    /// The cluster takes the lock if the lock is reserved for it.
    Abstaining,
    /// The cluster does not take the lock, even if the lock is reserved for it.
    Declining,
    /// The masters show nothing: the lock is not shown there, or the cluster, the lock or its operator is absent.
    NotShown,
    /// Too few masters answered.
    Unknown,
}

impl Masters {
    /// Returns whether each of these clusters takes part in a lock, in their order: whether a majority of the masters
    /// shows a lease of [`willing_lock`], [`abstaining_lock`] or [`declining_lock`].
    pub async fn take_part(&self, questions: &[(LockName, ClusterId)]) -> Vec<TakesPart> {
        // A lock whose names would be too long is shown by no cluster.
        let names: Vec<Option<[LockName; 3]>> = questions
            .iter()
            .map(|(lock, cluster)| {
                Some([
                    willing_lock(cluster, lock).ok()?,
                    abstaining_lock(cluster, lock).ok()?,
                    declining_lock(cluster, lock).ok()?,
                ])
            })
            .collect();
        let asked: Vec<LockName> = names.iter().flatten().flatten().cloned().collect();
        let answers: Vec<_> = self.accounts(&asked).await.into_iter().flatten().collect();
        let majority = self.size().majority();
        let missing = self.size().masters() - answers.len();
        let shown = |index: usize, cluster: &ClusterId| {
            let shows = |account: &LockAccount| match &account.lease {
                Some((Obstacle::Lease(lease), _)) => lease.cluster.uid() == cluster.uid(),
                Some((Obstacle::Reserved(_) | Obstacle::Foreign(_), _)) | None => false,
            };
            answers.iter().filter(|accounts| shows(&accounts[index])).count()
        };
        let mut places = (0..asked.len()).step_by(3);
        let one = |((_, cluster), names): (&(LockName, ClusterId), &Option<[LockName; 3]>)| {
            let Some(place) = names.as_ref().and_then(|_| places.next()) else {
                return TakesPart::NotShown;
            };
            let states = [TakesPart::Willing, TakesPart::Abstaining, TakesPart::Declining];
            let votes = [0, 1, 2].map(|offset| shown(place + offset, cluster));
            let found = states
                .into_iter()
                .zip(votes)
                .find(|(_, votes)| *votes >= majority);
            let most = votes.into_iter().max().unwrap_or_default();
            match found {
                Some((takes_part, _)) => takes_part,
                None if most + missing >= majority => TakesPart::Unknown,
                None => TakesPart::NotShown,
            }
        };
        questions.iter().zip(&names).map(one).collect()
    }

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
