//! Parses the text of one file into objects. Pure.

mod bodies;
mod split;

use serde::de::DeserializeOwned;
use serde_yaml::{Deserializer, Value};

use self::bodies::{DocumentBody, ManifestDocument};
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
    for (index, read) in bodies::read(file, text).into_iter().enumerate() {
        let place = Place {
            file: file.to_owned(),
            document: index + 1,
            object: None,
        };
        match read {
            ManifestDocument::Nothing => {}
            ManifestDocument::Document { head, body } => parsed.add(place, &head, &body),
            ManifestDocument::Broken(reason) => parsed.problems.push(place.problem(reason)),
        }
    }
    parsed
}

impl Parsed {
    /// Adds the object of a document, or each object of a list.
    fn add(&mut self, mut place: Place, head: &Value, body: &DocumentBody<'_>) {
        place.object = name_of(head);
        match bodies::items(head) {
            None => self.add_object(place, head, body),
            Some(Err(reason)) => self.problems.push(place.problem_at("items", reason)),
            Some(Ok(items)) => {
                for (index, item) in items.into_iter().enumerate() {
                    let object = name_of(&item).or_else(|| Some(format!("items[{index}]")));
                    let place = Place {
                        object,
                        ..place.clone()
                    };
                    self.add_object(place, &item, &DocumentBody::Value(&item));
                }
            }
        }
    }

    fn add_object(&mut self, place: Place, head: &Value, body: &DocumentBody<'_>) {
        match object(&place, head, body) {
            Ok(object) => self.documents.push(Document { place, object }),
            Err(problems) => self.problems.extend(problems),
        }
    }
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

fn object(place: &Place, head: &Value, body: &DocumentBody<'_>) -> Result<Object, Vec<Problem>> {
    const READ_HERE: &str =
        "only RedisQuorum and LeaderLock of redlock.dev/v1alpha1, and lists of them, are read here";
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

fn fields<T: DeserializeOwned>(place: &Place, body: &DocumentBody<'_>) -> Result<T, Vec<Problem>> {
    let mut unknown = Vec::new();
    let note = |path: serde_ignored::Path<'_>| {
        let path = field_path(&path.to_string());
        // The fields that name the kind were read before, and are not fields of the type.
        if path != "apiVersion" && path != "kind" {
            unknown.push(place.problem_at(
                path,
                "is not a field of this kind: remove it or correct its spelling",
            ));
        }
    };
    let object = match body {
        // The message of the parser names the path, the line and the expected value.
        DocumentBody::Text(chunk) => serde_ignored::deserialize(Deserializer::from_str(chunk.text), note)
            .map_err(|cause| chunk.with_lines_of_file(&cause)),
        DocumentBody::Value(value) => {
            serde_ignored::deserialize((*value).clone(), note).map_err(|cause| cause.to_string())
        }
        DocumentBody::Merged(value) => {
            serde_ignored::deserialize(value.clone(), note).map_err(|cause| cause.to_string())
        }
    };
    match object {
        Err(reason) => Err(vec![place.problem(reason)]),
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
