//! Sets the active values, in the cluster that holds the lock.

use serde_json::json;

use super::{
    FieldPatch,
    fields::{Difference, Wanted, compare, differences, merge_patch},
    hold::Hold,
    object::{Object, Snapshot},
};
use crate::{
    api::lock_status::TargetState,
    targets::{StartPermit, Step, StopPermit, TargetError, permit::Found, write::Write},
};

impl FieldPatch {
    pub(in crate::targets) async fn start(&mut self, permit: &StartPermit) -> Result<Step, TargetError> {
        (self.hold, self.stopped, self.awaited) = (Hold::Open, None, None);
        self.annotated = false;
        self.attempts.settle();
        let object = self.allowed_object().await?;
        let step = self.try_start(&object, permit).await?;
        Ok(object.followed(step, TargetState::Active))
    }

    async fn try_start(&mut self, object: &Object, permit: &StartPermit) -> Result<Step, TargetError> {
        let (Some(found), _) = self.read(object).await? else {
            return Ok(self.missing());
        };
        if let Some(step) = self.deletes_volumes(&found) {
            return Ok(step);
        }
        let differing = match differences(&found.value, &self.active()) {
            Ok(differing) => differing,
            Err(blocked) => return Ok(self.blocked(&blocked)),
        };
        let this = (permit.token(), found.uid());
        if differing.is_empty() {
            self.ran = Some(this);
            self.set_fields.set(found.uid(), &self.plan.fields);
            return self.restore_dropped(object, &found, permit).await;
        }
        if let Some(step) = self.conflict(&found, &differing) {
            return Ok(step);
        }
        let revived = (self.ran.as_ref() == Some(&this)).then(|| self.undone(&found, &differing));
        let stored = match self.write_start(object, &found, &differing, permit).await? {
            Ok(stored) => stored,
            Err(step) => return Ok(step),
        };
        self.ran = Some(this);
        let step = self.restore_dropped(object, &stored, permit).await?;
        Ok(match (step, revived) {
            (Step::Done, Some(change)) => Step::Contested(change),
            (step, _) => step,
        })
    }

    fn active(&self) -> Vec<Wanted<'_>> {
        self.plan.fields.iter().map(Wanted::active).collect()
    }

    /// Writes the active values. Returns the object as it was stored, or the step that ends the attempt.
    async fn write_start(
        &mut self,
        object: &Object,
        found: &Snapshot,
        differing: &[Difference],
        permit: &StartPermit,
    ) -> Result<Result<Snapshot, Step>, TargetError> {
        let mut change = merge_patch(differing);
        change["metadata"]["resourceVersion"] = json!(found.version());
        if !permit.holds() {
            return Ok(Err(Step::Working(self.state(found))));
        }
        let (before, set_before) = (self.in_flight.send(), self.set_fields.clone());
        self.sent_over.clone_from(found.version());
        self.set_fields.set(found.uid(), &self.plan.fields);
        let written = object.write(&change, "starting").await;
        let is_done = |write: &Write<Snapshot>| matches!(write, Write::Done(_) | Write::Missing);
        self.in_flight.answered(before, &written, is_done);
        let stored = match written {
            Ok(Write::Done(stored)) => *stored,
            Ok(Write::Missing) => return Ok(Err(self.missing())),
            Ok(Write::Late) => {
                self.set_fields = set_before;
                return Ok(Err(Step::Working(self.state(found))));
            }
            Err(error) => {
                // A write that was refused has set nothing.
                if error.is_refusal() {
                    self.set_fields = set_before;
                }
                return Err(error);
            }
        };
        self.set_fields.keep_unchanged(&stored.value);
        Ok(match differences(&stored.value, &self.active()) {
            Ok(differing) if differing.is_empty() => Ok(stored),
            Ok(differing) => Err(self.not_stored(self.state(&stored), &differing)),
            Err(blocked) => Err(self.blocked(&blocked)),
        })
    }

    /// Gives the fields that are no longer declared their values of standby. The declared fields are written before, so
    /// that a refusal here does not affect them.
    async fn restore_dropped(
        &mut self,
        object: &Object,
        found: &Snapshot,
        permit: &StartPermit,
    ) -> Result<Step, TargetError> {
        let dropped = self.set_fields.dropped(&self.plan.fields);
        let wanted: Vec<Wanted<'_>> = dropped.iter().map(Wanted::standby).collect();
        let (differing, _) = compare(&found.value, &wanted);
        if differing.is_empty() {
            return Ok(Step::Done);
        }
        let (permit, precondition) = (StopPermit::of(permit), self.attempts.send());
        let may_write = || permit.holds(Found::Running);
        let written = self.write_fields(object, found, &differing, may_write, precondition);
        let written = written.await;
        self.attempts.settle();
        let stored = match written {
            Ok(Write::Done(stored)) => stored,
            Ok(Write::Missing) => return Ok(self.missing()),
            Ok(Write::Late) => return Ok(Step::Working(TargetState::Changing)),
            Err(error) => {
                return Ok(Step::trouble(
                    TargetState::Changing,
                    error.reason(),
                    error.to_string(),
                ));
            }
        };
        self.forget_unstored(&stored.value, &differing);
        self.set_fields.keep_unchanged(&stored.value);
        let left = self.set_fields.dropped(&self.plan.fields);
        let left: Vec<Wanted<'_>> = left.iter().map(Wanted::standby).collect();
        let (left, _) = compare(&stored.value, &left);
        Ok(if left.is_empty() {
            Step::Done
        } else {
            self.not_stored(TargetState::Changing, &left)
        })
    }

    /// Returns the state of an object that a start found.
    pub(super) fn state(&self, found: &Snapshot) -> TargetState {
        let standby: Vec<Wanted<'_>> = self.plan.fields.iter().map(Wanted::standby).collect();
        match differences(&found.value, &standby) {
            Ok(differing) if differing.is_empty() => TargetState::Standby,
            Ok(_) | Err(_) => TargetState::Changing,
        }
    }
}
