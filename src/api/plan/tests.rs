//! Plans for tests.

use super::LockPlan;
use crate::api::{
    LeaderLock, RedisQuorum,
    validate::{Graces, LockNames, validate_lock, validate_quorum},
};

/// The plan of LeaderLock n/l on RedisQuorum q, with `more` in its spec, as in `, targets: []`.
pub(crate) fn plan_of(more: &str) -> LockPlan {
    let quorum: RedisQuorum = serde_yaml::from_str(
        "{apiVersion: redlock.dev/v1alpha1, kind: RedisQuorum, metadata: {name: q}, spec: {masters: [\
         {name: a, url: 'redis://a'}, {name: b, url: 'redis://b'}, {name: c, url: 'redis://c'}]}}",
    )
    .unwrap();
    let lock: LeaderLock = serde_yaml::from_str(&format!(
        "{{apiVersion: redlock.dev/v1alpha1, kind: LeaderLock, metadata: {{name: l, namespace: n}}, \
         spec: {{quorumRef: {{name: q}}{more}}}}}"
    ))
    .unwrap();
    let quorum = validate_quorum(&quorum).unwrap();
    validate_lock(&lock, &quorum, LockNames::Any, &Graces::default()).unwrap()
}
