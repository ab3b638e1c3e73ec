//! The namespace controller: deletes the content of a namespace that is being deleted, then its finalizer.

use serde_json::{Value, json};

use super::{
    ClusterObjects, ControllerPlan, ControllerWrite,
    object::{FieldPath, Object, is_deleting, name, namespace},
};

const KIND: &str = "Namespace";
const FINALIZER: &str = "kubernetes";

pub(super) fn reconcile(objects: &dyn ClusterObjects) -> ControllerPlan {
    let mut plan = ControllerPlan::default();
    let mut ending = objects.list(KIND);
    ending.retain(|one| is_deleting(one));
    if ending.is_empty() {
        return plan;
    }
    let kinds = objects.kinds();
    let contents: Vec<(&String, Vec<Object>)> = kinds
        .iter()
        .filter(|kind| *kind != KIND)
        .map(|kind| (kind, objects.list(kind)))
        .collect();
    for one in &ending {
        let mut empty = true;
        for (kind, content) in &contents {
            for object in content.iter().filter(|object| namespace(object) == name(one)) {
                empty = false;
                if !is_deleting(object) {
                    plan.delete(kind, object);
                }
            }
        }
        if empty {
            finalize(one, &mut plan);
        }
    }
    plan
}

fn finalize(one: &Value, plan: &mut ControllerPlan) {
    let left = one.at("/spec/finalizers").and_then(Value::as_array);
    let mut left = left.cloned().unwrap_or_default();
    let before = left.len();
    left.retain(|finalizer| finalizer != FINALIZER);
    if left.len() < before {
        let mut object = one.clone();
        object["spec"]["finalizers"] = json!(left);
        plan.push(ControllerWrite::FinalizeNamespace { object });
    }
}
