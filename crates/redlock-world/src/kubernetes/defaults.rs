//! The defaults of built-in kinds that matter to the operator and its surroundings.

use serde_json::{Value, json};

use super::registry::ResourceKind;

/// Sets the absent fields of `object` to those of `defaults`, recursively.
fn fill(object: &mut Value, defaults: &Value) {
    let Some(defaults) = defaults.as_object() else {
        return;
    };
    if object.is_null() {
        *object = json!({});
    }
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    for (name, default) in defaults {
        match fields.get_mut(name) {
            Some(value) if !value.is_null() => fill(value, default),
            _ => {
                fields.insert(name.clone(), default.clone());
            }
        }
    }
}

/// Sets the defaults of a built-in kind.
pub(super) fn apply(kind: &ResourceKind, object: &mut Value) {
    match &*kind.id.plural {
        "pods" => pod_spec(&mut object["spec"], "Always"),
        "deployments" => deployment(object),
        "statefulsets" => stateful_set(object),
        "replicasets" => {
            fill(&mut object["spec"], &json!({"replicas": 1}));
            template(object, "Always");
        }
        "daemonsets" => {
            let generation = json!({"annotations": {"deprecated.daemonset.template.generation": "1"}});
            fill(&mut object["metadata"], &generation);
            fill(
                &mut object["spec"],
                &json!({"revisionHistoryLimit": 10, "updateStrategy": {"type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}),
            );
            template(object, "Always");
        }
        "jobs" => {
            job_spec(&mut object["spec"]);
            template(object, "Never");
        }
        "cronjobs" => {
            fill(
                &mut object["spec"],
                &json!({"suspend": false, "concurrencyPolicy": "Allow",
                "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1}),
            );
            fill(&mut object["spec"]["jobTemplate"], &json!({"metadata": {}}));
            let template = object.pointer_mut("/spec/jobTemplate/spec/template");
            if let Some(template) = template.filter(|template| template.is_object()) {
                fill(template, &json!({"metadata": {}}));
                pod_spec(&mut template["spec"], "Never");
            }
        }
        "customresourcedefinitions" => {
            let kind = object["spec"]["names"]["kind"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            fill(
                &mut object["spec"]["names"],
                &json!({"listKind": format!("{kind}List")}),
            );
        }
        "secrets" => secret(object),
        "persistentvolumeclaims" => fill(&mut object["spec"], &json!({"volumeMode": "Filesystem"})),
        "namespaces" => namespace(object),
        _ => {}
    }
}

fn namespace(object: &mut Value) {
    object["metadata"]["labels"]["kubernetes.io/metadata.name"] = object["metadata"]["name"].clone();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|_, value| value.as_array().is_none_or(|all| !all.is_empty()));
    }
}

fn deployment(object: &mut Value) {
    fill(
        &mut object["spec"],
        &json!({"replicas": 1, "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600, "strategy": {"type": "RollingUpdate"}}),
    );
    if object["spec"]["strategy"]["type"] == "RollingUpdate" {
        let surge = json!({"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}});
        fill(&mut object["spec"]["strategy"], &surge);
    }
    template(object, "Always");
}

fn stateful_set(object: &mut Value) {
    fill(
        &mut object["spec"],
        &json!({"replicas": 1, "revisionHistoryLimit": 10,
        "podManagementPolicy": "OrderedReady", "updateStrategy": {"type": "RollingUpdate"},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"}}),
    );
    if object["spec"]["updateStrategy"]["type"] == "RollingUpdate" {
        fill(
            &mut object["spec"]["updateStrategy"],
            &json!({"rollingUpdate": {"partition": 0}}),
        );
    }
    let claims = object
        .pointer_mut("/spec/volumeClaimTemplates")
        .and_then(Value::as_array_mut);
    for claim in claims.into_iter().flatten() {
        let defaults = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "spec": {"volumeMode": "Filesystem"}, "status": {"phase": "Pending"}});
        fill(claim, &defaults);
    }
    template(object, "Always");
}

fn job_spec(spec: &mut Value) {
    let parallel = spec["parallelism"].is_null() && spec["completions"].is_null();
    if parallel {
        fill(spec, &json!({"completions": 1}));
    }
    fill(
        spec,
        &json!({"parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": false,
            "manualSelector": false, "podReplacementPolicy": "TerminatingOrFailed"}),
    );
}

fn template(object: &mut Value, restart: &str) {
    if let Some(template) = object
        .pointer_mut("/spec/template")
        .filter(|template| template.is_object())
    {
        pod_spec(&mut template["spec"], restart);
    }
}

fn pod_spec(spec: &mut Value, restart: &str) {
    fill(
        spec,
        &json!({"terminationGracePeriodSeconds": 30, "restartPolicy": restart, "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler", "securityContext": {}}),
    );
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        let image = container["image"].as_str().unwrap_or_default();
        let tag = image.rsplit('/').next().unwrap_or_default().split_once(':');
        let pull = match tag {
            None | Some((_, "latest")) if !image.contains('@') => "Always",
            _ => "IfNotPresent",
        };
        fill(
            container,
            &json!({"imagePullPolicy": pull, "resources": {},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}),
        );
    }
}

/// Moves `stringData` into `data`.
fn secret(object: &mut Value) {
    let texts = object["stringData"].as_object().cloned().unwrap_or_default();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("stringData");
    }
    for (name, text) in texts {
        object["data"][name] = base64(text.as_str().unwrap_or_default().as_bytes()).into();
    }
    fill(object, &json!({"type": "Opaque"}));
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let group = chunk
            .iter()
            .fold(0_u32, |group, byte| (group << 8) | u32::from(*byte));
        let group = group << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let letter = LETTERS[((group >> (18 - 6 * place)) & 63) as usize];
            text.push(if place <= chunk.len() {
                char::from(letter)
            } else {
                '='
            });
        }
    }
    text
}

/// Returns the status of a new object of a kind with a status subresource.
pub(super) fn status(kind: &ResourceKind, object: &Value) -> Option<Value> {
    match &*kind.id.plural {
        "pods" => Some(json!({"phase": "Pending", "qosClass": "BestEffort"})),
        "namespaces" => Some(json!({"phase": "Active"})),
        "persistentvolumeclaims" => Some(json!({"phase": "Pending"})),
        "nodes" => Some(object.get("status").cloned().unwrap_or_else(|| json!({}))),
        "customresourcedefinitions" => Some(json!({"acceptedNames": object["spec"]["names"],
            "conditions": [{"type": "Established", "status": "True"}],
            "storedVersions": stored_versions(object)})),
        "daemonsets" => Some(json!({"currentNumberScheduled": 0, "desiredNumberScheduled": 0,
            "numberMisscheduled": 0, "numberReady": 0})),
        "replicasets" => Some(json!({"replicas": 0})),
        "statefulsets" => Some(json!({"replicas": 0, "availableReplicas": 0})),
        _ => Some(json!({})),
    }
}

fn stored_versions(definition: &Value) -> Value {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let stored = versions.filter(|version| version["storage"] == true);
    stored.map(|version| version["name"].clone()).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn text_of_a_secret_is_stored_as_base64() {
        for (text, expected) in [
            ("", ""),
            ("a", "YQ=="),
            ("ab", "YWI="),
            ("abc", "YWJj"),
            ("abcd", "YWJjZA=="),
        ] {
            assert_eq!(super::base64(text.as_bytes()), expected);
        }
    }
}
