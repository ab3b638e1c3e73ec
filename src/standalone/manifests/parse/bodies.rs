//! Reads the documents of a file, in YAML or JSON, and the objects of a list.

use std::path::Path;

use serde::Deserialize;
use serde_yaml::{Mapping, Value};

use super::split::{self, Chunk};
use crate::api::API_VERSION;

/// The source of an object. Errors of a text name its lines.
pub(super) enum DocumentBody<'a> {
    Text(Chunk<'a>),
    /// A document whose merge keys (`<<`) are resolved, or one in JSON.
    Merged(Value),
    /// An item of a list.
    Value(&'a Value),
}

/// One document.
pub(super) enum ManifestDocument<'a> {
    Nothing,
    Document { head: Value, body: DocumentBody<'a> },
    Broken(String),
}

pub(super) fn read<'a>(file: &str, text: &'a str) -> Vec<ManifestDocument<'a>> {
    // A parser of YAML refuses tabs, with which programs indent JSON.
    if Path::new(file)
        .extension()
        .is_some_and(|extension| extension == "json")
    {
        return read_json(text);
    }
    split::documents(text).into_iter().map(read_chunk).collect()
}

fn read_json<'a>(text: &str) -> Vec<ManifestDocument<'a>> {
    let documents = serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>();
    let converted = documents.map(|document| {
        let head = document.map_err(|cause| cause.to_string());
        head.and_then(|head| Value::deserialize(head).map_err(|cause| cause.to_string()))
    });
    let read = converted.map(|head| match head {
        Ok(head) => ManifestDocument::Document {
            body: DocumentBody::Merged(head.clone()),
            head,
        },
        Err(cause) => ManifestDocument::Broken(format!("is not valid JSON: {cause}")),
    });
    read.collect()
}

fn read_chunk(chunk: Chunk<'_>) -> ManifestDocument<'_> {
    let broken = |cause: serde_yaml::Error| {
        ManifestDocument::Broken(format!("is not valid YAML: {}", chunk.with_lines_of_file(&cause)))
    };
    let mut head: Value = match serde_yaml::from_str(chunk.text) {
        Ok(Value::Null) => return ManifestDocument::Nothing,
        Ok(head) => head,
        Err(cause) => return broken(cause),
    };
    if !chunk.text.contains("<<") {
        return ManifestDocument::Document {
            head,
            body: DocumentBody::Text(chunk),
        };
    }
    let written = head.clone();
    match head.apply_merge() {
        Err(cause) => broken(cause),
        Ok(()) if head == written => ManifestDocument::Document {
            head,
            body: DocumentBody::Text(chunk),
        },
        Ok(()) => ManifestDocument::Document {
            body: DocumentBody::Merged(head.clone()),
            head,
        },
    }
}

/// Returns the objects of a list, as `kubectl get -o yaml` and the API server write it; `None` for any other object. The items
/// of a list of one kind do not repeat the kind.
pub(super) fn items(list: &Value) -> Option<Result<Vec<Value>, &'static str>> {
    let text = |key: &str| list.get(key).and_then(Value::as_str).unwrap_or_default();
    let kind = match (text("apiVersion"), text("kind")) {
        ("v1", "List") => None,
        (API_VERSION, "RedisQuorumList") => Some("RedisQuorum"),
        (API_VERSION, "LeaderLockList") => Some("LeaderLock"),
        _ => return None,
    };
    let items = match list.get("items") {
        None | Some(Value::Null) => return Some(Ok(Vec::new())),
        Some(Value::Sequence(items)) => items.clone(),
        Some(_) => return Some(Err("is not a list of objects")),
    };
    Some(Ok(match kind {
        None => items,
        Some(kind) => items.into_iter().map(|item| of_kind(item, kind)).collect(),
    }))
}

fn of_kind(item: Value, kind: &str) -> Value {
    let Value::Mapping(fields) = item else {
        return item;
    };
    let mut whole = Mapping::new();
    whole.insert("apiVersion".into(), API_VERSION.into());
    whole.insert("kind".into(), kind.into());
    whole.extend(fields);
    Value::Mapping(whole)
}
