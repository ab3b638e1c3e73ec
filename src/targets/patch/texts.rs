//! The messages about obstacles that keep a field from its wanted value.

use super::{
    FieldPatch,
    fields::{Blocked, Difference, shown},
    object::Snapshot,
};
use crate::{
    api::lock_status::TargetState,
    targets::{
        ConditionReason, Step,
        owner::{declared_by, last_writer, named},
    },
};

impl FieldPatch {
    pub(super) fn missing(&self) -> Step {
        let text = format!("{} does not exist; it is started as soon as it does", self.called);
        Step::trouble(TargetState::Standby, ConditionReason::TargetNotFound, text)
    }

    pub(super) fn blocked(&self, blocked: &Blocked) -> Step {
        let Blocked { path, at } = blocked;
        let text = format!(
            "{}: {path} cannot be set, since {at} is no object: correct the path in patch.fields",
            self.called
        );
        Step::trouble(TargetState::Active, ConditionReason::TargetNotSafe, text)
    }

    /// Reports that the API server stored a value other than the one that was written.
    pub(super) fn not_stored(&self, state: TargetState, differing: &[Difference]) -> Step {
        let each = differing
            .iter()
            .map(|field| format!("{} has {}", field.path, shown(field.found.as_ref())));
        let text = format!(
            "{}: the API server did not store what the operator wrote: {}. The schema has no such field or gives it a \
             default, or a webhook or policy changes it",
            self.called,
            each.collect::<Vec<_>>().join(", ")
        );
        Step::trouble(state, ConditionReason::TargetNotSafe, text)
    }

    /// Reports a field that another manager declares: a start does not take it.
    pub(super) fn conflict(&self, found: &Snapshot, differing: &[Difference]) -> Option<Step> {
        // An absent field has no owner, but its map may have one.
        let owned =
            |field: &Difference| Some((field.clone(), declared_by(found.metadata(), field.path.parts())?));
        let (field, owner) = differing
            .iter()
            .filter(|field| field.found.is_some())
            .find_map(owned)?;
        let text = format!(
            "{}: {} has {} by {}, and a start does not take a field from another manager: remove the field from the \
             manifest that is applied, so that the lock may set it",
            self.called,
            field.path,
            shown(field.found.as_ref()),
            named(&owner)
        );
        let reason = ConditionReason::EnforcementConflict;
        Some(Step::trouble(self.state(found), reason, text))
    }

    /// Describes the write by which another writer undid a start or a stop.
    pub(super) fn undone(&self, found: &Snapshot, differing: &[Difference]) -> String {
        let changed = differing.first();
        let path = changed.map(|field| field.path.to_string()).unwrap_or_default();
        let value = shown(changed.and_then(|field| field.found.as_ref()));
        let writer = changed.and_then(|field| last_writer(found.metadata(), field.path.parts()));
        let writer = writer.map_or_else(|| "another writer".to_owned(), |writer| named(&writer));
        format!("{path} of {} was set to {value} by {writer}", self.called)
    }
}
