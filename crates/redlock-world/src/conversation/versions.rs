//! Replaces resource versions by their rank in a conversation, so that their equality and their order remain.
//!
//! The version of a list or of a bookmark only has to be at or after the last object version before it: a real server
//! also counts the writes of others.

use std::collections::BTreeSet;

use serde_json::Value;

/// Replaces all versions of the answers of one conversation.
pub(super) fn rank_versions(answers: &mut [Value]) {
    let mut known = BTreeSet::new();
    answers
        .iter()
        .for_each(|answer| collect_versions(answer, &mut known));
    let known: Vec<u64> = known.into_iter().collect();
    answers
        .iter_mut()
        .for_each(|answer| replace_versions(answer, &known));
}

/// Reports whether a value is a list or a bookmark: its own version is that of the database.
fn is_position(value: &Value) -> bool {
    value.get("items").is_some_and(Value::is_array)
        || value["metadata"]["annotations"]
            .get("k8s.io/initial-events-end")
            .is_some()
        || (value["metadata"]["uid"].is_null() && value["metadata"]["name"].is_null())
}

fn collect_versions(value: &Value, known: &mut BTreeSet<u64>) {
    match value {
        Value::Object(fields) => {
            if !is_position(value) {
                known.extend(version(&value["metadata"]));
            }
            fields.values().for_each(|value| collect_versions(value, known));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_versions(item, known)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn version(metadata: &Value) -> Option<u64> {
    metadata["resourceVersion"].as_str()?.parse().ok()
}

fn replace_versions(value: &mut Value, known: &[u64]) {
    let at_position = is_position(value);
    let is_expired = value["reason"] == "Expired";
    match value {
        Value::Object(fields) => {
            if let Some(metadata) = fields.get_mut("metadata")
                && let Some(version) = version(metadata)
            {
                let rank = known.partition_point(|one| *one <= version);
                let placeholder = if at_position {
                    format!("<version {rank} or later>")
                } else {
                    format!("<version {rank}>")
                };
                metadata["resourceVersion"] = placeholder.into();
            }
            if let Some(Value::String(message)) = fields.get_mut("message") {
                *message = replace_numbers(message, known, is_expired);
            }
            fields
                .values_mut()
                .for_each(|value| replace_versions(value, known));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| replace_versions(item, known)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Replaces the versions of a message. Those of an expired version are the server's own.
fn replace_numbers(message: &str, known: &[u64], is_expired: bool) -> String {
    let mut text = String::new();
    let mut rest = message;
    while let Some(start) = rest.find(|one: char| one.is_ascii_digit()) {
        let (before, number) = rest.split_at(start);
        let end = number
            .find(|one: char| !one.is_ascii_digit())
            .unwrap_or(number.len());
        let (number, after) = number.split_at(end);
        text.push_str(before);
        match number
            .parse()
            .ok()
            .and_then(|number| known.binary_search(&number).ok())
        {
            _ if is_expired => text.push_str("<number>"),
            Some(rank) => text.push_str(&format!("<version {}>", rank + 1)),
            None => text.push_str(number),
        }
        rest = after;
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn versions_are_ranked_over_all_answers() {
        let object = |version: &str| json!({"metadata": {"uid": "u", "resourceVersion": version}});
        let list = json!({"metadata": {"resourceVersion": "150"}, "items": [object("120")]});
        let mut answers = [
            object("200"),
            list,
            json!({"reason": "Conflict", "message": "found 120, not 7"}),
        ];
        rank_versions(&mut answers);
        assert_eq!(answers[0]["metadata"]["resourceVersion"], "<version 2>");
        assert_eq!(answers[1]["metadata"]["resourceVersion"], "<version 1 or later>");
        assert_eq!(
            answers[1]["items"][0]["metadata"]["resourceVersion"],
            "<version 1>"
        );
        assert_eq!(answers[2]["message"], "found <version 1>, not 7");
    }
}
