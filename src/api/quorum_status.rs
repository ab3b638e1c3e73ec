//! The status of a `RedisQuorum`. The reporter of the cluster writes it, and people and alerts read it. The one
//! exception is `notReadyReplicas`, in which each replica owns the entry with its name.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Status of a RedisQuorum.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RedisQuorumStatus {
    /// The `metadata.generation` that this status describes; -1 before the first reconciliation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Number of masters that vote, and of all masters: `5/5`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub votes: Option<String>,
    /// The random id of the quorum, stored on each master beside its seal. Masters with another id have no vote, even a
    /// majority of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub quorum_id: Option<String>,

    /// State of each master, as the reporter sees it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub masters: Vec<MasterStatus>,

    /// The clusters that use this quorum and when they were last seen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["cluster"]))]
    pub reporters: Vec<ReporterStatus>,

    /// Time at which `firstStart: Immediate` initialised the masters. The operator does not initialise them a second time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<super::schemas::Time>")]
    pub initialized_time: Option<Time>,

    /// The replicas of the operator that are not ready because of this quorum, as each of them reports. A replica that reports
    /// nothing for 45 s is removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub not_ready_replicas: Vec<NotReadyReplica>,

    /// `Ready` (a majority votes), `Degraded` (some masters do not), `Safe` (no master is configured in a way that can lose leases), `Reconciling`,
    /// `Stalled`: exactly one of these two and `Ready` is true. `ReplicasReady` is false while `notReadyReplicas` names a
    /// replica. `SiblingsUnreachable` names the replicas that do not answer the reporter. `SingleMaster` is `True` for a quorum of one
    /// master. `Terminating` names what keeps an object that is being deleted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[schemars(transform = super::conditions::bounded)]
    #[schemars(with = "Vec<super::schemas::Condition>")]
    pub conditions: Vec<Condition>,
}

/// State of one master, as the reporter sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MasterStatus {
    /// Name of the master in the spec.
    #[schemars(length(max = 63))]
    pub name: String,
    /// The url under which this operator last used the master; contains no credentials. If it differs from the spec,
    /// the url was changed, and the operator still has to clear the seal of the server behind this url.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub url: Option<String>,
    /// Whether the master answers.
    #[serde(default)]
    pub reachable: bool,
    /// Whether the master may vote under its present run id.
    #[serde(default)]
    pub sealed: bool,
    /// Seconds until the master can be sealed; absent when the master is sealed or the time is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed_in_seconds: Option<i64>,
    /// Replication role that the server reports, `master` or `slave`; only a `master` may vote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub role: Option<String>,
    /// The program, such as `Redis` or `Valkey`, according to its INFO.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub server: Option<String>,
    /// Version of the program, such as `8.1.1`. Redis 6.2 and Valkey 7.2 are the oldest versions that may vote. For a
    /// program that the operator does not know, the version of Redis with which the program is compatible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub version: Option<String>,
    /// Persistence of the memory over a restart: `aof` (an append-only file) or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub persistence: Option<String>,
    /// Eviction policy when the memory is full; only `noeviction` is safe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub eviction_policy: Option<String>,
    /// Median time of the last answers, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_microseconds: Option<i64>,
    /// The reason why the master has no vote; absent when it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
}

/// A cluster that uses the quorum.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReporterStatus {
    /// The cluster, as NAME/UID.
    #[schemars(length(max = 128))]
    pub cluster: String,
    /// Time of the last report of the cluster; every 30 s while its operator runs.
    #[schemars(with = "super::schemas::Time")]
    pub last_seen_time: Time,
}

/// A replica of the operator that is not ready: it has not seen a majority of the masters since it started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotReadyReplica {
    /// Identity of the replica: the name of its pod unless `--identity` is given.
    #[schemars(length(max = 512))]
    pub name: String,
    /// The reason why the replica is not ready.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// Time of this report; every 30 s while the replica is not ready.
    #[schemars(with = "super::schemas::Time")]
    pub last_seen_time: Time,
}
