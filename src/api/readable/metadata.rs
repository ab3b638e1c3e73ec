//! The parts of the metadata of a LeaderLock or a RedisQuorum that the operator reads.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::ObjectMeta;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};

use crate::api::{
    CLUSTER_COPY, COORDINATOR_SCOPE, PAUSED, STOPPED, UNSEEN_QUORUMS, abstention::ABSTAIN,
    bounds::RECORD_LIMIT, hand_over::REQUEST, in_force::IN_FORCE,
};

/// Returns the longest value of an annotation that is read, in bytes; `None` for an annotation that is never read. A longer
/// value is cut, so that a record in JSON cannot be read.
fn limit(annotation: &str) -> Option<usize> {
    match annotation {
        PAUSED | ABSTAIN => Some(512),
        REQUEST => Some(1_024),
        IN_FORCE => Some(RECORD_LIMIT),
        COORDINATOR_SCOPE | CLUSTER_COPY => Some(64),
        // Up to seven names and urls, or 32 names.
        STOPPED | UNSEEN_QUORUMS => Some(8_192),
        _ => None,
    }
}

fn cut(mut value: String, limit: usize) -> String {
    if value.len() > limit {
        value.truncate(value.floor_char_boundary(limit));
        value.shrink_to_fit();
    }
    value
}

/// Returns an annotation that is read, within its limit.
fn keep_annotation((name, value): (String, String)) -> Option<(String, String)> {
    let limit = limit(&name)?;
    Some((name, cut(value, limit)))
}

/// Drops the fields that are never read from the answer to a write.
pub(crate) fn trim(metadata: &mut ObjectMeta) {
    let all = std::mem::take(metadata);
    let annotations = all.annotations.into_iter().flatten();
    *metadata = ObjectMeta::from(Kept {
        name: all.name,
        namespace: all.namespace,
        uid: all.uid,
        resource_version: all.resource_version,
        generation: all.generation,
        creation_timestamp: all.creation_timestamp,
        deletion_timestamp: all.deletion_timestamp,
        finalizers: all.finalizers,
        annotations: annotations.filter_map(keep_annotation).collect(),
    });
}

/// The metadata as it is decoded: the other fields are skipped.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Kept {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    finalizers: Option<Vec<String>>,
    #[serde(default, deserialize_with = "annotations")]
    annotations: BTreeMap<String, String>,
}

impl From<Kept> for ObjectMeta {
    fn from(kept: Kept) -> Self {
        Self {
            name: kept.name,
            namespace: kept.namespace,
            uid: kept.uid,
            resource_version: kept.resource_version,
            generation: kept.generation,
            creation_timestamp: kept.creation_timestamp,
            deletion_timestamp: kept.deletion_timestamp,
            finalizers: kept.finalizers,
            annotations: Some(kept.annotations).filter(|kept| !kept.is_empty()),
            ..Self::default()
        }
    }
}

/// Decodes the annotations that are read.
fn annotations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct Annotations;

    impl<'de> Visitor<'de> for Annotations {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map of annotations")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(BTreeMap::new())
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut kept = BTreeMap::new();
            while let Some(name) = map.next_key::<String>()? {
                kept.extend(keep_annotation((name, map.next_value()?)));
            }
            Ok(kept)
        }
    }

    deserializer.deserialize_any(Annotations)
}
