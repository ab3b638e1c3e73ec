//! Sets the standby values. Each field gets its value even if another one is refused.

use std::slice;

use super::{
    FieldPatch, POLL, TRIES,
    fields::{Difference, merge_patch},
    hold::{Found as Seen, Move, Rules},
    object::{Object, Snapshot},
    set_fields::is_unset,
    stop_fields::{CheckedField, Membership, Obstacle, StopFields},
};
use crate::{
    api::lock_status::TargetState,
    api::plan::FieldPlan,
    clock,
    lease::BootInstant,
    targets::{
        ConditionReason, Step, StopPermit, TargetError, attempts::Precondition, permit, read::Read,
        write::Write,
    },
};

impl FieldPatch {
    /// Sets the standby values. Done when the status confirms the stop or, without a status to check, the
    /// stop time is over.
    pub(in crate::targets) async fn stop(
        &mut self,
        _by: Option<BootInstant>,
        permit: &StopPermit,
    ) -> Result<Step, TargetError> {
        self.ran = None;
        if self.rests() {
            return Ok(Step::Working(TargetState::Changing));
        }
        let object = self.object_to_stop().await?;
        let step = self.try_stop(&object, permit).await?;
        Ok(object.followed(step, TargetState::Standby))
    }

    async fn try_stop(&mut self, object: &Object, permit: &StopPermit) -> Result<Step, TargetError> {
        for _ in 0..TRIES {
            let (found, read) = self.read(object).await?;
            let (next, fields) = self.next(object, found.as_ref(), read);
            match (next, found) {
                (Move::Write, Some(found)) if !fields.differing.is_empty() => {
                    match self.write_stop(object, &found, &fields.differing, permit).await? {
                        Some(step) => return Ok(step),
                        None => continue,
                    }
                }
                (next, _) => {
                    self.attempts.settle();
                    return match fields.obstacle {
                        Some(obstacle) => self.obstructed(obstacle),
                        None => Ok(self.waits(next)),
                    };
                }
            }
        }
        Ok(Step::Working(TargetState::Active))
    }

    /// Decides on an object that was read. Also returns the fields that do not have their standby values.
    pub(super) fn next(
        &mut self,
        object: &Object,
        found: Option<&Snapshot>,
        read: Read,
    ) -> (Move, StopFields) {
        let fields = found.map(|found| self.stop_fields(object, found));
        let seen = match (found, &fields) {
            (Some(found), Some(fields)) if fields.is_standby() => Seen::Standby {
                writers: self.writers_of(found),
                shown: self.status_of(found),
            },
            (Some(_), _) => Seen::Other,
            (None, _) => Seen::Gone,
        };
        let rules = Rules {
            stop: self.stop,
            trusts_status: self.plan.trusts_status,
        };
        let doubt = self.in_flight.is_open();
        let next = self.hold.next(seen, rules, read, doubt);
        (next, fields.unwrap_or_default())
    }

    fn stop_fields(&self, object: &Object, found: &Snapshot) -> StopFields {
        let resource = object.resource();
        let fields = self.plan.fields.iter();
        let checked = fields.map(|field| (field, self.refusal(resource, field)));
        let mut declared: Vec<CheckedField<'_>> = checked.collect();
        let refused = declared.iter().any(|(_, refusal)| refusal.is_some());
        if refused && self.membership == Membership::Declared {
            // A target with such a field was not started as it is declared.
            declared.retain(|(field, refusal)| refusal.is_some() || self.set_fields.has(&field.path));
        }
        let dropped = self.set_fields.dropped(&self.plan.fields);
        StopFields::of(&found.value, &declared, &dropped, self.membership)
    }

    fn obstructed(&self, obstacle: Obstacle) -> Result<Step, TargetError> {
        match obstacle {
            Obstacle::Blocked(blocked) => Ok(self.blocked(&blocked)),
            Obstacle::NotAllowed(error) => Err(error),
        }
    }

    fn waits(&mut self, next: Move) -> Step {
        self.awaited = None;
        match next {
            Move::Stopped => Step::Done,
            Move::Undated => {
                let text = format!(
                    "{}: its status has no observedGeneration for stoppedWhen, so it may be older than the stop: set \
                     patch.trustStatusWithoutGeneration: true, or leave stoppedWhen out",
                    self.called
                );
                Step::trouble(TargetState::Changing, ConditionReason::TargetNotSafe, text)
            }
            Move::Wait(why) => {
                self.awaited = why;
                Step::Working(TargetState::Changing)
            }
            Move::Write => Step::Working(TargetState::Active),
        }
    }

