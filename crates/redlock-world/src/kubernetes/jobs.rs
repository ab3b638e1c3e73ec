//! The labels and the selector that the server gives to a new Job.

use serde_json::{Value, json};

use super::object::meta;

pub(super) fn label(job: &mut Value) {
    if job["spec"]["manualSelector"] == true {
        return;
    }
    let (uid, name) = (meta(job, "uid").to_owned(), meta(job, "name").to_owned());
    let labels = json!({
        "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name,
        "controller-uid": uid, "job-name": name,
    });
    if !job["spec"]["template"].is_object() {
        return;
    }
    for (key, value) in labels.as_object().into_iter().flatten() {
        job["spec"]["template"]["metadata"]["labels"][key] = value.clone();
    }
    if job["metadata"]["labels"]
        .as_object()
        .is_none_or(|labels| labels.is_empty())
    {
        job["metadata"]["labels"] = job["spec"]["template"]["metadata"]["labels"].clone();
    }
    job["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
}
