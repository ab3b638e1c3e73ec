//! The behaviour of the controllers, one file for each group.

mod garbage;
mod jobs;
mod nodes;
mod pods;
mod random;
mod store;
mod workloads;

use serde_json::{Value, json};

fn template(more: &Value) -> Value {
    let mut template = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "web:1"}], "terminationGracePeriodSeconds": 30},
    });
    if let Some(spec) = more.as_object() {
        for (key, value) in spec {
            template["spec"][key] = value.clone();
        }
    }
    template
}

fn workload(replicas: i64) -> Value {
    json!({"spec": {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": "web"}},
        "template": template(&json!({})),
    }})
}

fn job(suspend: bool) -> Value {
    let mut template = template(&json!({"restartPolicy": "Never"}));
    template["metadata"]["annotations"] = json!({"world/run-seconds": "20"});
    json!({"spec": {"suspend": suspend, "parallelism": 1, "completions": 1, "template": template}})
}
