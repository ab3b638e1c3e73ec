//! Creates pods from the template of a workload.

use serde_json::{Map, Value, json};

use super::object::{FieldPath, Object, set_metadata};

/// The characters of generated names, as Kubernetes uses them.
const NAME_CHARACTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Returns the preferred hash of a template.
pub(super) fn template_hash(template: &Value) -> String {
    hash_of(&template.to_string(), 0)
}

/// The number of hashes of one template that are tried.
const COLLISIONS: u64 = 8;

/// Returns the hashes of a template, the preferred one first.
pub(super) fn template_hashes(template: &Value) -> impl Iterator<Item = String> + Clone + use<> {
    let text: std::rc::Rc<str> = template.to_string().into();
    (0..COLLISIONS).map(move |collision| hash_of(&text, collision))
}

fn hash_of(text: &str, collision: u64) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ collision;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    encoded(hash, 10)
}

pub(super) fn random_suffix(random: &mut fastrand::Rng) -> String {
    encoded(random.u64(..), 5)
}

fn encoded(mut number: u64, length: usize) -> String {
    let characters = NAME_CHARACTERS.len() as u64;
    let mut text = String::with_capacity(length);
    for _ in 0..length {
        let index = usize::try_from(number % characters).unwrap_or(0);
        text.push(char::from(NAME_CHARACTERS[index]));
        number /= characters;
    }
    text
}

/// Returns a new pod of a template.
pub(super) fn new_pod(template: &Value, namespace: &str, name: &str, owner: &Value) -> Value {
    let metadata = |field: &str| {
        let map = template.at(&format!("/metadata/{field}"));
        map.cloned().unwrap_or_else(|| Value::Object(Map::new()))
    };
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "generateName": name.rsplit_once('-').map(|(prefix, _)| format!("{prefix}-")),
            "namespace": namespace,
            "labels": metadata("labels"),
            "annotations": metadata("annotations"),
            "finalizers": template.at("/metadata/finalizers").cloned().unwrap_or_else(|| json!([])),
            "ownerReferences": [owner],
        },
        "spec": template.get("spec").cloned().unwrap_or_else(|| json!({})),
        "status": {"phase": "Pending"},
    })
}

pub(super) fn set_label(object: &mut Value, key: &str, value: &str) {
    set_metadata(object, "labels", key, value);
}

/// Returns a number of pods, from a number or a percentage of `total`.
pub(super) fn share(value: Option<&Value>, total: i64, rounds_up: bool) -> i64 {
    match value {
        Some(Value::Number(number)) => number.as_i64().unwrap_or(0),
        Some(Value::String(text)) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            (total * percent + if rounds_up { 99 } else { 0 }) / 100
        }
        Some(_) | None => share(Some(&json!("25%")), total, rounds_up),
    }
}

/// Returns the pods that an owner controls, out of all pods of the cluster.
pub(super) fn pods_of<'a>(pods: &'a [Object], owner: &'a Value) -> impl Iterator<Item = &'a Object> {
    pods.iter()
        .filter(|pod| super::selector::is_controlled_by(pod, owner))
}
