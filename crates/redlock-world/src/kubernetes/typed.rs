//! The types of the fields of built-in kinds that the operator and its surroundings write.

use serde_json::Value;

use super::registry::ResourceKind;

const COUNTS: [&str; 3] = ["/spec/replicas", "/spec/parallelism", "/spec/completions"];
const LEASE_TIMES: [&str; 2] = ["/spec/acquireTime", "/spec/renewTime"];

/// Returns the reason for which a value cannot be decoded as an object of its kind.
pub(super) fn mistake(kind: &ResourceKind, object: &Value) -> Option<String> {
    let stated = |paths: &'static [&'static str]| {
        paths
            .iter()
            .filter_map(|path| Some((*path, object.pointer(path).filter(|value| !value.is_null())?)))
    };
    match &*kind.id.plural {
        "leases" => stated(&LEASE_TIMES)
            .find(|(_, value)| !is_micro_time(value))
            .map(|(path, value)| format!("{path}: {value} is not a time with microseconds")),
        "configmaps" => {
            let data = object["data"].as_object().into_iter().flatten();
            let mut wrong = data.filter(|(_, value)| !value.is_string());
            wrong
                .next()
                .map(|(name, value)| format!("/data/{name}: {value} is not a string"))
        }
        "deployments" | "statefulsets" | "replicasets" | "jobs" => stated(&COUNTS)
            .find(|(_, value)| !value.is_i64())
            .map(|(path, value)| format!("{path}: {value} is not an integer")),
        _ => None,
    }
}

/// Reports whether a value is a time with six digits after the second.
fn is_micro_time(value: &Value) -> bool {
    let text = value.as_str().unwrap_or_default();
    let digits = text.split_once('.').map_or(0, |(_, fraction)| {
        fraction.chars().take_while(char::is_ascii_digit).count()
    });
    digits == 6 && text.parse::<jiff::Timestamp>().is_ok()
}
