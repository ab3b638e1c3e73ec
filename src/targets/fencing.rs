//! Determines whether the pods of a lock are fenced, from the volume in their templates, and which of them
//! have ended.

mod ended;
mod follow;
mod known;
mod mount;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api,
    api::{DynamicObject, ListParams},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use follow::{FencedPods, Namespaces};
pub(crate) use known::{Epoch, Gone};

use super::{ConditionReason, Step, TargetContext, TargetError, pages, read::Place};
use crate::api::lock_status::TargetState;
pub(crate) use mount::RuntimeClasses;
use mount::{Unfenced, check};

/// The paths of the pod template's spec in the built-in kinds of Kubernetes.
const TEMPLATES: [&str; 2] = ["/spec/template/spec", "/spec/jobTemplate/spec/template/spec"];

/// A Pod, with the fields that show whether it is fenced and whether it has ended.
#[derive(Clone, Debug, Default, PartialEq, kube::Resource, Serialize, Deserialize)]
#[resource(inherit = "k8s_openapi::api::core::v1::Pod")]
#[serde(default)]
struct Pod {
    metadata: ObjectMeta,
    spec: mount::PodSpec,
    status: ended::PodStatus,
}

/// Returns the step of a target whose pod template does not mount the volume that fences its pods, so that
/// the target is not started; `None` if the template mounts the volume, and for a lock without fencing. Call
/// this after reading the version that the start is for: if the template changes later, the start does not
/// apply.
pub(super) async fn not_fenced(
    context: &TargetContext,
    place: &Place,
    (name, called): (&str, &str),
    state: TargetState,
) -> Result<Option<Step>, TargetError> {
    if !context.fenced {
        return Ok(None);
    }
    // If the object is gone, the start itself reports that.
    let object = read(context, place, (name, called)).await?;
    let unfenced = object.and_then(|object| check_template(&object, context).err());
    Ok(unfenced.map(|unfenced| {
        let text = format!("{called}: {}", unfenced.advice(&context.object));
        Step::trouble(state, ConditionReason::NotFenced, text)
    }))
}

/// Returns the name of the pod template of a running target if the next pods from this template would not be
/// fenced. `runs` decides from the object whether the target runs.
pub(super) async fn unfenced_template(
    context: &TargetContext,
    place: &Place,
    (name, called): (&str, &str),
    runs: impl FnOnce(&Value) -> bool,
) -> Result<Option<String>, TargetError> {
    let object = read(context, place, (name, called)).await?;
    let unfenced = object
        .filter(runs)
        .and_then(|object| check_template(&object, context).err());
    Ok(unfenced.map(|_| format!("the pod template of {called}")))
}

async fn read(
    context: &TargetContext,
    place: &Place,
    (name, called): (&str, &str),
) -> Result<Option<Value>, TargetError> {
    let api =
        Api::<DynamicObject>::namespaced_with(context.client.clone(), &context.namespace, &place.resource);
    let what = || format!("reading the pod template of {called}");
    let found = place.settle(what, api.get(name).await).await?;
    Ok(found.map(|object| object.data))
}

fn check_template(object: &Value, context: &TargetContext) -> Result<(), Unfenced> {
    check_pods(object, &context.object, context.shared.runtime_classes())
}

fn check_pods(object: &Value, lock: &str, allowed: &RuntimeClasses) -> Result<(), Unfenced> {
    let template = TEMPLATES.iter().find_map(|path| object.pointer(path));
    let spec = template.and_then(|template| mount::PodSpec::deserialize(template).ok());
    check(&spec.ok_or(Unfenced::NoTemplate)?, lock, allowed)
}

/// Returns a pod of the target that has not ended and is not fenced for the lock. `belong` selects the pods
/// of the target.
pub(super) async fn unfenced(
    context: &TargetContext,
    (selector, called): (&str, &str),
    belong: impl Fn(&ObjectMeta) -> bool,
) -> Result<Option<String>, TargetError> {
    let api = Api::<Pod>::namespaced(context.client.clone(), &context.namespace);
    let unfenced = |pod: Pod| {
        let runs = belong(&pod.metadata) && !ended::has_ended(&pod);
        let is_fenced = check(&pod.spec, &context.object, context.shared.runtime_classes()).is_ok();
        (runs && !is_fenced).then(|| pod.metadata.name.unwrap_or_default())
    };
    let found = pages::all(&api, ListParams::default().labels(selector), unfenced).await;
    let found = found.map_err(|error| TargetError::of(format!("listing the pods of {called}"), &error))?;
    Ok(found.into_iter().next())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_template_is_that_of_the_pods() {
        let check_template =
            |object: &Value, lock: &str| check_pods(object, lock, &RuntimeClasses::default());
        let fenced = json!({
            "volumes": [{"name": "redlock", "csi": {
                "driver": mount::DRIVER, "readOnly": true, "volumeAttributes": {"lock": "report"},
            }}],
            "containers": [{"name": "c", "volumeMounts": [{"name": "redlock", "mountPath": "/run/redlock"}]}],
        });
        let deployment = json!({"spec": {"template": {"spec": fenced}}});
        assert_eq!(check_template(&deployment, "report"), Ok(()));
        let cron_job = json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": fenced}}}}});
        assert_eq!(check_template(&cron_job, "report"), Ok(()));
        let other = check_template(&deployment, "other");
        assert_eq!(other, Err(Unfenced::OtherLock("report".to_owned())));
        let gate = json!({"spec": {"replicas": 1}});
        assert_eq!(check_template(&gate, "report"), Err(Unfenced::NoTemplate));
    }
}
