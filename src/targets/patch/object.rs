//! Reads and writes the object of a target.

use kube::{
    Api,
    api::{ApiResource, DynamicObject, ObjectMeta, Patch, PatchParams, ValidationDirective},
};
use serde_json::Value;

use crate::{
    api::{lock_status::TargetState, target::TargetRef},
    clock,
    targets::{
        Step, TargetContext, TargetError,
        read::{Place, Read},
        shared::Followed,
        write::{Write, managed_by},
    },
};

/// The field manager that owns the fields.
const MANAGER: &str = "redlock-operator-patch";

/// The length to which a message is truncated: it may contain the whole object.
const LONGEST: usize = 400;

/// Returns the end of a message, which contains the reason.
fn short(message: &str) -> String {
    let reason = message.rsplit_once("strict decoding error: ");
    let reason = reason.map_or(message, |(_, reason)| reason);
    match reason.char_indices().nth_back(LONGEST) {
        Some((start, _)) => format!("…{}", reason.get(start..).unwrap_or_default()),
        None => reason.to_owned(),
    }
}

/// An object in the version of its kind that is served.
pub(super) struct Object {
    name: String,
    called: String,
    place: Place,
    api: Api<DynamicObject>,
    followed: Followed,
}

/// An object as it was read or stored.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    metadata: ObjectMeta,
    pub(super) value: Value,
}

impl Snapshot {
    fn of(object: DynamicObject) -> Self {
        // An object that was read from JSON can be written as JSON.
        let value = serde_json::to_value(&object).unwrap_or_default();
        let metadata = object.metadata;
        Self { metadata, value }
    }

    pub(super) const fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    pub(super) const fn version(&self) -> &Option<String> {
        &self.metadata.resource_version
    }

    pub(super) fn uid(&self) -> Option<String> {
        self.metadata.uid.clone()
    }
}

impl Object {
    pub(super) fn new(context: &TargetContext, reference: &TargetRef, place: Place) -> Self {
        let (namespace, name) = (&context.namespace, &reference.name);
        Self {
            name: name.clone(),
            called: format!("{} {namespace}/{name}", reference.kind),
            api: Api::namespaced_with(context.client.clone(), namespace, &place.resource),
            followed: context.shared.follow(&place.resource, namespace, name),
            place,
        }
    }

    pub(super) fn is_at(&self, place: &Place) -> bool {
        self.place.resource == place.resource
    }

    pub(super) const fn resource(&self) -> &ApiResource {
        &self.place.resource
    }

    pub(super) async fn read(&self) -> Result<(Option<Snapshot>, Read), TargetError> {
        let asked = clock::now();
        let found = self.api.get(&self.name).await;
        let what = || format!("reading {}", self.called);
        let found = self.place.settle(what, found).await;
        let found = found.map_err(|error| error.granting(|| self.rule()))?;
        let answered = clock::now();
        Ok((found.map(Snapshot::of), Read { asked, answered }))
    }

    pub(super) async fn write(&self, change: &Value, what: &str) -> Result<Write<Snapshot>, TargetError> {
        // Strict: a field that the schema does not have is refused, not dropped.
        let params = PatchParams {
            field_validation: Some(ValidationDirective::Strict),
            ..managed_by(MANAGER)
        };
        let answer = self.api.patch(&self.name, &params, &Patch::Merge(change)).await;
        let what = format!("{what} {}", self.called);
        if let Err(kube::Error::Api(status)) = &answer
            && matches!(status.code, 400 | 422)
        {
            let reason = short(&status.message);
            return Err(TargetError::Rejected { what, reason });
        }
        Write::of(answer.map(Snapshot::of), what).map_err(|error| error.granting(|| self.rule()))
    }

    /// Reports an object that cannot be watched as trouble. The object is switched nevertheless, but a write
    /// by another writer is noticed late.
    pub(super) fn followed(&self, step: Step, goal: TargetState) -> Step {
        match (step, self.followed.trouble()) {
            (Step::Done, Some(error)) => {
                let error = error.granting(|| self.rule());
                Step::trouble(goal, error.reason(), error.to_string())
            }
            (step, _) => step,
        }
    }

    /// Returns the required rights on the object, ready to paste.
    fn rule(&self) -> String {
        let (group, resource) = (&self.place.resource.group, &self.place.resource.plural);
        format!(
            "the chart grants it with targetFields; without, in a ClusterRole:\n- apiGroups: [{group:?}]\n  \
             resources: [{resource}]\n  verbs: [get, list, watch, patch]"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_is_reported_without_the_object() {
        let object = "x".repeat(5_000);
        let strict = format!(
            "\"\" is invalid: patch: Invalid value: {object}: strict decoding error: unknown field \"spec.a\""
        );
        assert_eq!(short(&strict), "unknown field \"spec.a\"");
        assert_eq!(short("spec.a: Invalid value"), "spec.a: Invalid value");
        let cut = short(&format!("{object}: denied"));
        assert!(cut.starts_with('…') && cut.ends_with(": denied") && cut.chars().count() <= LONGEST + 2);
    }
}
