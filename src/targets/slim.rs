//! Jobs and Pods without the fields that the operator does not read: a list of thousands of them must fit into its
//! memory.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{batch::v1::JobCondition, core::v1::PodCondition},
    apimachinery::pkg::apis::meta::v1::{
        FieldsV1, LabelSelector, ManagedFieldsEntry, ObjectMeta, OwnerReference, Time,
    },
};
use kube::Resource;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::owner::controller;

/// The label on a Job that was stopped before its end, with the time as Unix seconds. The operator never resumes the
/// Job.
pub(super) const ABANDONED: &str = "redlock.dev/abandoned";
/// The label on a Job with the decision on its slot.
pub(super) const SLOT: &str = "redlock.dev/slot";
/// The annotation on a Job with the time of the condition `Suspended` that it had when the operator last set its
/// `suspend`: that condition proves nothing about a later suspension.
pub(super) const OLD_CONDITION: &str = "redlock.dev/old-suspended-condition";
/// The annotation in which the CronJob controller stores the scheduled time of a Job.
pub(super) const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// A Job of `batch/v1`.
#[derive(Clone, Debug, Default, PartialEq, Resource, Serialize, Deserialize)]
#[resource(inherit = "k8s_openapi::api::batch::v1::Job")]
#[serde(default)]
pub(super) struct Job {
    pub(super) metadata: ObjectMeta,
    pub(super) spec: Option<JobSpec>,
    pub(super) status: Option<JobStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct JobSpec {
    pub(super) suspend: Option<bool>,
    pub(super) managed_by: Option<String>,
    pub(super) ttl_seconds_after_finished: Option<i32>,
    pub(super) manual_selector: Option<bool>,
    pub(super) selector: Option<LabelSelector>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct JobStatus {
    pub(super) conditions: Option<Vec<JobCondition>>,
    pub(super) start_time: Option<Time>,
}

/// A Pod.
#[derive(Clone, Debug, Default, PartialEq, Resource, Serialize, Deserialize)]
#[resource(inherit = "k8s_openapi::api::core::v1::Pod")]
#[serde(default)]
pub(super) struct Pod {
    pub(super) metadata: ObjectMeta,
    pub(super) spec: Option<PodSpec>,
    pub(super) status: Option<PodStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    pub(super) node_name: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct PodStatus {
    pub(super) conditions: Option<Vec<PodCondition>>,
}

/// Returns the type of the true condition `Complete` or `Failed`, if the Job has one.
pub(super) fn finished(job: &Job) -> Option<&str> {
    let conditions = job
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    let mut conditions = conditions.unwrap_or_default().iter();
    let end =
        |one: &&JobCondition| one.status == "True" && ["Complete", "Failed"].contains(&one.type_.as_str());
    conditions.find(end).map(|one| &*one.type_)
}

/// Returns the CronJob that controls a Job.
pub(super) fn cron_job(job: &ObjectMeta) -> Option<&OwnerReference> {
    let owners = job.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| {
        owner.controller == Some(true) && owner.kind == "CronJob" && owner.api_version.starts_with("batch/")
    })
}

/// Returns the name of the CronJob that created a Job. A deletion of the CronJob with `--cascade=orphan` removes it as the
/// controller; the name of the Job and its annotation remain.
pub(super) fn maker(job: &ObjectMeta) -> Option<&str> {
    if let Some(owner) = cron_job(job) {
        return Some(&owner.name);
    }
    let scheduled = job.annotations.as_ref()?.contains_key(SCHEDULED);
    let orphaned = scheduled && controller(job).is_none();
    scheduler(job.name.as_deref()?).filter(|_| orphaned)
}

/// Returns the name of the CronJob whose controller would give a Job this name.
pub(super) fn scheduler(job: &str) -> Option<&str> {
    let (cron_job, slot) = job.rsplit_once('-')?;
    let is_slot = !slot.is_empty() && slot.bytes().all(|byte| byte.is_ascii_digit());
    (is_slot && !cron_job.is_empty()).then_some(cron_job)
}

/// Reduces a Job that has not ended to the fields that are kept.
pub(super) fn trimmed(job: Job) -> Job {
    let metadata = job.metadata;
    let owner = cron_job(&metadata).cloned();
    let keep = |map: Option<BTreeMap<String, String>>, keys: &[&str]| {
        let mut map = map?;
        map.retain(|key, _| keys.contains(&key.as_str()));
        Some(map).filter(|map| !map.is_empty())
    };
    let mut managers = metadata.managed_fields.into_iter().flatten();
    Job {
        metadata: ObjectMeta {
            name: metadata.name,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            deletion_timestamp: metadata.deletion_timestamp,
            owner_references: owner.map(|owner| vec![owner]),
            labels: keep(metadata.labels, &[ABANDONED, SLOT]),
            annotations: keep(metadata.annotations, &[SCHEDULED, OLD_CONDITION]),
            managed_fields: managers
                .find(|entry| writes(entry, "f:suspend"))
                .filter(|entry| !writes(entry, "f:template"))
                .map(|entry| vec![only_suspend(entry)]),
            ..ObjectMeta::default()
        },
        spec: job.spec.map(|spec| JobSpec {
            selector: None,
            ..spec
        }),
        status: job.status,
    }
}

fn writes(entry: &ManagedFieldsEntry, field: &str) -> bool {
    let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
    fields.is_some_and(|fields| fields["f:spec"].get(field).is_some())
}

/// Reduces an entry of managedFields to its manager and `suspend`. The caller omits a manager that also wrote
/// the template, because that manager created the Job.
fn only_suspend(entry: ManagedFieldsEntry) -> ManagedFieldsEntry {
    ManagedFieldsEntry {
        manager: entry.manager,
        fields_v1: Some(FieldsV1(json!({ "f:spec": { "f:suspend": {} } }))),
        ..ManagedFieldsEntry::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn job(conditions: &Value, makes: bool) -> Job {
        let owner = json!({"apiVersion": "batch/v1", "kind": "CronJob", "name": "report", "uid": "c", "controller": true});
        let mut fields = json!({"f:spec": {"f:suspend": {}, "f:completions": {}}});
        if makes {
            fields["f:spec"]["f:template"] = json!({"f:spec": {}});
        }
        let job = json!({
            "metadata": {
                "name": "report-1", "uid": "u", "resourceVersion": "7",
                "labels": {SLOT: "claimed", "app": "report"},
                "annotations": {SCHEDULED: "2026-07-20T10:00:00Z", "note": "long"},
                "ownerReferences": [owner],
                "managedFields": [
                    {"manager": "kubectl-label", "fieldsV1": {"f:metadata": {"f:labels": {}}}},
                    {"manager": "kubectl", "fieldsV1": fields},
                ],
            },
            "spec": {"suspend": true, "template": {"spec": {"containers": []}}},
            "status": {"conditions": conditions},
        });
        serde_json::from_value(job).unwrap()
    }

    #[test]
    fn fields_of_a_job_that_actions_read_are_kept() {
        let suspended = json!([{"type": "Suspended", "status": "True", "message": "m"}]);
        let kept = trimmed(job(&suspended, false));
        assert_eq!(cron_job(&kept.metadata).unwrap().name, "report");
        assert_eq!(kept.metadata.labels.unwrap().len(), 1);
        assert_eq!(kept.metadata.annotations.unwrap().len(), 1);
        let managers = kept.metadata.managed_fields.unwrap();
        assert_eq!(
            (managers.len(), managers[0].manager.as_deref()),
            (1, Some("kubectl"))
        );
        let fields = json!({"f:spec": {"f:suspend": {}}});
        assert_eq!(managers[0].fields_v1.as_ref().unwrap().0, fields);
        assert_eq!(
            kept.status.unwrap().conditions.unwrap()[0].message.as_deref(),
            Some("m")
        );
        assert_eq!(kept.spec.unwrap().suspend, Some(true));
        let made = trimmed(job(&suspended, true));
        assert_eq!(made.metadata.managed_fields, None, "by the one who made it");
    }

    #[test]
    fn job_has_ended_when_a_condition_reports_its_end() {
        for (kind, status, end) in [
            ("Complete", "True", Some("Complete")),
            ("Failed", "True", Some("Failed")),
            ("Complete", "False", None),
            ("SuccessCriteriaMet", "True", None),
        ] {
            let found = job(&json!([{"type": kind, "status": status}]), false);
            assert_eq!(finished(&found), end, "{kind} {status}");
        }
    }
}
