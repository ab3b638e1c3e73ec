//! Label selectors and field selectors.

use serde_json::Value;

use super::{error::ApiError, registry::ResourceKind};

/// One requirement of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

/// The label selector and the field selector of a list or a watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

impl Selector {
    pub(super) fn parse(kind: &ResourceKind, labels: &str, fields: &str) -> Result<Self, ApiError> {
        let fields = requirements(fields)?;
        for requirement in &fields {
            let (Requirement::In(field, _) | Requirement::NotIn(field, _)) = requirement else {
                return Err(ApiError::bad_request("invalid field selector"));
            };
            if !is_selectable(kind, field) {
                let why = format!("field label not supported: {field}");
                return Err(ApiError::bad_request(why));
            }
        }
        Ok(Self {
            labels: requirements(labels)?,
            fields,
        })
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        let label = |key: &str| labels.get(key).and_then(Value::as_str).map(str::to_owned);
        self.labels.iter().all(|one| one.holds(label))
            && self
                .fields
                .iter()
                .all(|one| one.holds(|path| Some(field(object, path))))
    }
}

impl Requirement {
    fn holds(&self, value: impl Fn(&str) -> Option<String>) -> bool {
        match self {
            Self::In(key, values) => value(key).is_some_and(|value| values.contains(&value)),
            Self::NotIn(key, values) => value(key).is_none_or(|value| !values.contains(&value)),
            Self::Exists(key) => value(key).is_some(),
            Self::Absent(key) => value(key).is_none(),
        }
    }
}

/// Returns a field as text; an absent field is empty.
fn field(object: &Value, path: &str) -> String {
    let found = path.split('.').try_fold(object, |at, part| at.get(part));
    match found {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    }
}

fn is_selectable(kind: &ResourceKind, field: &str) -> bool {
    if field == "metadata.name" || (field == "metadata.namespace" && kind.is_namespaced) {
        return true;
    }
    let known: &[&str] = match (&*kind.id.group, &*kind.id.plural) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ("", "events") => &["reason", "type", "source", "reportingComponent"],
        ("events.k8s.io", "events") => &["reason", "type", "reportingController"],
        ("", "secrets") => &["type"],
        ("", "namespaces") => &["status.phase"],
        ("", "nodes") => &["spec.unschedulable"],
        ("apps", "replicasets") => &["status.replicas"],
        ("batch", "jobs") => &["status.successful"],
        _ => &[],
    };
    let of_event =
        kind.kind == "Event" && (field.starts_with("involvedObject.") || field.starts_with("regarding."));
    known.contains(&field) || of_event || kind.selectable.iter().any(|one| one == field)
}

fn requirements(text: &str) -> Result<Vec<Requirement>, ApiError> {
    let parts = split(text).into_iter().map(|part| part.trim().to_owned());
    parts
        .filter(|part| !part.is_empty())
        .map(|part| requirement(&part))
        .collect()
}

/// Splits at the commas outside parentheses.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0_i32);
    for one in text.chars() {
        depth += i32::from(one == '(') - i32::from(one == ')');
        if one == ',' && depth == 0 {
            parts.push(String::new());
        } else if let Some(last) = parts.last_mut() {
            last.push(one);
        }
    }
    parts
}

fn requirement(part: &str) -> Result<Requirement, ApiError> {
    let one = |key: &str, value: &str| (key.trim().to_owned(), vec![value.trim().to_owned()]);
    let unusable = |text: &str| text.contains(['=', '!']) || text.contains(char::is_whitespace);
    let refused = || ApiError::bad_request(format!("unable to parse requirement: {part}"));
    if let Some((key, value)) = part.split_once("!=") {
        let (key, values) = one(key, value);
        return Ok(Requirement::NotIn(key, values));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        if key.trim().is_empty() || unusable(value.trim()) {
            return Err(refused());
        }
        let (key, values) = one(key, value);
        return Ok(Requirement::In(key, values));
    }
    if let Some(key) = part.strip_prefix('!') {
        return Ok(Requirement::Absent(key.trim().to_owned()));
    }
    if let Some((left, values)) = part.split_once('(') {
        let values = values
            .trim_end_matches(')')
            .split(',')
            .map(|value| value.trim().to_owned())
            .collect();
        let left = left.trim();
        if let Some(key) = left.strip_suffix(" notin") {
            return Ok(Requirement::NotIn(key.trim().to_owned(), values));
        }
        if let Some(key) = left.strip_suffix(" in") {
            return Ok(Requirement::In(key.trim().to_owned(), values));
        }
        return Err(refused());
    }
    if part.contains(char::is_whitespace) {
        return Err(refused());
    }
    Ok(Requirement::Exists(part.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::registry::built_in, *};

    #[test]
    fn selectors_select_by_sets_and_by_fields() {
        let kinds = built_in();
        let pods = kinds.iter().find(|kind| kind.kind == "Pod").unwrap();
        let pod = json!({"metadata": {"name": "a", "labels": {"app": "web", "tier": "x"}},
            "status": {"phase": "Running"}});
        for (labels, fields, expected) in [
            ("app=web", "", true),
            ("app==web,tier!=y", "", true),
            ("app in (web,api),!gone", "", true),
            ("app notin (web)", "", false),
            ("other notin (web),tier", "", true),
            ("gone", "", false),
            ("", "status.phase!=Succeeded,status.phase!=Failed", true),
            ("", "metadata.name=b", false),
        ] {
            let selector = Selector::parse(pods, labels, fields).unwrap();
            assert_eq!(selector.matches(&pod), expected, "{labels} {fields}");
        }
        assert_eq!(Selector::parse(pods, "", "spec.color=red").unwrap_err().code, 400);
    }
}
