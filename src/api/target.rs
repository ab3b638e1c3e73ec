//! Targets of a `LeaderLock`: the objects that are switched on where the lock is held and off everywhere else.

#![expect(
    unreachable_pub,
    reason = "KubeSchema writes a copy of each struct into a function, as public as the struct"
)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::rules;

/// Each target has a row in the status, and each `OncePerSchedule` target a register on the masters.
pub(super) const TARGET_LIMIT: usize = 32;
/// Of a selector: its labels, its expressions, and the values of each.
pub(super) const LABEL_LIMIT: usize = 32;
pub(super) const EXPRESSION_LIMIT: usize = 16;
pub(super) const VALUE_LIMIT: usize = 32;
/// Of the action Patch: its fields, and the checks of the status.
pub(super) const FIELD_LIMIT: usize = 4;
pub(super) const CHECK_LIMIT: usize = 4;
/// Operators of an expression.
pub(super) const OPERATORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];

/// One target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = rules::label("name"))]
#[x_kube(validation = rules::ref_given(), validation = rules::ref_not_with_pods())]
#[x_kube(validation = rules::switches("Suspend", "batch/v1", &["CronJob", "Job"]))]
#[x_kube(validation = rules::switches("OncePerSchedule", "batch/v1", &["CronJob"]))]
#[x_kube(validation = rules::switches("Lease", "coordination.k8s.io/v1", &["Lease"]))]
#[x_kube(validation = rules::stop_of_use(), validation = rules::pods_given())]
#[x_kube(validation = rules::block_of("Scale", "scale"))]
#[x_kube(validation = rules::block_of("OncePerSchedule", "oncePerSchedule"))]
#[x_kube(validation = rules::block_of("LabelPods", "labelPods"))]
#[x_kube(validation = rules::block_of("Patch", "patch"))]
#[x_kube(validation = rules::patch_given(), validation = rules::patch_stop_given())]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// Name of the target in the status and in events: lower-case letters, digits and `-`, at most 63.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,

    /// The object that the lock switches, in the namespace of the lock. Required for every action but LabelPods.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<TargetRef>,

    /// The action that starts and stops the target.
    pub action: Action,

    /// Seconds after which the target is certainly stopped, 0 to 86400; only for Scale, Suspend, Lease and Patch, and required
    /// for Patch. Default: the grace period of its pod template in this cluster + 5, at most 35, and 35 where that cannot be
    /// read; of a StatefulSet with `podManagementPolicy: OrderedReady` the grace periods of all pods that a stop ends + 5. A
    /// longer time must be set here; the operator emits an event that names it. Of a Lease: 28, for the leaseDurationSeconds of
    /// 15 that client-go uses by default; 11/6 of another duration and 1 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86400))]
    pub stop_seconds: Option<i64>,

    /// Settings of the action Scale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<ScaleSettings>,

    /// Settings of the action OncePerSchedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub once_per_schedule: Option<OncePerScheduleSettings>,

    /// Settings of the action LabelPods; required there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_pods: Option<LabelPodsSettings>,

    /// Settings of the action Patch; required there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<PatchSettings>,
}

/// An object in the namespace of the lock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = rules::api_version(), validation = rules::subdomain("name"))]
#[serde(rename_all = "camelCase")]
pub struct TargetRef {
    /// Group and version of the object, such as `apps/v1`.
    #[schemars(length(min = 1, max = 317))]
    pub api_version: String,
    /// Kind of the object, such as `Deployment`.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// How a target is switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Action {
    /// Sets the replicas of anything with a scale subresource.
    Scale,
    /// Sets `suspend` of a CronJob or Job.
    Suspend,
    /// Lets each scheduled run of a CronJob happen in one cluster only.
    OncePerSchedule,
    /// Labels one ready pod `redlock.dev/role=active`.
    LabelPods,
    /// Holds the Lease of a controller's leader election where the lock is not held.
    Lease,
    /// Sets one to four fields of an object.
    Patch,
}

