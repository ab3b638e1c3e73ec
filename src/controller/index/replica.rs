//! Identifies this replica.

use super::Scope;
use crate::{
    api::in_use::InUseFinalizer,
    controller::coordination::ClusterCopy,
    lease::{ClusterId, HolderIdentity},
};

/// The identity of this replica.
#[derive(Debug)]
pub(in crate::controller) struct Replica {
    pub(in crate::controller) identity: HolderIdentity,
    pub(in crate::controller) cluster: ClusterId,
    pub(in crate::controller) scope: Scope,
    /// The finalizer of the quorums that locks of this scope name.
    pub(in crate::controller) in_use: InUseFinalizer,
    /// Whether this replica knows the addresses of the other replicas.
    pub(in crate::controller) follows_siblings: bool,
    /// Whether the replicas elect a coordinator.
    pub(in crate::controller) coordinates: bool,
    /// The mark in the UID of the cluster, if the cluster is a copy of another one.
    pub(in crate::controller) copy: Option<ClusterCopy>,
}