    /// Writes the standby values. Returns `None` if the object must be read again.
    async fn write_stop(
        &mut self,
        object: &Object,
        found: &Snapshot,
        differing: &[Difference],
        permit: &StopPermit,
    ) -> Result<Option<Step>, TargetError> {
        if let Some(step) = self.deletes_volumes(found) {
            self.attempts.settle();
            return Ok(Some(step));
        }
        let again = self.stopped.is_some() && self.stopped == found.uid();
        let may_write = || permit.holds(permit::Found::of(again));
        if !may_write() {
            self.attempts.settle();
            return Ok(Some(Step::Working(TargetState::Active)));
        }
        let precondition = self.attempts.send();
        let written = self.write_fields(object, found, differing, may_write, precondition);
        let stored = match written.await {
            Ok(Write::Done(stored)) => stored,
            Ok(Write::Missing | Write::Late) => return Ok(None),
            Err(error) => {
                if error.is_refusal() {
                    self.attempts.settle();
                }
                return Err(error);
            }
        };
        // An unanswered start was for an earlier version.
        self.in_flight.settle();
        self.attempts.settle();
        self.forget_unstored(&stored.value, differing);
        let fields = self.stop_fields(object, &stored);
        if !fields.differing.is_empty() {
            return Ok(Some(self.not_stored(TargetState::Active, &fields.differing)));
        }
        if let Some(obstacle) = fields.obstacle {
            return self.obstructed(obstacle).map(Some);
        }
        self.annotated |= differing.iter().any(|field| field.path.annotation().is_some());
        let (writers, before) = (self.writers_of(&stored), self.status_of(found));
        self.hold.written(writers, before.as_ref(), clock::now());
        self.stopped = found.uid();
        Ok(Some(if again {
            Step::Contested(self.undone(found, differing))
        } else {
            Step::Working(TargetState::Changing)
        }))
    }

    /// Writes the fields together, or each by itself if the API server rejects that: one wrong field must not keep the
    /// others from their values. Returns the last object that was stored, or the first rejection.
    pub(super) async fn write_fields(
        &mut self,
        object: &Object,
        found: &Snapshot,
        differing: &[Difference],
        may_write: impl Fn() -> bool,
        precondition: Precondition,
    ) -> Result<Write<Snapshot>, TargetError> {
        if differing.len() > 1 {
            match write(object, found, differing, precondition).await {
                Err(TargetError::Rejected { .. }) => {}
                answer => return answer,
            }
        }
        let (mut latest, mut rejection) = (found.clone(), None);
        for field in differing {
            if !may_write() {
                return Ok(Write::Late);
            }
            match write(object, &latest, slice::from_ref(field), precondition).await {
                Ok(Write::Done(stored)) => latest = *stored,
                Ok(answer) => return Ok(answer),
                Err(error @ TargetError::Rejected { .. }) if self.forget_unset(field, &error) => drop(error),
                Err(error @ TargetError::Rejected { .. }) => {
                    let earlier = self.set_fields.standby_before(field);
                    if let Some(earlier) = earlier.filter(|earlier| !earlier.is_settled())
                        && may_write()
                        && let Ok(Write::Done(stored)) =
                            write(object, &latest, slice::from_ref(&earlier), precondition).await
                    {
                        latest = *stored;
                    }
                    rejection.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        rejection.map_or_else(|| Ok(Write::Done(Box::new(latest))), Err)
    }

    /// Forgets a refused field that is no longer declared, if it has nothing to undo.
    fn forget_unset(&mut self, field: &Difference, refusal: &TargetError) -> bool {
        let unset = |known: &FieldPlan| is_unset(known, field.found.as_ref(), refusal);
        let unset = self.undeclared_field(field).is_some_and(|known| unset(&known));
        if unset {
            self.forget(field);
        }
        unset
    }

    /// Forgets the fields that are no longer declared and that the API server did not store: the schema has no such
    /// field.
    pub(super) fn forget_unstored(&mut self, stored: &serde_json::Value, written: &[Difference]) {
        for field in written.iter().filter(|field| field.is_addition()) {
            let absent = super::fields::value_at(stored, &field.path) == Ok(None);
            if absent && self.undeclared_field(field).is_some() {
                self.forget(field);
            }
        }
    }

    /// Returns the plan of a field that is no longer declared.
    fn undeclared_field(&self, field: &Difference) -> Option<FieldPlan> {
        let is_it = |plan: &&FieldPlan| plan.path == field.path;
        if self.membership == Membership::Removed
            && let Some(plan) = self.plan.fields.iter().find(is_it)
        {
            return Some(plan.clone());
        }
        self.set_fields
            .dropped(&self.plan.fields)
            .into_iter()
            .find(|plan| is_it(&plan))
    }

    fn forget(&mut self, field: &Difference) {
        self.set_fields.forget(&field.path);
        if self.membership == Membership::Removed {
            self.plan.fields.retain(|plan| plan.path != field.path);
        }
    }

    /// Reports whether a stop has nothing to do yet: no status can end the wait, and the object was read just now.
    fn rests(&self) -> bool {
        let now = clock::now();
        let early = self.hold.ends(self.stop).is_some_and(|end| now < end);
        let fresh = self.polled.is_some_and(|polled| now.since(polled) < POLL);
        self.plan.stopped_when.is_empty() && early && fresh
    }
}

/// Writes these fields of an object as it was read.
async fn write(
    object: &Object,
    found: &Snapshot,
    differing: &[Difference],
    precondition: Precondition,
) -> Result<Write<Snapshot>, TargetError> {
    let mut change = merge_patch(differing);
    precondition.require(&mut change, found.metadata());
    object.write(&change, "stopping").await
}
