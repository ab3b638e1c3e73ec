//! The status of a `LeaderLock`. The operator writes it on transitions only, never for a renewal.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Status of a LeaderLock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaderLockStatus {
    /// The `metadata.generation` that this status describes; -1 before the first reconciliation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Role of this cluster for the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,

    /// The candidate that holds the lock, in this or another cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub holder_identity: Option<String>,

    /// Name of the cluster of the holder; NAME/UID if another cluster uses the name of this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub holder_cluster: Option<String>,

    /// UID of the cluster of the holder: that of its namespace `kube-system`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub holder_cluster_uid: Option<String>,

    /// Cluster and identity in one text: CLUSTER/IDENTITY.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 641))]
    pub holder: Option<String>,

    /// Time at which the holder acquired the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<super::schemas::Time>")]
    pub acquire_time: Option<MicroTime>,

    /// Time of the last renewal of the lease before this status was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<super::schemas::Time>")]
    pub renew_time: Option<MicroTime>,

    /// Number of changes of the holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_transitions: Option<i64>,

    /// The fencing token of the holder's grant; every later grant has a larger one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<i64>,

    /// The timings in effect, whether given or derived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<EffectiveTimings>,

    /// Desired and current state of each target in this cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub targets: Vec<TargetStatus>,

    /// `Ready`, `Held`, `QuorumAvailable`, `Enforced`, `Reconciling` (the operator reconciles the object, or waits for
    /// a change that needs no edit), `Stalled` (a person must change something first): exactly one of these two and
    /// `Ready` is true. `SurgesOnRollout` is true where a rollout runs two pods of a Deployment that must have one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[schemars(transform = super::conditions::bounded)]
    #[schemars(with = "Vec<super::schemas::Condition>")]
    pub conditions: Vec<Condition>,
}

/// Role of this cluster for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Role {
    /// This cluster holds the lock and its targets run.
    Active,
    /// This cluster holds the lock and starts its targets.
    Activating,
    /// This cluster stops its targets.
    Stopping,
    /// Another candidate holds the lock, or no candidate does.
    Standby,
    /// The role of this cluster is not known.
    Unknown,
}

/// The timings in effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EffectiveTimings {
    /// Duration of one lease, in milliseconds.
    pub lease_duration_milliseconds: i64,
    /// Time without a successful renewal after which the holder steps down, in milliseconds.
    pub renew_deadline_milliseconds: i64,
    /// Wait between two attempts, in milliseconds.
    pub retry_period_milliseconds: i64,
    /// Longest stop time of the targets, in milliseconds.
    pub stop_milliseconds: i64,
}

/// One target in this cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetStatus {
    /// Name of the target in the spec.
    #[schemars(length(max = 63))]
    pub name: String,
    /// Desired state of the target.
    pub desired: TargetState,
    /// Current state of the target.
    pub observed: TargetState,
}

/// Whether a target runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum TargetState {
    /// The target runs.
    Active,
    /// The target is stopped.
    Standby,
    /// The target is being started or stopped.
    Changing,
    /// The state of the target is not known.
    Unknown,
}
