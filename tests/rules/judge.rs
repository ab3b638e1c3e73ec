//! Judges an object with `validate`.

// Each test binary uses a part of this module.
#![allow(dead_code)]

use redlock::api::plan::QuorumPlan;
use redlock::api::validate::{FieldError, Graces, LockNames, validate_lock, validate_quorum};
use redlock::api::{LeaderLock, RedisQuorum};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::table::{FieldErrors, Kind, NAMESPACE, object};

/// Judges a lock with a quorum that has only masters.
pub fn judge(kind: Kind, spec: &Map<String, Value>) -> FieldErrors {
    judge_beside(kind, spec, &Map::new())
}

/// Judges a lock with a quorum of this spec.
pub fn judge_beside(kind: Kind, spec: &Map<String, Value>, quorum: &Map<String, Value>) -> FieldErrors {
    let value = object(kind, "x", spec);
    let verdict = match kind {
        Kind::RedisQuorum => {
            parse::<RedisQuorum>(&value).map(|quorum| validate_quorum(&quorum).err().unwrap_or_default())
        }
        Kind::LeaderLock => parse::<LeaderLock>(&value).map(|mut lock| {
            lock.metadata.namespace = Some(NAMESPACE.to_owned());
            validate_lock(
                &lock,
                &plan(quorum),
                LockNames::OfTheNamespace,
                &Graces::default(),
            )
            .err()
            .unwrap_or_default()
        }),
    };
    match verdict {
        Ok(errors) => field_errors(errors),
        // An object that cannot be read has the wrong type: the text names the field.
        Err(text) => vec![(String::new(), text)],
    }
}

fn plan(spec: &Map<String, Value>) -> QuorumPlan {
    let value = object(Kind::RedisQuorum, "default", spec);
    validate_quorum(&parse(&value).unwrap()).unwrap()
}

pub fn parse<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    // The object is converted to text, as if it were read from a file: the error then names the field.
    let text = serde_yaml::to_string(value).unwrap();
    serde_yaml::from_str(&text).map_err(|error| error.to_string())
}

pub fn field_errors(errors: Vec<FieldError>) -> FieldErrors {
    errors
        .into_iter()
        .map(|error| (error.field.clone(), error.statement()))
        .collect()
}
