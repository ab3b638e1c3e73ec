//! Records which targets of an object may run, and under which lock.
//!
//! The record is an annotation that is written together with the finalizer. Every replica of a cluster reads it, so a
//! replica that was started later knows which lock its siblings may hold for the object.

use serde::{Deserialize, Serialize};

use super::{
    LeaderLock,
    leader_lock::Fencing,
    plan::{LockIdentity, LockPlan},
    target::Target,
};
use crate::lease::identity::LockName;

/// The annotation. It is absent where no target may run, and on objects of earlier versions of the operator.
pub const IN_FORCE: &str = "redlock.dev/in-force";

/// The value of the annotation [`IN_FORCE`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InForce {
    pub quorum: String,
    pub lock_name: String,
    pub fencing: Fencing,
    /// The targets that were started and are not known to be stopped, as they were declared.
    #[serde(default)]
    pub targets: Vec<Target>,
}

impl InForce {
    #[must_use]
    pub fn new(plan: &LockPlan, targets: Vec<Target>) -> Self {
        Self {
            quorum: plan.quorum.clone(),
            lock_name: plan.lock_name.to_string(),
            fencing: plan.fencing,
            targets,
        }
    }

    /// Returns the record of an object; `None` without a record, or if the record cannot be read.
    #[must_use]
    pub fn on(object: &LeaderLock) -> Option<Self> {
        let annotations = object.metadata.annotations.as_ref()?;
        serde_json::from_str(annotations.get(IN_FORCE)?).ok()
    }

    /// Returns the lock that the record names; `None` if its name is invalid.
    #[must_use]
    pub fn identity(&self) -> Option<LockIdentity> {
        Some(LockIdentity {
            quorum: self.quorum.clone(),
            lock_name: LockName::parse(&self.lock_name).ok()?,
            fencing: self.fencing,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::plan::tests::plan_of;

    #[test]
    fn record_names_the_lock_of_a_plan() {
        let plan = plan_of("");
        let record = InForce::new(&plan, Vec::new());
        assert_eq!(record.identity(), Some(plan.identity()));
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<InForce>(&text).unwrap(), record);
        assert!(text.starts_with(r#"{"quorum":"#), "{text}");
    }

    #[test]
    fn unreadable_record_is_none() {
        let object = |value: &str| -> LeaderLock {
            let mut object: LeaderLock = serde_yaml::from_str(
                "{apiVersion: redlock.dev/v1alpha1, kind: LeaderLock, metadata: {name: l}, spec: {quorumRef: {name: q}}}",
            )
            .unwrap();
            let annotations = object.metadata.annotations.get_or_insert_default();
            annotations.insert(IN_FORCE.to_owned(), value.to_owned());
            object
        };
        assert_eq!(InForce::on(&object("yes")), None);
        let invalid = r#"{"quorum":"q","lockName":"a|b","fencing":"None"}"#;
        assert_eq!(InForce::on(&object(invalid)).unwrap().identity(), None);
    }
}
