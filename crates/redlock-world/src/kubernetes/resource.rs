//! The names of resources, and the table of built-in kinds.

use std::borrow::Cow;

/// A resource: its API group and its plural name, such as `apps` and `deployments`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId {
    pub group: Cow<'static, str>,
    pub plural: Cow<'static, str>,
}

impl ResourceId {
    pub const NAMESPACES: Self = Self::fixed("", "namespaces");
    pub const PODS: Self = Self::fixed("", "pods");
    pub const SERVICES: Self = Self::fixed("", "services");
    pub const NODES: Self = Self::fixed("", "nodes");
    pub const SECRETS: Self = Self::fixed("", "secrets");
    pub const CONFIG_MAPS: Self = Self::fixed("", "configmaps");
    pub const CORE_EVENTS: Self = Self::fixed("", "events");
    pub const VOLUME_CLAIMS: Self = Self::fixed("", "persistentvolumeclaims");
    pub const EVENTS: Self = Self::fixed("events.k8s.io", "events");
    pub const DEPLOYMENTS: Self = Self::fixed("apps", "deployments");
    pub const STATEFUL_SETS: Self = Self::fixed("apps", "statefulsets");
    pub const REPLICA_SETS: Self = Self::fixed("apps", "replicasets");
    pub const DAEMON_SETS: Self = Self::fixed("apps", "daemonsets");
    pub const JOBS: Self = Self::fixed("batch", "jobs");
    pub const CRON_JOBS: Self = Self::fixed("batch", "cronjobs");
    pub const LEASES: Self = Self::fixed("coordination.k8s.io", "leases");
    pub const DEFINITIONS: Self = Self::fixed("apiextensions.k8s.io", "customresourcedefinitions");
    pub const LEADER_LOCKS: Self = Self::fixed("redlock.dev", "leaderlocks");
    pub const REDIS_QUORUMS: Self = Self::fixed("redlock.dev", "redisquorums");

    pub const fn fixed(group: &'static str, plural: &'static str) -> Self {
        Self {
            group: Cow::Borrowed(group),
            plural: Cow::Borrowed(plural),
        }
    }

    pub fn new(group: impl Into<String>, plural: impl Into<String>) -> Self {
        Self {
            group: Cow::Owned(group.into()),
            plural: Cow::Owned(plural.into()),
        }
    }
}

impl std::fmt::Display for ResourceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.group.is_empty() {
            write!(f, "{}", self.plural)
        } else {
            write!(f, "{}.{}", self.plural, self.group)
        }
    }
}

/// One row of the table of built-in kinds.
pub(super) struct BuiltIn {
    pub(super) id: ResourceId,
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    pub(super) namespaced: bool,
    pub(super) has_status: bool,
    pub(super) has_scale: bool,
    pub(super) has_generation: bool,
    pub(super) short_name: &'static str,
}

/// Flags of a row: namespaced, with a status subresource, with a scale subresource, with a generation.
const NAMESPACED: u8 = 1;
const STATUS: u8 = 2;
const SCALE: u8 = 4;
const GENERATION: u8 = 8;

const fn row(
    id: ResourceId,
    version: &'static str,
    kind: &'static str,
    short: &'static str,
    flags: u8,
) -> BuiltIn {
    BuiltIn {
        id,
        version,
        kind,
        namespaced: flags & NAMESPACED != 0,
        has_status: flags & STATUS != 0,
        has_scale: flags & SCALE != 0,
        has_generation: flags & GENERATION != 0,
        short_name: short,
    }
}

const WORKLOAD: u8 = NAMESPACED | STATUS | GENERATION;

pub(super) const BUILT_IN: &[BuiltIn] = &[
    row(ResourceId::NAMESPACES, "v1", "Namespace", "ns", STATUS),
    row(ResourceId::PODS, "v1", "Pod", "po", WORKLOAD),
    row(ResourceId::NODES, "v1", "Node", "no", STATUS),
    row(ResourceId::SECRETS, "v1", "Secret", "", NAMESPACED),
    row(ResourceId::CONFIG_MAPS, "v1", "ConfigMap", "cm", NAMESPACED),
    row(ResourceId::CORE_EVENTS, "v1", "Event", "ev", NAMESPACED),
    row(ResourceId::SERVICES, "v1", "Service", "svc", NAMESPACED | STATUS),
    row(
        ResourceId::fixed("", "serviceaccounts"),
        "v1",
        "ServiceAccount",
        "sa",
        NAMESPACED,
    ),
    row(
        ResourceId::VOLUME_CLAIMS,
        "v1",
        "PersistentVolumeClaim",
        "pvc",
        NAMESPACED | STATUS,
    ),
    row(
        ResourceId::fixed("", "persistentvolumes"),
        "v1",
        "PersistentVolume",
        "pv",
        STATUS,
    ),
    row(ResourceId::EVENTS, "v1", "Event", "ev", NAMESPACED),
    row(
        ResourceId::DEPLOYMENTS,
        "v1",
        "Deployment",
        "deploy",
        WORKLOAD | SCALE,
    ),
    row(
        ResourceId::STATEFUL_SETS,
        "v1",
        "StatefulSet",
        "sts",
        WORKLOAD | SCALE,
    ),
    row(
        ResourceId::REPLICA_SETS,
        "v1",
        "ReplicaSet",
        "rs",
        WORKLOAD | SCALE,
    ),
    row(ResourceId::DAEMON_SETS, "v1", "DaemonSet", "ds", WORKLOAD),
    row(
        ResourceId::fixed("apps", "controllerrevisions"),
        "v1",
        "ControllerRevision",
        "",
        NAMESPACED,
    ),
    row(ResourceId::JOBS, "v1", "Job", "", WORKLOAD),
    row(ResourceId::CRON_JOBS, "v1", "CronJob", "cj", WORKLOAD),
    row(ResourceId::LEASES, "v1", "Lease", "", NAMESPACED),
    row(
        ResourceId::DEFINITIONS,
        "v1",
        "CustomResourceDefinition",
        "crd",
        STATUS | GENERATION,
    ),
    row(
        ResourceId::fixed("policy", "poddisruptionbudgets"),
        "v1",
        "PodDisruptionBudget",
        "pdb",
        WORKLOAD,
    ),
    row(
        ResourceId::fixed("autoscaling", "horizontalpodautoscalers"),
        "v2",
        "HorizontalPodAutoscaler",
        "hpa",
        NAMESPACED | STATUS,
    ),
    row(
        ResourceId::fixed("storage.k8s.io", "csidrivers"),
        "v1",
        "CSIDriver",
        "",
        0,
    ),
    row(
        ResourceId::fixed("storage.k8s.io", "csinodes"),
        "v1",
        "CSINode",
        "",
        0,
    ),
];
