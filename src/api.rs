//! Defines the types that users write: `RedisQuorum` and `LeaderLock`.
//!
//! Owns their shape ([`redis_quorum`], [`leader_lock`]), their rules (`rules` for the API server, [`validate`] for
//! every other check) and the plans that valid objects result in ([`plan`]). The types are lenient: they ignore a field
//! of a later version, so that old and new versions run side by side. Never connects to Kubernetes or Redis.

pub mod abstention;
pub(crate) mod bounds;
mod conditions;
mod crds;
pub mod hand_over;
pub mod in_force;
pub(crate) mod in_use;
pub mod leader_lock;
pub mod lock_status;
pub mod plan;
pub mod pointer;
pub mod quorum_status;
pub(crate) mod readable;
mod reasons;
pub mod redis_quorum;
pub mod reporters;
mod rules;
pub mod salvage;
mod schemas;
pub mod target;
pub mod validate;
pub(crate) mod vocabulary;

pub use crds::{crds_yaml, leader_lock_crd_yaml, redis_quorum_crd_yaml};
pub use leader_lock::{LeaderLock, LeaderLockSpec};
pub use redis_quorum::{RedisQuorum, RedisQuorumSpec};

/// The annotation of the coordinator's Lease that names the quorums of whose masters it sees no majority.
pub(crate) const UNSEEN_QUORUMS: &str = "redlock.dev/quorums-without-majority";
/// The annotation of the coordinator's Lease that names the scope of the coordinator.
pub(crate) const COORDINATOR_SCOPE: &str = "redlock.dev/scope";
/// The annotation of the coordinator's Lease that distinguishes this cluster from the one whose objects it has a copy of.
pub(crate) const CLUSTER_COPY: &str = "redlock.dev/cluster-copy";
/// The group of both kinds.
pub const GROUP: &str = "redlock.dev";
/// The finalizer that keeps a LeaderLock while this cluster may have running targets.
pub const FINALIZER: &str = "redlock.dev/targets";
/// The annotation that suspends the switching of a lock's targets.
pub(crate) const PAUSED: &str = "redlock.dev/paused";
/// The annotation of a RedisQuorum with entries `NAME=OLD URL`, separated by commas: the server of this master behind this URL
/// is stopped permanently. The URL is part of the entry so that a forgotten annotation does not apply to the next change.
pub(crate) const STOPPED: &str = "redlock.dev/old-master-stopped";
/// `apiVersion` of both kinds.
pub const API_VERSION: &str = "redlock.dev/v1alpha1";
