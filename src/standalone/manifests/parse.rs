//! Parses the text of one file into objects. Pure.

mod split;

use serde::de::DeserializeOwned;
use serde_yaml::{Deserializer, Value};

use self::split::Chunk;
use super::problem::{Place, Problem};
use crate::api::{API_VERSION, LeaderLock, RedisQuorum};

/// An object of one of the two kinds.
#[derive(Debug)]
pub(super) enum Object {
    Quorum(Box<RedisQuorum>),
    Lock(Box<LeaderLock>),
}

/// An object and the place where it was read.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) place: Place,
    pub(super) object: Object,
}

/// The content of one file.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) documents: Vec<Document>,
    pub(super) problems: Vec<Problem>,
}

pub(super) fn parse(file: &str, bytes: &[u8]) -> Parsed {
    let mut parsed = Parsed::default();
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.trim_start_matches('\u{feff}'),
        Err(cause) => {
            let reason = format!(
                "is not UTF-8 text: byte {} is not part of it",
                cause.valid_up_to() + 1
            );
            parsed.problems.push(Problem::of_file(file, reason));
            return parsed;
        }
    };
    for (index, chunk) in split::documents(text).iter().enumerate() {
        let mut place = Place {
            file: file.to_owned(),
            document: index + 1,
            object: None,
        };
        let head: Value = match serde_yaml::from_str(chunk.text) {
            Ok(Value::Null) => continue,
            Ok(head) => head,
            Err(cause) => {
                parsed
                    .problems
                    .push(place.problem(format!("is not valid YAML: {}", chunk.with_lines_of_file(&cause))));
                continue;
            }
        };
        place.object = name_of(&head);
        match object(&place, &head, chunk) {
            Ok(object) => parsed.documents.push(Document { place, object }),
            Err(problems) => parsed.problems.extend(problems),
        }
    }
    parsed
}

/// Returns a name such as `LeaderLock billing/report`, with the parts that can be read; `None` without a kind.
fn name_of(head: &Value) -> Option<String> {
    let text = |value: Option<&Value>| {
        value
            .and_then(Value::as_str)
            .map(|t| t.escape_debug().to_string())
    };
    let kind = text(head.get("kind"))?;
    let metadata = head.get("metadata");
    let name = text(metadata.and_then(|m| m.get("name")));
    let namespace = text(metadata.and_then(|m| m.get("namespace")));
    Some(match (kind.as_str(), name, namespace) {
        (_, None, _) => kind,
        ("LeaderLock", Some(name), namespace) => {
            format!("{kind} {}/{name}", namespace.as_deref().unwrap_or("default"))
        }
        (_, Some(name), Some(namespace)) if kind != "RedisQuorum" => format!("{kind} {namespace}/{name}"),
        (_, Some(name), _) => format!("{kind} {name}"),
    })
}

fn object(place: &Place, head: &Value, body: &Chunk<'_>) -> Result<Object, Vec<Problem>> {
    const READ_HERE: &str = "only RedisQuorum and LeaderLock of redlock.dev/v1alpha1 are read here";
    if !head.is_mapping() {
        return Err(vec![place.problem(format!("is not an object: {READ_HERE}"))]);
    }
    let text = |key: &str| head.get(key).and_then(Value::as_str).unwrap_or_default();
    match (text("apiVersion"), text("kind")) {
        (API_VERSION, "RedisQuorum") => fields(place, body).map(|object| Object::Quorum(Box::new(object))),
        (API_VERSION, "LeaderLock") => fields(place, body).map(|object| Object::Lock(Box::new(object))),
        ("", _) => Err(vec![place.problem_at(
            "apiVersion",
            format!("is missing or not a string: {READ_HERE}"),
        )]),
        (_, "") => {
            Err(vec![place.problem_at(
                "kind",
                format!("is missing or not a string: {READ_HERE}"),
            )])
        }
        (version, kind) => Err(vec![
            place.problem(format!("is a {kind} of {version}: {READ_HERE}")),
        ]),
    }
}

fn fields<T: DeserializeOwned>(place: &Place, body: &Chunk<'_>) -> Result<T, Vec<Problem>> {
    let mut unknown = Vec::new();
    // The object is not parsed from `head`, because errors would then lack the path and the line.
    let object = serde_ignored::deserialize(Deserializer::from_str(body.text), |path| {
        let path = field_path(&path.to_string());
        // The fields that name the kind were read before, and are not fields of the type.
        if path != "apiVersion" && path != "kind" {
            unknown.push(place.problem_at(
                path,
                "is not a field of this kind: remove it or correct its spelling",
            ));
        }
    });
    match object {
        // The message of the parser names the path, the line and the expected value.
        Err(cause) => Err(vec![place.problem(body.with_lines_of_file(&cause))]),
        Ok(_) if !unknown.is_empty() => Err(unknown),
        Ok(object) => Ok(object),
    }
}

/// Returns a path such as `spec.masters.0.?.x` in the usual notation: `spec.masters[0].x`.
fn field_path(path: &str) -> String {
    let mut written = String::new();
    for part in path.split('.').filter(|part| *part != "?") {
        if !part.is_empty() && part.chars().all(|c| c.is_ascii_digit()) {
            written.push_str(&format!("[{part}]"));
        } else {
            if !written.is_empty() {
                written.push('.');
            }
            written.push_str(part);
        }
    }
    written
}

#[cfg(test)]
mod tests;
