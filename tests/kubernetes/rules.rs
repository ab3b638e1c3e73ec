//! Tests the answers of the API server to the objects and changes that `validate` judges in `tests/rules`.

use std::collections::BTreeSet;

use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, Status};
use kube::{Client, Error, Resource};
use redlock::api::{LeaderLock, RedisQuorum};
use serde_json::Value;

use crate::fixture::{ControlPlane, TestNamespace};
use crate::table::{FieldErrors, Kind, cases, changes, object};

#[tokio::test]
async fn the_api_server_answers_as_in_the_table() {
    let plane = ControlPlane::shared();
    plane.install_crds().await;
    let namespace = plane.namespace("table").await;
    let tried = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let mut wrong = Vec::new();
    let mut triggered = BTreeSet::new();
    for (kind, case) in cases() {
        let api = objects(plane.admin(), kind, &namespace);
        let (errors, whole) = field_errors(api.create(&tried, &read(object(kind, "x", &case.spec))).await);
        if let Some(problem) = case.wanted_of_server().missing_in(&errors) {
            wrong.push(format!("{}: {problem}", case.case));
        }
        let repeated = case.never.filter(|secret| whole.contains(secret));
        assert_eq!(repeated, None, "{}: {whole}", case.case);
        triggered.extend(errors.into_iter().map(|(_, text)| text));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_every_rule_is_triggered(&triggered);
}

#[tokio::test]
async fn the_api_server_answers_changes_as_in_the_table() {
    let plane = ControlPlane::shared();
    plane.install_crds().await;
    let namespace = plane.namespace("changes").await;
    let mut wrong = Vec::new();
    for (index, change) in changes().into_iter().enumerate() {
        // A quorum has no namespace: its name keeps the cases apart.
        let name = format!("{}-{index}", namespace.name());
        let api = objects(plane.admin(), change.kind, &namespace);
        let before = read(object(change.kind, &name, &change.before));
        let before = api.create(&PostParams::default(), &before).await.unwrap();
        let mut after = read(object(change.kind, &name, &change.after));
        after.metadata.resource_version = before.metadata.resource_version;
        let (errors, _) = field_errors(api.replace(&name, &PostParams::default(), &after).await);
        if let Some(problem) = change.wanted().missing_in(&errors) {
            wrong.push(format!("{}: {problem}", change.case));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Asserts that the cases trigger every rule of the definitions, so that a broken rule is noticed.
fn assert_every_rule_is_triggered(triggered: &BTreeSet<String>) {
    let of_changes: Vec<String> = changes()
        .into_iter()
        .filter_map(|change| change.message)
        .collect();
    let mut silent = messages();
    silent.retain(|message| {
        let by_case = triggered.iter().any(|text| text.contains(message.as_str()));
        !by_case && !of_changes.iter().any(|text| message.contains(text.as_str()))
    });
    assert!(silent.is_empty(), "{silent:#?}");
}

/// Returns the messages of all rules with a fixed message; the other rules compose their messages.
fn messages() -> BTreeSet<String> {
    fn walk(schema: &Value, found: &mut BTreeSet<String>) {
        match schema {
            Value::Object(fields) => {
                let rules = fields.get("x-kubernetes-validations").and_then(Value::as_array);
                let texts = rules
                    .into_iter()
                    .flatten()
                    .filter_map(|rule| rule["message"].as_str());
                found.extend(texts.map(str::to_owned));
                fields.values().for_each(|field| walk(field, found));
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, found)),
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    for yaml in [
        redlock::api::leader_lock_crd_yaml(),
        redlock::api::redis_quorum_crd_yaml(),
    ] {
        walk(&serde_yaml::from_str(&yaml.unwrap()).unwrap(), &mut found);
    }
    assert!(found.len() > 20, "{found:?}");
    found
}

/// Returns an untyped client, because a type cannot represent an invalid object.
pub fn objects(client: Client, kind: Kind, namespace: &TestNamespace) -> Api<DynamicObject> {
    match kind {
        Kind::LeaderLock => Api::namespaced_with(client, namespace.name(), &resource::<LeaderLock>()),
        Kind::RedisQuorum => Api::all_with(client, &resource::<RedisQuorum>()),
    }
}

fn resource<K: Resource<DynamicType = ()>>() -> ApiResource {
    ApiResource::erase::<K>(&())
}

pub fn read(object: Value) -> DynamicObject {
    serde_json::from_value(object).unwrap()
}

/// Returns the answer of the API server, field by field, and all of it as text.
pub fn field_errors(answer: kube::Result<DynamicObject>) -> (FieldErrors, String) {
    let status: Status = match answer {
        Ok(_) => return (FieldErrors::new(), String::new()),
        Err(Error::Api(status)) => *status,
        Err(error) => panic!("{error}"),
    };
    let whole = format!("{status:?}");
    let causes = status
        .details
        .as_ref()
        .map(|details| details.causes.clone())
        .unwrap_or_default();
    let errors: FieldErrors = causes
        .into_iter()
        .map(|cause| (cause.field, cause.message))
        .collect();
    // A refusal without causes does not come from a rule of the project.
    assert!(!errors.is_empty(), "{whole}");
    (errors, whole)
}