impl Action {
    /// All of them.
    pub(crate) const ALL: [Self; 6] = [
        Self::Scale,
        Self::Suspend,
        Self::OncePerSchedule,
        Self::LabelPods,
        Self::Lease,
        Self::Patch,
    ];

    /// As users write it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Scale => "Scale",
            Self::Suspend => "Suspend",
            Self::OncePerSchedule => "OncePerSchedule",
            Self::LabelPods => "LabelPods",
            Self::Lease => "Lease",
            Self::Patch => "Patch",
        }
    }
}

/// Settings of the action Scale.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = rules::fewer_on_standby())]
#[serde(rename_all = "camelCase")]
pub struct ScaleSettings {
    /// Replicas where the lock is held, 1 or more. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub active_replicas: Option<i32>,
    /// Replicas in every other cluster, fewer than activeReplicas. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub standby_replicas: Option<i32>,
}

/// Settings of the action OncePerSchedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OncePerScheduleSettings {
    /// Runs scheduled longer ago than this number of seconds are not started, 1 to 604800. Default 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 604_800))]
    pub max_slot_age_seconds: Option<i64>,
}

/// Settings of the action LabelPods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = rules::not_all_pods(), validation = rules::selector_keys())]
#[x_kube(validation = rules::selector_values(), validation = rules::selector_values_fit())]
#[serde(rename_all = "camelCase")]
pub struct LabelPodsSettings {
    /// Selects the pods in the namespace of the lock; one of them gets the label. At most 32 labels and 16 expressions, each of
    /// these with at most 32 values.
    #[schemars(transform = rules::selector_bounds)]
    #[schemars(with = "super::schemas::LabelSelector")]
    pub selector: LabelSelector,
}

/// Settings of the action Patch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = rules::fields_apart(), validation = rules::annotations_need_trust())]
#[serde(rename_all = "camelCase")]
pub struct PatchSettings {
    /// The fields to set, 1 to 4. The chart must allow each of them (`targetFields`).
    #[schemars(length(min = 1, max = 4))]
    pub fields: Vec<PatchField>,
    /// Checks of the status, at most 4: the target is stopped when all of them hold. Without checks, it is stopped stopSeconds after
    /// the fields were written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    pub stopped_when: Vec<StoppedWhen>,
    /// Whether `stoppedWhen` counts although the status does not show by `observedGeneration` that it is about the fields as they
    /// were written. A status that held before the write then counts after stopSeconds. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_status_without_generation: Option<bool>,
}

/// A field, and its value in both states.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = rules::field_path(), validation = rules::annotation_path())]
#[serde(rename_all = "camelCase")]
pub struct PatchField {
    /// A JSON Pointer below `/spec/` or `/metadata/annotations/`, such as `/spec/suspend`; `/` in a name is `~1`. No list
    /// indices.
    #[schemars(length(min = 1, max = 512))]
    pub path: String,
    /// Any value, where the lock is held. Without a value, the field is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "super::schemas::AnyValue")]
    pub active: Option<Value>,
    /// Any other value, everywhere else. Without a value, the field is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "super::schemas::AnyValue")]
    pub standby: Option<Value>,
}

/// A check of the status: a field, or a condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = rules::one_check(), validation = rules::check_path())]
#[x_kube(validation = rules::condition_status(), validation = rules::condition_reason())]
#[serde(rename_all = "camelCase")]
pub struct StoppedWhen {
    /// A JSON Pointer below `/status/`, such as `/status/lifecycleState`. No list indices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub path: Option<String>,
    /// The value of the field at `path`; required with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "super::schemas::AnyValue")]
    pub equals: Option<Value>,
    /// The type of a condition in `/status/conditions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 316))]
    pub condition: Option<String>,
    /// The status of the condition; required with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ConditionStatus")]
    pub status: Option<ConditionStatus>,
    /// The reason of the condition. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub reason: Option<String>,
}

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

impl ConditionStatus {
    /// As the API server has it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}
