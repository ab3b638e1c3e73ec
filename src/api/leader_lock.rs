//! `LeaderLock`: one lock, the workloads that run where it is held, and its time limits.

#![expect(
    unreachable_pub,
    reason = "KubeSchema writes a copy of each struct into a function, as public as the struct"
)]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::lock_status::LeaderLockStatus;
use super::rules;
use super::target::Target;

/// One lock. The candidate that holds its lease on a majority of the quorum's masters is active; all other candidates
/// stand by.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "redlock.dev",
    version = "v1alpha1",
    kind = "LeaderLock",
    plural = "leaderlocks",
    namespaced,
    shortname = "ll",
    category = "redlock",
    selectable = ".spec.quorumRef.name",
    selectable = ".spec.candidates",
    selectable = ".spec.state",
    status = "LeaderLockStatus",
    derive = "PartialEq",
    doc = "A lock that one active replica holds; its targets run where it is held and nowhere else."
)]
#[kube(
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"}"#
)]
#[kube(printcolumn = r#"{"name": "Role", "type": "string", "jsonPath": ".status.role"}"#)]
#[kube(printcolumn = r#"{"name": "Holder", "type": "string", "jsonPath": ".status.holder"}"#)]
#[kube(
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].reason"}"#
)]
#[kube(
    printcolumn = r#"{"name": "Token", "type": "integer", "priority": 1, "jsonPath": ".status.fencingToken"}"#
)]
#[kube(
    printcolumn = r#"{"name": "Transitions", "type": "integer", "priority": 1, "jsonPath": ".status.leaseTransitions"}"#
)]
#[kube(printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#)]
#[x_kube(validation = rules::lock_name_characters(), validation = rules::lock_name_not_internal())]
#[x_kube(validation = rules::lock_name_stays())]
#[x_kube(validation = rules::stops_in_time(), validation = rules::gives_up_in_time())]
#[x_kube(validation = rules::retries_in_time())]
#[x_kube(validation = rules::reason_given(), validation = rules::preferred_once())]
#[x_kube(validation = rules::agents_only_label())]
#[x_kube(validation = rules::fenced_candidates(), validation = rules::fenced_actions())]
#[x_kube(validation = rules::fenced_stops(), validation = rules::fenced_enforces())]
#[x_kube(validation = rules::fenced_not_orphaned())]
#[serde(rename_all = "camelCase")]
pub struct LeaderLockSpec {
    /// The quorum whose masters grant the lease.
    pub quorum_ref: QuorumRef,

    /// Name of the lock on the masters; the same name in another cluster is the same lock. Default
    /// `<namespace>/<name>`. Cannot change. Begins with `<namespace>/`, unless the quorum's sharedLockNames allow more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub lock_name: Option<String>,

    /// Duration of one lease, in seconds: from 2 to the quorum's maxLeaseDurationSeconds. Default: 15, or the longest stop time
    /// of the targets + 25 rounded up to 5; 15 with fencing: Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 86400))]
    pub lease_duration_seconds: Option<i64>,

    /// The holder stops and steps down after this many seconds without a successful renewal; at least 1. The renew
    /// deadline, the stop time and up to 1 s of slack must fit into 99 % of the lease. Default: three quarters of the
    /// available time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub renew_deadline_seconds: Option<i64>,

    /// Seconds between two attempts after a failed round; at least 1, and twice this fits into the renew deadline. Default: a
    /// fifth of the renew deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub retry_period_seconds: Option<i64>,

    /// The candidates that contend for the lock. Default `Operator`.
    #[serde(default)]
    pub candidates: Candidates,

    /// Whether this cluster's candidates contend. Default `Enabled`.
    #[serde(default)]
    pub state: LockState,

    /// The reason why the state is not `Enabled`, for the person on call. Required in every other state; at most 512
    /// characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub reason: Option<String>,

    /// Whether the operator switches the targets or only reports the action that it would take. Default `Enforce`.
    #[serde(default)]
    pub enforcement: Enforcement,

    /// Names of clusters, the preferred cluster first. A cluster waits for its position in the list (0, 1, …) ×
    /// preferenceDelaySeconds after the end of a lease; a cluster that is not listed waits as if it followed the last
    /// one. Default: no cluster waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 63)), transform = rules::cluster_names)]
    pub cluster_preference: Vec<String>,

    /// Seconds of waiting for each position in clusterPreference, 0 to 3600. Default 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600))]
    pub preference_delay_seconds: Option<i64>,

    /// Seconds that another cluster waits after a lease that ended uncleanly, 0 to 86400. The holder declares them on the
    /// masters; a cluster that takes over waits at least its own value, too. Default: the longest stop time of the targets,
    /// given or derived, + 5 (LabelPods has none); 0 without targets, and with OncePerSchedule only; 1 with fencing: Node while all
    /// pods that run are fenced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86400))]
    pub takeover_delay_seconds: Option<i64>,

    /// Whether the agents of the nodes keep the pods of the targets from running without the lock. Default `None`.
    #[serde(default)]
    pub fencing: Fencing,

    /// Action on running targets when the majority of the masters is lost. Default `Stop`.
    #[serde(default)]
    pub on_quorum_loss: OnQuorumLoss,

    /// The holder steps down when its targets stay unready for this number of seconds, 0 to 86400, and another cluster with this field is willing to take the lock; 0 = never. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86400))]
    pub failover_after_unready_seconds: Option<i64>,

    /// Action on running targets when this object is deleted. Default `StopThenRelease`.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,

    /// The workloads that run where the lock is held. Without targets, the operator only holds the lock and reports it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub targets: Vec<Target>,
}

/// Refers to a RedisQuorum by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = rules::subdomain("name"))]
pub struct QuorumRef {
    /// Name of the RedisQuorum.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// The candidates that contend for a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Candidates {
    /// The operator's replicas contend and switch the targets.
    #[default]
    Operator,
    /// `redlock agent` and `redlock run` processes contend; the operator observes (only LabelPods targets).
    Agents,
}

/// Whether this cluster's candidates contend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LockState {
    /// The candidates contend.
    #[default]
    Enabled,
    /// The candidates only succeed a sibling: this cluster neither gains nor loses the lock.
    Frozen,
    /// The candidates do not contend; a holder stops its targets and releases the lock.
    SteppedDown,
}

/// Whether the operator switches the targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Enforcement {
    /// The operator switches the targets.
    #[default]
    Enforce,
    /// The operator does not change the targets: the status reports the action that it would take.
    Observe,
}

/// Whether the agents of the nodes keep the pods of a lock from running without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Fencing {
    /// They do not: the operator stops the targets before the lease ends.
    #[default]
    None,
    /// They freeze the pods of a cluster that no longer holds the lock. Each pod template mounts the volume of the driver
    /// fencing.redlock.dev; only Scale and Suspend targets.
    Node,
}

/// Action on running targets when the majority of the masters is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnQuorumLoss {
    /// The targets are stopped before the lease ends: exclusion over availability.
    #[default]
    Stop,
    /// The targets continue to run until another holder is seen, so two may run at once: availability over exclusion.
    KeepRunning,
}

/// Action on running targets when the object is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// The targets are stopped, then the lease is released.
    #[default]
    StopThenRelease,
    /// The targets are not changed.
    Orphan,
}
