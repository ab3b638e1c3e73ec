//! Patch: sets one to four fields of any object, to one value where the lock is held and another elsewhere.
//!
//! A stop overwrites other writers; a start does not take a field from a manager that declares it. A stop is confirmed
//! by the status of the object, or after the stop time.

mod fields;
mod hold;
mod object;
mod set_fields;
mod start;
mod status;
mod stop;
mod stop_fields;
mod texts;

use std::{sync::Arc, time::Duration};

use kube::api::ApiResource;

use super::{
    Changes, ConditionReason, Step, TargetContext, TargetError,
    attempts::Attempts,
    data_loss::{is_replicas, scaling_deletes},
    following::changes_of,
    in_flight::InFlight,
    kind::Need,
    owner::writers,
    read::{Place, Read},
};
use crate::{
    api::{
        lock_status::TargetState,
        plan::{FieldPlan, PatchPlan, TargetWork},
        target::TargetRef,
    },
    lease::{BootInstant, FencingToken},
};
use hold::{Hold, Move, Shown, Writers};
use object::{Object, Snapshot};
use set_fields::SetFields;
use stop_fields::Membership;

/// The maximum number of reads in one step: the object may change between a read and a write.
const TRIES: usize = 8;
/// The interval of reads while a stop only waits for its time.
const POLL: Duration = Duration::from_secs(1);

pub(super) struct FieldPatch {
    context: TargetContext,
    reference: TargetRef,
    /// The name of the object in messages, as in `Kustomization fleet/apps`.
    called: String,
    /// The object in the version of its kind that is served now.
    object: Option<Arc<Object>>,
    plan: PatchPlan,
    stop: Duration,
    membership: Membership,
    set_fields: SetFields,
    hold: Hold,
    /// The time of the last read of the object.
    polled: Option<BootInstant>,
    /// The status check that does not hold.
    awaited: Option<String>,
    in_flight: InFlight,
    /// The version that the last start was for. The API server applies the start to no other version.
    sent_over: Option<String>,
    attempts: Attempts,
    /// The lease under which the object ran, and its UID.
    ran: Option<(FencingToken, Option<String>)>,
    /// The UID of the object that was stopped since the last start.
    stopped: Option<String>,
    /// Whether a stop has written an annotation since the last start.
    annotated: bool,
}

impl FieldPatch {
    pub(super) fn new(context: TargetContext, object: &TargetRef, plan: &PatchPlan, stop: Duration) -> Self {
        Self {
            called: format!("{} {}/{}", object.kind, context.namespace, object.name),
            context,
            reference: object.clone(),
            object: None,
            plan: plan.clone(),
            stop,
            membership: Membership::Declared,
            set_fields: SetFields::default(),
            hold: Hold::default(),
            polled: None,
            awaited: None,
            in_flight: InFlight::default(),
            sent_over: None,
            attempts: Attempts::default(),
            ran: None,
            stopped: None,
            annotated: false,
        }
    }

    pub(super) fn declare(&mut self, work: &TargetWork) {
        let TargetWork::Patch { patch, stop, .. } = work else {
            return;
        };
        (self.stop, self.membership) = (*stop, Membership::Declared);
        if self.plan != *patch {
            self.plan = patch.clone();
            (self.hold, self.ran, self.stopped) = (Hold::Open, None, None);
        }
    }

    /// The target was removed from the lock.
    pub(super) fn undeclare(&mut self) {
        self.membership = Membership::Removed;
    }

    async fn place(&self) -> Result<Place, TargetError> {
        let (context, reference) = (&self.context, &self.reference);
        Place::find(&context.client, &context.shared.kinds, reference, Need::Served).await
    }

    fn object_at(&mut self, place: Place) -> Arc<Object> {
        if let Some(object) = self.object.as_ref().filter(|object| object.is_at(&place)) {
            return object.clone();
        }
        let object = Object::new(&self.context, &self.reference, place);
        self.object.insert(Arc::new(object)).clone()
    }

    /// Finds the object. Each declared field must be allowed before anything is read or written.
    async fn allowed_object(&mut self) -> Result<Arc<Object>, TargetError> {
        let place = self.place().await?;
        if let Some(error) = self.refusals(&place.resource).next() {
            return Err(error);
        }
        Ok(self.object_at(place))
    }

    /// Finds the object for a stop. With a field that is not allowed, a declared target is read and written only for the
    /// fields that were set.
    async fn object_to_stop(&mut self) -> Result<Arc<Object>, TargetError> {
        let place = self.place().await?;
        if self.set_fields.is_empty()
            && self.membership == Membership::Declared
            && let Some(error) = self.refusals(&place.resource).next()
        {
            return Err(error);
        }
        Ok(self.object_at(place))
    }

    /// Returns the refusal of each declared field that the operator may not set.
    fn refusals(&self, resource: &ApiResource) -> impl Iterator<Item = TargetError> {
        let fields = self.plan.fields.iter();
        fields.filter_map(|field| self.refusal(resource, field))
    }

    fn refusal(&self, resource: &ApiResource, field: &FieldPlan) -> Option<TargetError> {
        let allowed = &self.context.shared.allowed_fields;
        allowed.check(resource, &field.path).err()
    }

    async fn read(&mut self, object: &Object) -> Result<(Option<Snapshot>, Read), TargetError> {
        let (found, read) = object.read().await?;
        self.polled = Some(read.answered);
        // An unanswered start can apply only to the version in `sent_over`.
        let version = found.as_ref().map(Snapshot::version);
        if version != Some(&self.sent_over) {
            self.in_flight.settle();
        }
        self.set_fields.belong_to(found.as_ref().and_then(Snapshot::uid));
        if let Some(found) = found.as_ref().filter(|_| !self.in_flight.is_open()) {
            self.set_fields.keep_unchanged(&found.value);
        }
        Ok((found, read))
    }

    /// Reports an object whose volumes are deleted by a number of replicas that the target declares.
    fn deletes_volumes(&self, found: &Snapshot) -> Option<Step> {
        let scales = self.plan.fields.iter().any(|field| is_replicas(&field.path));
        let deletes = || scaling_deletes(&self.called, found.metadata(), &found.value);
        let text = scales.then(deletes).flatten()?;
        let reason = ConditionReason::TargetNotSafe;
        Some(Step::trouble(TargetState::Active, reason, text))
    }

    fn status_of(&self, found: &Snapshot) -> Option<Shown> {
        let is_annotation = |field: &FieldPlan| field.path.annotation().is_some();
        let annotates = self.annotated || self.plan.fields.iter().any(is_annotation);
        status::status_of(&found.value, &self.plan.stopped_when, annotates)
    }

    fn writers_of(&self, found: &Snapshot) -> Writers {
        let fields = self.plan.fields.iter();
        Writers {
            uid: found.uid(),
            managers: fields
                .map(|field| writers(found.metadata(), field.path.parts()))
                .collect(),
        }
    }

    pub(super) async fn observe(&mut self) -> Result<TargetState, TargetError> {
        let object = self.allowed_object().await?;
        let (found, read) = self.read(&object).await?;
        Ok(match self.next(&object, found.as_ref(), read).0 {
            Move::Write => TargetState::Active,
            Move::Wait(_) | Move::Undated => TargetState::Changing,
            Move::Stopped => TargetState::Standby,
        })
    }

    pub(super) fn late(&self) -> Option<String> {
        let why = self.awaited.as_ref()?;
        Some(format!("{}: {why}", self.called))
    }

    pub(super) fn changes(&self) -> Changes {
        changes_of(&self.context, &self.reference, Need::Served)
    }
}

#[cfg(test)]
mod tests;
