//! Compares answers with the record.

use serde_json::Value;

use super::Conversation;

/// A field that the simulation leaves out, by the end of its path. The owners of the field leave it out as well.
struct UnmodelledField {
    path: &'static [&'static str],
}

const fn unmodelled(path: &'static [&'static str]) -> UnmodelledField {
    UnmodelledField { path }
}

/// All fields that are not compared. Nothing of the operator, and no simulated controller, reads one of them.
const UNMODELLED: &[UnmodelledField] = &[
    // The texts of refusals: clients decide by code, reason, and the fields and reasons of the causes.
    unmodelled(&["body", "message"]),
    unmodelled(&["causes", "message"]),
    // The texts of conditions, and the times that no controller of this project reads.
    unmodelled(&["conditions", "message"]),
    unmodelled(&["lastProbeTime"]),
    unmodelled(&["conditions", "lastUpdateTime"]),
    // What the admission plugins ServiceAccount, Priority and DefaultTolerationSeconds add to a pod.
    unmodelled(&["spec", "enableServiceLinks"]),
    unmodelled(&["spec", "preemptionPolicy"]),
    unmodelled(&["spec", "priority"]),
    unmodelled(&["spec", "serviceAccount"]),
    unmodelled(&["spec", "serviceAccountName"]),
    unmodelled(&["spec", "tolerations"]),
    // Notes of the Deployment controller for itself.
    unmodelled(&["annotations", "deployment.kubernetes.io/desired-replicas"]),
    unmodelled(&["annotations", "deployment.kubernetes.io/max-replicas"]),
    unmodelled(&["annotations", "deployment.kubernetes.io/revision-history"]),
    // Counts of pods that end, of hash collisions, and of pods between two writes of the Job controller.
    unmodelled(&["status", "terminatingReplicas"]),
    unmodelled(&["status", "collisionCount"]),
    unmodelled(&["status", "uncountedTerminatedPods"]),
    // Fields of Events of the core group, in the form of the group events.k8s.io.
    unmodelled(&["deprecatedFirstTimestamp"]),
    unmodelled(&["deprecatedLastTimestamp"]),
    unmodelled(&["deprecatedSource"]),
    // A hash in discovery that no client needs.
    unmodelled(&["storageVersionHash"]),
];

/// A field of an answer that is not as recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerDifference {
    conversation: String,
    /// The number of the step, from 1.
    step: usize,
    about: String,
    path: String,
    recorded: Option<Value>,
    answered: Option<Value>,
}

impl std::fmt::Display for AnswerDifference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |value: &Option<Value>| {
            value
                .as_ref()
                .map_or_else(|| "nothing".to_owned(), Value::to_string)
        };
        writeln!(f, "{}, step {} ({})", self.conversation, self.step, self.about)?;
        writeln!(f, "    at       {}", self.path)?;
        writeln!(f, "    recorded {}", text(&self.recorded))?;
        write!(f, "    answered {}", text(&self.answered))
    }
}

/// Returns the differences between the record of a conversation and the answers to its steps.
pub fn differences(name: &str, conversation: &Conversation, answers: &[Value]) -> Vec<AnswerDifference> {
    let mut all = Vec::new();
    for (index, (step, answer)) in conversation.steps.iter().zip(answers).enumerate() {
        compare(
            &without_unmodelled(&step.answer),
            &without_unmodelled(answer),
            "",
            &mut |path, recorded, answered| {
                all.push(AnswerDifference {
                    conversation: name.to_owned(),
                    step: index + 1,
                    about: step.about.clone(),
                    path: path.to_owned(),
                    recorded: recorded.cloned(),
                    answered: answered.cloned(),
                });
            },
        );
    }
    all
}

/// Checks that there is no difference.
///
/// # Panics
///
/// Panics with all differences if there is one.
pub fn assert_no_differences(all: &[AnswerDifference]) {
    let report: Vec<String> = all.iter().map(AnswerDifference::to_string).collect();
    assert!(
        report.is_empty(),
        "{} differences\n{}",
        report.len(),
        report.join("\n")
    );
}

/// Reports whether an answer has no difference from the recorded one.
pub(super) fn equal_answers(recorded: &Value, answer: &Value) -> bool {
    without_unmodelled(recorded) == without_unmodelled(answer)
}

fn without_unmodelled(answer: &Value) -> Value {
    let mut answer = answer.clone();
    remove_unmodelled(&mut answer, &mut Vec::new());
    answer
}

fn remove_unmodelled(value: &mut Value, path: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| {
                path.push(name.trim_start_matches("f:").to_owned());
                let is_kept = !UNMODELLED.iter().any(|field| ends_with(path, field.path));
                if is_kept {
                    remove_unmodelled(value, path);
                }
                if let Value::Array(items) = value
                    && name == "conditions"
                {
                    // A list with a key: its order depends on the writes in between.
                    items.sort_by_key(|item| item["type"].to_string());
                }
                path.pop();
                is_kept
            });
        }
        Value::Array(items) => items.iter_mut().for_each(|item| remove_unmodelled(item, path)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn ends_with(path: &[String], end: &[&str]) -> bool {
    path.len() >= end.len()
        && path[path.len() - end.len()..]
            .iter()
            .zip(end)
            .all(|(one, other)| one == other)
}

type Report<'a> = dyn FnMut(&str, Option<&Value>, Option<&Value>) + 'a;

fn compare(recorded: &Value, answered: &Value, path: &str, report: &mut Report<'_>) {
    match (recorded, answered) {
        (Value::Object(old), Value::Object(new)) => {
            for (name, value) in old {
                let path = format!("{path}/{name}");
                match new.get(name) {
                    Some(other) => compare(value, other, &path, report),
                    None => report(&path, Some(value), None),
                }
            }
            for (name, value) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
                report(&format!("{path}/{name}"), None, Some(value));
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            for index in 0..old.len().max(new.len()) {
                let path = format!("{path}/{index}");
                match (old.get(index), new.get(index)) {
                    (Some(value), Some(other)) => compare(value, other, &path, report),
                    (value, other) => report(&path, value, other),
                }
            }
        }
        _ if recorded == answered => {}
        _ => report(path, Some(recorded), Some(answered)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_field_that_differs_is_reported_once() {
        let mut found = Vec::new();
        let (old, new) = (
            json!({"a": [1, 2], "b": {"c": 1}, "e": 0}),
            json!({"a": [1], "b": {"c": 2, "d": 3}, "e": 0}),
        );
        compare(&old, &new, "", &mut |path, _, _| found.push(path.to_owned()));
        assert_eq!(found, ["/a/1", "/b/c", "/b/d"]);
    }
}
