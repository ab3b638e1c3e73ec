//! `RedisQuorum`: the masters on which leases live. Cluster-scoped, because it belongs to the administrator of the
//! masters.

#![expect(
    unreachable_pub,
    reason = "KubeSchema writes a copy of each struct into a function, as public as the struct"
)]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::quorum_status::RedisQuorumStatus;
use super::rules;

/// N = 2f+1 independent Redis masters (3, 5 or 7, or 1 for a trial) that grant leases together. A lock is held by the candidate that
/// holds its lease on a majority of them.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "redlock.dev",
    version = "v1alpha1",
    kind = "RedisQuorum",
    plural = "redisquorums",
    shortname = "rq",
    category = "redlock",
    status = "RedisQuorumStatus",
    derive = "PartialEq",
    doc = "A set of independent Redis masters on which the leases of locks live."
)]
#[kube(
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"}"#
)]
#[kube(
    printcolumn = r#"{"name": "Degraded", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Degraded\")].status"}"#
)]
#[kube(
    printcolumn = r#"{"name": "Safe", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Safe\")].status"}"#
)]
#[kube(
    printcolumn = r#"{"name": "ReplicasReady", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"ReplicasReady\")].status"}"#
)]
#[kube(printcolumn = r#"{"name": "Votes", "type": "string", "jsonPath": ".status.votes"}"#)]
#[kube(
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].reason"}"#
)]
#[kube(printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#)]
#[x_kube(validation = rules::quorum_size(), validation = rules::servers_of_their_own())]
#[x_kube(validation = rules::masters_stay())]
#[x_kube(validation = rules::key_prefix_characters(), validation = rules::key_prefix_stays())]
#[x_kube(validation = rules::longest_lease_stays(), validation = rules::tls_of_use())]
#[x_kube(validation = rules::key_of_all_masters("passwordKey"), validation = rules::key_of_all_masters("usernameKey"))]
#[serde(rename_all = "camelCase")]
pub struct RedisQuorumSpec {
    /// The masters: 3, 5 or 7 servers that share nothing, without failover replicas behind them; or 1, which tolerates no
    /// loss and is shown by the condition `SingleMaster`. Their names and number cannot change; another set is another RedisQuorum with another keyPrefix. The url of a master may change.
    #[schemars(length(min = 1, max = 7))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub masters: Vec<Master>,

    /// User and password for the masters. Absent: no AUTH is sent. With `--standalone` the credentials come from command-line
    /// flags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<QuorumAuth>,

    /// Certificates for masters whose url begins with `rediss://`. Absent: the system's certificate authorities, and
    /// no client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<QuorumTls>,

    /// First part of every key and channel on the masters: letters, digits, `-`, `_`, `.`, `:` and `/`, at most 64.
    /// Default `redlock`. Cannot change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub key_prefix: Option<String>,

    /// Time limit of one master for one command, in milliseconds, 10 to 2000 (no attempt lasts longer). The renew deadline of
    /// each lock must be at least three times as long. Default 500.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 2000))]
    pub command_timeout_milliseconds: Option<i64>,

    /// The longest lease that a lock may request, in seconds, 2 to 86400. Default 60. Part of the fingerprint: cannot change. A
    /// master that lost its memory waits a little longer than this before it votes again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 86400))]
    pub max_lease_duration_seconds: Option<i64>,

    /// Action of the operator on masters that were never used. Default `Wait`.
    #[serde(default)]
    pub first_start: FirstStart,

    /// Lock names that namespaces other than that of their prefix may use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub shared_lock_names: Vec<SharedLockNames>,
}

/// One Redis server of the N.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = rules::label("name"))]
#[x_kube(validation = rules::url_scheme(), validation = rules::url_without_credentials())]
#[x_kube(validation = rules::url_shape())]
#[serde(rename_all = "camelCase")]
pub struct Master {
    /// Name of the master in metrics, in the status and in the fingerprint: lower-case letters, digits and `-`, at most
    /// 63. The same in every cluster.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,

    /// `redis://HOST[:PORT][/DATABASE]`, or `rediss://` for TLS. Port 6379 and database 0 unless given. Contains no
    /// user and no password; use `auth` for these.
    #[schemars(length(min = 1, max = 512))]
    pub url: String,

    /// The unit of failure that contains this master (a zone, a rack). Reported in metrics; two masters with the same
    /// value weaken the quorum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub failure_domain: Option<String>,
}

/// The source of the user and password.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = rules::secret_key("passwordKey"), validation = rules::secret_key("usernameKey"))]
#[serde(rename_all = "camelCase")]
pub struct QuorumAuth {
    /// A Secret with the keys `username` (absent: the default user) and `password`. The keys `MASTER.username` and
    /// `MASTER.password` are for the master of this name alone: no other master learns them. With one such password for each
    /// master, `password` may be absent. White space around a value is no part of it, and an empty value counts as absent.
    pub secret_ref: SecretRef,

    /// Key of the password of all masters, for a Secret that another chart or operator made, such as `redis-password`. Default
    /// `password`. Not the key of one master.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub password_key: Option<String>,

    /// Key of the user of all masters. The Secret must have it, and an empty value stands for the default user. Default
    /// `username`, which may be absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub username_key: Option<String>,
}

/// The source of the certificates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuorumTls {
    /// A Secret with the keys `ca.crt` (absent: the system's authorities), and `tls.crt` with `tls.key` (absent: no
    /// client certificate). `MASTER.tls.crt` with `MASTER.tls.key` is the client certificate for the master of this name alone.
    pub secret_ref: SecretRef,
}

/// Refers to a Secret by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = rules::subdomain("name"), validation = rules::label("namespace"))]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the Secret. A RedisQuorum has none of its own, so there is no default.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
}

/// Action of the operator on masters that were never used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FirstStart {
    /// Waits for `redlock init`, or until no lease of any length that is allowed can be alive, which takes a day. Always
    /// safe.
    #[default]
    Wait,
    /// Runs `redlock init` once, which states that no lease can be alive. The status records the initialisation.
    Immediate,
}

/// Lets namespaces use lock names that do not begin with their own name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = rules::shared_prefix())]
#[serde(rename_all = "camelCase")]
pub struct SharedLockNames {
    /// Prefix of the lock names; ends with `/`, so that `team-a/` does not cover `team-ab/`.
    #[schemars(length(min = 2, max = 512))]
    pub prefix: String,
    /// The namespaces that may use these lock names.
    #[schemars(length(min = 1, max = 256), inner(length(min = 1, max = 63)), transform = rules::labels)]
    pub namespaces: Vec<String>,
}
