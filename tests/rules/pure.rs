//! What `validate` says.

use redlock::api::plan::QuorumPlan;
use redlock::api::validate::{
    FieldError, LockNames, validate_lock, validate_lock_update, validate_quorum, validate_quorum_update,
};
use redlock::api::{LeaderLock, RedisQuorum};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::table::{Kind, NAMESPACE, Said, Wanted, cases, changes, object};

#[test]
fn validate_says_what_the_table_says() {
    let mut wrong = Vec::new();
    for (kind, case) in cases() {
        let said = judge(kind, &case.spec);
        if let Some(problem) = case.wanted_of_validate().missing_in(&said) {
            wrong.push(format!("{}: {problem}", case.case));
        }
        let repeated = case.never.filter(|secret| format!("{said:?}").contains(secret));
        assert_eq!(repeated, None, "{}", case.case);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn validate_says_of_changes_what_the_table_says() {
    for change in changes() {
        let spec = |spec| object(change.kind, "x", spec);
        let (before, after) = (spec(&change.before), spec(&change.after));
        let said = match change.kind {
            Kind::LeaderLock => {
                let read = |value| parse::<LeaderLock>(value).unwrap().spec;
                validate_lock_update(&read(&before), &read(&after))
            }
            Kind::RedisQuorum => {
                let read = |value| parse::<RedisQuorum>(value).unwrap().spec;
                validate_quorum_update(&read(&before), &read(&after))
            }
        };
        let said = said.err().map(told).unwrap_or_default();
        assert_eq!(change.wanted().missing_in(&said), None, "{}", change.case);
    }
}

#[test]
fn the_table_is_as_long_as_the_rules_need() {
    let count = |accepted: bool| {
        let cases = cases();
        cases
            .iter()
            .filter(|(_, case)| (case.wanted_of_server() == Wanted::Accepted) == accepted)
            .count()
    };
    assert!(count(true) >= 15 && count(false) >= 40);
}

fn judge(kind: Kind, spec: &Map<String, Value>) -> Said {
    let value = object(kind, "x", spec);
    let verdict = match kind {
        Kind::RedisQuorum => {
            parse::<RedisQuorum>(&value).map(|quorum| validate_quorum(&quorum).err().unwrap_or_default())
        }
        Kind::LeaderLock => parse::<LeaderLock>(&value).map(|mut lock| {
            lock.metadata.namespace = Some(NAMESPACE.to_owned());
            validate_lock(&lock, &usual_quorum(), LockNames::OfTheNamespace)
                .err()
                .unwrap_or_default()
        }),
    };
    match verdict {
        Ok(errors) => told(errors),
        // What cannot be read is not of the type: the text names the field.
        Err(text) => vec![(String::new(), text)],
    }
}

fn usual_quorum() -> QuorumPlan {
    let value = object(Kind::RedisQuorum, "default", &Map::new());
    validate_quorum(&parse(&value).unwrap()).unwrap()
}

fn parse<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    // Over text, as an object is read from a file: the error then names the field.
    let text = serde_yaml::to_string(value).unwrap();
    serde_yaml::from_str(&text).map_err(|error| error.to_string())
}

fn told(errors: Vec<FieldError>) -> Said {
    errors
        .into_iter()
        .map(|error| (error.field.clone(), error.statement()))
        .collect()
}
