//! The reasons for which an object is refused, in the words that the API server (by the CEL rules in [`super::rules`])
//! and [`super::validate`] share. Each reason continues a sentence that begins with the value, and states the expected
//! value.
//!
//! Holds only texts that are the same for both. Where one of them knows more, such as the quorum of a lock, it reports
//! more.

pub(super) const LABEL: &str = "is not a valid name: use 1 to 63 lower-case letters, digits and \"-\", with a letter or \
                                digit at both ends";

pub(super) const SUBDOMAIN: &str = "is not a valid name: use 1 to 253 lower-case letters, digits, \"-\" and \".\", with \
                                    a letter or digit at both ends of each part";

// LeaderLock

pub(super) const LOCK_NAME_CHANGED: &str = "cannot change, nor be added or removed later: the holder keeps the lock \
                                            under the old name; create another LeaderLock";

pub(super) const TWICE_PREFERRED: &str = "is listed twice: list each cluster once";

pub(super) const AGENTS_ONLY_LABEL: &str =
    "needs candidates: Operator; with candidates: Agents only LabelPods is possible";

// Node fencing

pub(super) const FENCED_CANDIDATES: &str = "contends without the operator: with fencing: Node use candidates: Operator, which starts no pod without the mark \
     of the lease";

pub(super) const FENCED_ACTIONS: &str =
    "switches no pods that the agent of a node can freeze: with fencing: Node use Scale or Suspend";

pub(super) const FENCED_STOPS: &str =
    "leaves pods running without the lock, which fencing: Node freezes: use onQuorumLoss: Stop";

pub(super) const FENCED_ENFORCES: &str =
    "starts no targets, and fencing: Node freezes pods of other starters: use enforcement: Enforce";

pub(super) const FENCED_NOT_ORPHANED: &str = "leaves pods running after the lock was given up, which fencing: Node freezes: use deletionPolicy: StopThenRelease";

// Targets

pub(super) const NO_PODS: &str = "is required with action: LabelPods: select the pods with its selector";

pub(super) const ALL_PODS: &str =
    "is empty and would select every pod of the namespace: give matchLabels or matchExpressions";

pub(super) const REF_NOT_READ: &str =
    "is not used with action: LabelPods; select the pods with labelPods.selector";

pub(super) const API_VERSION: &str =
    "is not an API version: write GROUP/VERSION, such as apps/v1, or v1 for the core group";

pub(super) const SELECTOR_KEY: &str = "has a key that is not a label key: use 1 to 63 letters, digits, \"-\", \"_\" \
    and \".\" with \
                                       a letter or digit at both ends, after a DNS name and \"/\" if there is a prefix";

pub(super) const SELECTOR_VALUE: &str = "has a value that is not a label value: use up to 63 letters, digits, \
    \"-\", \"_\" and \
                                         \".\" with a letter or digit at both ends";

pub(super) const SELECTOR_VALUES: &str = "has an expression whose values do not fit its operator: In and NotIn need at least one \
                                          value, Exists and DoesNotExist take none";

/// The reason for standbyReplicas.
pub(super) const STANDBY_REPLICAS: &str = "is out of bounds: use 0 up to one fewer than activeReplicas";

pub(super) const NO_PATCH: &str = "is required with action: Patch: name the fields to set";

pub(super) const NO_PATCH_STOP: &str = "is required with action: Patch: no pod template has the time after which the target is certainly stopped";

pub(super) const FIELD_PATH: &str = "is not the path of a field to switch: write a JSON Pointer below /spec/ or \
    /metadata/annotations/ without list indices, such as /spec/suspend or \
    /metadata/annotations/example.com~1paused";

pub(super) const ANNOTATION_PATH: &str = "is not the path of an annotation to switch: write its key, with ~1 for \"/\", \
    such as /metadata/annotations/example.com~1paused; those of redlock.dev and kubectl.kubernetes.io have another \
    purpose";

pub(super) const CHECK_PATH: &str = "is not the path of a field of the status: write a JSON Pointer below /status/ without \
    list indices, such as /status/phase";

/// Follows the value of a field.
pub(super) const SAME_VALUES: &str = "is the value in both states: a switched field needs two values, of which one may be left \
    out to remove the field";

pub(super) const HOLDS_NULL: &str = "has a null in it, which a merge patch removes: leave that field out";

pub(super) const ANNOTATION_TEXT: &str = "is no text, and annotations are: write it in quotes";

pub(super) const NO_EQUALS: &str = "is required with path: give the value that shows the stop";

pub(super) const EQUALS_UNUSED: &str =
    "is read only with path: give the path as well, or status with the condition";

pub(super) const FIELDS_OVERLAP: &str =
    "has two paths that are equal, or one that contains the other: give each field one value";

pub(super) const ONE_CHECK: &str = "is required without condition, and refused with it: a check is of \
    a field or of a condition";

pub(super) const CONDITION_STATUS: &str =
    "is required with condition, and read only with it: give True, False or Unknown";

pub(super) const CONDITION_REASON: &str = "is read only with condition: give the condition as well";

pub(super) const ANNOTATION_TRUST: &str = "cannot be judged by observedGeneration where an annotation is switched, since \
    annotations do not change the generation: set trustStatusWithoutGeneration: true, or leave stoppedWhen out";

pub(super) const CLUSTER_NAME: &str =
    "is not the name of a cluster: do not use \":\", \"|\", \"/\", white space or control characters";

// RedisQuorum

pub(super) const QUORUM_SIZE: &str =
    "is not a number of masters that can form a quorum: declare 1, 3, 5 or 7";

pub(super) const URL_SHAPE: &str = crate::masters::URL_SHAPE;

pub(super) const CREDENTIALS: &str =
    "contains a user or password, which every reader of this object can see: use auth for the credentials";

/// Follows the statement that two masters have one url, or are one server.
pub(super) const SERVER_OF_ITS_OWN: &str = "give each master a server of its own";

pub(super) const MASTERS_CHANGED: &str = "cannot be renamed, added or removed: the names and the number are part of \
    the fingerprint on the masters; create another RedisQuorum (on the same servers with another keyPrefix), or \
    delete this one once no lock uses it";

pub(super) const SECRET_KEY: &str =
    "is not a key of a Secret: use 1 to 253 letters, digits, \"-\", \"_\" and \".\", such as redis-password";

pub(super) const KEY_OF_A_MASTER: &str = "is a key of one master alone, and no other master may learn its value: name a key for \
    all masters, such as redis-password";

pub(super) const KEY_PREFIX: &str = "is not a key prefix: use 1 to 64 letters, digits, \"-\", \"_\", \".\" and \"/\"; with \":\", it could be below another prefix, \
     whose user can read and write its keys";

pub(super) const KEY_PREFIX_CHANGED: &str = "cannot change: held leases are stored under the old prefix; create \
    another RedisQuorum";

pub(super) const LONGEST_LEASE_CHANGED: &str = "cannot change: it is part of the fingerprint on the masters; create \
                                                another RedisQuorum with another keyPrefix";

pub(super) const TLS_UNUSED: &str = "has no effect: no master's url begins with rediss://";

pub(super) const SHARED_PREFIX: &str =
    "is not a prefix of lock names: it must end with \"/\" and must not begin with \"_\"";
