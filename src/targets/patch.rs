//! Patch: sets one to four fields of any object, to one value where the lock is held and another elsewhere.
//!
//! A stop overwrites other writers; a start does not take a field from a manager that declares it. A stop is confirmed
//! by the status of the object, or after the stop time.

mod fields;
mod hold;
mod object;
mod status;
mod texts;

use std::{sync::Arc, time::Duration};

use serde_json::json;

use super::{
    Changes, ConditionReason, StartPermit, Step, StopPermit, TargetContext, TargetError,
    attempts::Attempts,
    following::changes_of,
    in_flight::InFlight,
    kind::Need,
    owner::writers,
    permit,
    read::{Place, Read},
    write::Write,
};
use crate::{
    api::{
        lock_status::TargetState,
        plan::{FieldPlan, PatchPlan, TargetWork},
        target::TargetRef,
    },
    clock,
    lease::{BootInstant, FencingToken},
};
use fields::{Blocked, Difference, Wanted, differences, merge_patch, undeclared};
use hold::{Found, Hold, Move, Rules, Shown, Writers};
use object::{Object, Snapshot};

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
    /// Fields that are no longer declared, until they have their standby values.
    dropped: Vec<FieldPlan>,
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
    /// Whether the declared fields had their active values, and were not seen with the standby values since.
    may_run: bool,
    /// The UID of the object that was stopped since the last start.
    stopped: Option<String>,
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
            dropped: Vec::new(),
            hold: Hold::default(),
            polled: None,
            awaited: None,
            in_flight: InFlight::default(),
            sent_over: None,
            attempts: Attempts::default(),
            ran: None,
            may_run: false,
            stopped: None,
        }
    }

    pub(super) fn declare(&mut self, work: &TargetWork) {
        let TargetWork::Patch { patch, stop, .. } = work else {
            return;
        };
        self.stop = *stop;
        if self.plan == *patch {
            return;
        }
        let before = std::mem::replace(&mut self.plan, patch.clone());
        if self.may_run || self.in_flight.is_open() {
            self.dropped.extend(before.fields);
        }
        self.dropped = undeclared(std::mem::take(&mut self.dropped), &self.plan.fields);
        (self.hold, self.ran, self.stopped) = (Hold::Open, None, None);
    }

    /// Returns the declared fields, and those that are no longer declared.
    fn all(&self) -> impl Iterator<Item = &FieldPlan> {
        self.plan.fields.iter().chain(&self.dropped)
    }

    fn standby(&self) -> Vec<Wanted<'_>> {
        self.all().map(Wanted::standby).collect()
    }

    fn active(&self) -> Vec<Wanted<'_>> {
        let dropped = self.dropped.iter().map(Wanted::standby);
        self.plan
            .fields
            .iter()
            .map(Wanted::active)
            .chain(dropped)
            .collect()
    }

    /// Finds the object. Each of its fields must be allowed before anything is read or written.
    async fn object(&mut self) -> Result<Arc<Object>, TargetError> {
        let (context, reference) = (&self.context, &self.reference);
        let place = Place::find(&context.client, &context.shared.kinds, reference, Need::Served).await?;
        for field in self.all() {
            let allowed = &context.shared.allowed_fields;
            allowed.check(&place.resource, &field.path)?;
        }
        if let Some(object) = self.object.as_ref().filter(|object| object.is_at(&place)) {
            return Ok(object.clone());
        }
        let object = Object::new(context, reference, place);
        Ok(self.object.insert(Arc::new(object)).clone())
    }

    async fn read(&mut self, object: &Object) -> Result<(Option<Snapshot>, Read), TargetError> {
        let (found, read) = object.read().await?;
        self.polled = Some(read.answered);
        // An unanswered start can apply only to the version in `sent_over`.
        let version = found.as_ref().map(Snapshot::version);
        if version != Some(&self.sent_over) {
            self.in_flight.settle();
        }
        Ok((found, read))
    }

    fn status_of(&self, found: &Snapshot) -> Option<Shown> {
        let annotates = self.all().any(|field| field.path.annotation().is_some());
        status::status_of(&found.value, &self.plan.stopped_when, annotates)
    }

    fn writers_of(&self, found: &Snapshot) -> Writers {
        Writers {
            uid: found.uid(),
            managers: self
                .all()
                .map(|field| writers(found.metadata(), field.path.parts()))
                .collect(),
        }
    }

    /// Decides on an object that was read. Also returns the fields that do not have their standby values.
    fn next(&mut self, found: Option<&Snapshot>, read: Read) -> Result<(Move, Vec<Difference>), Blocked> {
        let (seen, differing) = match found {
            None => (Found::Gone, Vec::new()),
            Some(found) => match differences(&found.value, &self.standby())? {
                differing if differing.is_empty() => {
                    self.may_run = false;
                    let seen = Found::Standby {
                        writers: self.writers_of(found),
                        shown: self.status_of(found),
                    };
                    (seen, differing)
                }
                differing => (Found::Other, differing),
            },
        };
        let rules = Rules {
            stop: self.stop,
            trusts_status: self.plan.trusts_status,
        };
        let doubt = self.in_flight.is_open();
        Ok((self.hold.next(seen, rules, read, doubt), differing))
    }

    pub(super) async fn observe(&mut self) -> Result<TargetState, TargetError> {
        let object = self.object().await?;
        let (found, read) = self.read(&object).await?;
        let state = match self.next(found.as_ref(), read) {
            Ok((Move::Write, _)) | Err(_) => TargetState::Active,
            Ok((Move::Wait(_) | Move::Undated, _)) => TargetState::Changing,
            Ok((Move::Stopped, _)) => TargetState::Standby,
        };
        Ok(state)
    }

    /// Sets the active values, in the cluster that holds the lock.
    pub(super) async fn start(&mut self, permit: &StartPermit) -> Result<Step, TargetError> {
        (self.hold, self.stopped, self.awaited) = (Hold::Open, None, None);
        self.attempts.settle();
        let object = self.object().await?;
        let step = self.try_start(&object, permit).await?;
        Ok(object.followed(step, TargetState::Active))
    }

    async fn try_start(&mut self, object: &Object, permit: &StartPermit) -> Result<Step, TargetError> {
        let (Some(found), _) = self.read(object).await? else {
            return Ok(self.missing());
        };
        let differing = match differences(&found.value, &self.active()) {
            Ok(differing) => differing,
            Err(blocked) => return Ok(self.blocked(&blocked)),
        };
        let this = (permit.token(), found.uid());
        if differing.is_empty() {
            self.ran = Some(this);
            self.runs();
            return Ok(Step::Done);
        }
        if let Some(step) = self.conflict(&found, &differing) {
            return Ok(step);
        }
        let revived = (self.ran.as_ref() == Some(&this)).then(|| self.undone(&found, &differing));
        let step = self.write_start(object, &found, &differing, permit).await?;
        if step != Step::Done {
            return Ok(step);
        }
        self.ran = Some(this);
        Ok(revived.map_or(Step::Done, Step::Contested))
    }

    async fn write_start(
        &mut self,
        object: &Object,
        found: &Snapshot,
        differing: &[Difference],
        permit: &StartPermit,
    ) -> Result<Step, TargetError> {
        let mut change = merge_patch(differing);
        change["metadata"]["resourceVersion"] = json!(found.version());
        if !permit.holds() {
            return Ok(Step::Working(self.state(found)));
        }
        let before = self.in_flight.send();
        self.sent_over.clone_from(found.version());
        let written = object.write(&change, "starting").await;
        let is_done = |write: &Write<Snapshot>| matches!(write, Write::Done(_) | Write::Missing);
        self.in_flight.answered(before, &written, is_done);
        let stored = match written? {
            Write::Done(stored) => stored,
            Write::Missing => return Ok(self.missing()),
            Write::Late => return Ok(Step::Working(self.state(found))),
        };
        match differences(&stored.value, &self.active()) {
            Ok(differing) if differing.is_empty() => {
                self.runs();
                Ok(Step::Done)
            }
            Ok(differing) => Ok(self.not_stored(self.state(&stored), &differing)),
            Err(blocked) => Ok(self.blocked(&blocked)),
        }
    }

    /// Records that all fields have their active values.
    fn runs(&mut self) {
        self.may_run = true;
        self.dropped.clear();
    }

    /// Sets the standby values. Done when the status confirms the stop or, without a status to check, the
    /// stop time is over.
    pub(super) async fn stop(
        &mut self,
        _by: Option<BootInstant>,
        permit: &StopPermit,
    ) -> Result<Step, TargetError> {
        self.ran = None;
        if self.rests() {
            return Ok(Step::Working(TargetState::Changing));
        }
        let object = self.object().await?;
        let step = self.try_stop(&object, permit).await?;
        Ok(object.followed(step, TargetState::Standby))
    }

    async fn try_stop(&mut self, object: &Object, permit: &StopPermit) -> Result<Step, TargetError> {
        for _ in 0..TRIES {
            let (found, read) = self.read(object).await?;
            let (next, differing) = match self.next(found.as_ref(), read) {
                Ok(next) => next,
                Err(blocked) => return Ok(self.blocked(&blocked)),
            };
            if let (Move::Write, Some(found)) = (&next, &found) {
                match self.write_stop(object, found, &differing, permit).await? {
                    Some(step) => return Ok(step),
                    None => continue,
                }
            }
            self.attempts.settle();
            return Ok(self.waits(next));
        }
        Ok(Step::Working(TargetState::Active))
    }

    fn waits(&mut self, next: Move) -> Step {
        self.awaited = None;
        match next {
            Move::Stopped => {
                self.dropped.clear();
                Step::Done
            }
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
        let again = self.stopped.is_some() && self.stopped == found.uid();
        if !permit.holds(permit::Found::of(again)) {
            self.attempts.settle();
            return Ok(Some(Step::Working(TargetState::Active)));
        }
        let mut change = merge_patch(differing);
        self.attempts.send().require(&mut change, found.metadata());
        let stored = match object.write(&change, "stopping").await? {
            Write::Done(stored) => stored,
            Write::Missing | Write::Late => return Ok(None),
        };
        // An unanswered start was for an earlier version.
        self.in_flight.settle();
        self.attempts.settle();
        let differing_now = match differences(&stored.value, &self.standby()) {
            Ok(differing) => differing,
            Err(blocked) => return Ok(Some(self.blocked(&blocked))),
        };
        if !differing_now.is_empty() {
            return Ok(Some(self.not_stored(TargetState::Active, &differing_now)));
        }
        let (writers, before) = (self.writers_of(&stored), self.status_of(found));
        self.hold.written(writers, before.as_ref(), clock::now());
        self.stopped = found.uid();
        Ok(Some(if again {
            Step::Contested(self.undone(found, differing))
        } else {
            Step::Working(TargetState::Changing)
        }))
    }

    /// Reports whether a stop has nothing to do yet: no status can end the wait, and the object was read just now.
    fn rests(&self) -> bool {
        let now = clock::now();
        let early = self.hold.ends(self.stop).is_some_and(|end| now < end);
        let fresh = self.polled.is_some_and(|polled| now.since(polled) < POLL);
        self.plan.stopped_when.is_empty() && early && fresh
    }

    /// Returns the state of an object that a start found.
    fn state(&self, found: &Snapshot) -> TargetState {
        match differences(&found.value, &self.standby()) {
            Ok(differing) if differing.is_empty() => TargetState::Standby,
            Ok(_) | Err(_) => TargetState::Changing,
        }
    }

    pub(super) fn late(&self) -> Option<String> {
        let why = self.awaited.as_ref()?;
        Some(format!("{}: {why}", self.called))
    }

    pub(super) fn changes(&self) -> Changes {
        changes_of(&self.context, &self.reference, Need::Served)
    }
}
