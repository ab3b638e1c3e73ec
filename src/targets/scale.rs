//! Scale: sets the replicas of any object with a scale subresource, through that subresource only.
//!
//! A start raises an object that asks for `standbyReplicas` or fewer to `activeReplicas`. An object with more
//! replicas runs already, and a number that another manager set, such as a HorizontalPodAutoscaler or
//! `kubectl scale`, stays. Only the operator's own number, or a default, follows the lock. A stop is done
//! when the pods are gone, not when the number is written.

mod remains;
mod start_number;
mod stop;
mod subresource;

use std::sync::Arc;

use super::{
    Changes, ConditionReason, EventReason, StartPermit, Step, StopPermit, TargetContext, TargetError,
    fencing::{not_fenced, unfenced, unfenced_template},
    following::changes_of,
    in_flight::InFlight,
    kind::Need,
    owner::named,
    read::Place,
    shared::Followed,
};
use crate::{
    api::{lock_status::TargetState, plan::TargetWork, target::TargetRef},
    lease::{BootInstant, FencingToken},
};
use remains::ReplacedPods;
#[cfg(test)]
pub(crate) use remains::plant_forgotten_orphans;
use start_number::{Numbers, StartMove, start_move};
use stop::Stopping;
use subresource::{Object, Snapshot, Write};

/// The lease under which an object ran, and the UID of the object.
type Run = (FencingToken, Option<String>);

pub(super) struct Scale {
    context: TargetContext,
    reference: TargetRef,
    active: i32,
    standby: i32,
    /// The object in the version of its kind that is served now.
    object: Option<Arc<Object>>,
    in_flight: InFlight,
    /// The version that the last start was for. The API server applies the start to no other version.
    sent_over: Option<String>,
    /// The version that resulted from the last start.
    started: Option<String>,
    /// Whether the object was last found running, or was started.
    runs: bool,
    /// The last run: its lease, and the UID of the object.
    ran: Option<Run>,
    /// The earlier value of `activeReplicas`.
    before: Option<i32>,
    /// The number that the last start wrote, and the UID of the object.
    written: Option<(i32, Option<String>)>,
    stopping: Stopping,
    /// The selector of its pods, as it was last read.
    selector: Option<String>,
    /// Pods that a controller replaces although the object is missing.
    replaced: Option<ReplacedPods>,
    /// The manager that was reported as the owner of the number.
    left_to: Option<String>,
}

impl Scale {
    pub(super) fn new(context: TargetContext, reference: &TargetRef, active: i32, standby: i32) -> Self {
        Self {
            context,
            reference: reference.clone(),
            active,
            standby,
            object: None,
            in_flight: InFlight::default(),
            sent_over: None,
            started: None,
            runs: false,
            ran: None,
            before: None,
            written: None,
            stopping: Stopping::default(),
            selector: None,
            replaced: None,
            left_to: None,
        }
    }

    async fn object(&mut self) -> Result<Arc<Object>, TargetError> {
        let place = place(&self.context, &self.reference).await?;
        if let Some(object) = self.object.as_ref().filter(|object| object.is_at(&place)) {
            return Ok(object.clone());
        }
        // The kind is served in another version; the knowledge about the object stays valid.
        let object = Object::new(&self.context, &self.reference, place);
        Ok(self.object.insert(Arc::new(object)).clone())
    }

    const fn state(&self, snapshot: &Snapshot) -> TargetState {
        if snapshot.wanted > self.standby {
            TargetState::Active
        } else if snapshot.counted <= self.standby {
            TargetState::Standby
        } else {
            TargetState::Changing
        }
    }

    /// Remembers how the pods of the object are found once it is missing.
    fn find(&mut self, snapshot: &Snapshot) {
        self.selector.clone_from(&snapshot.selector);
        self.replaced = None;
    }

    /// Settles an unanswered start once the object has a version other than the one that the start was for.
    fn settle_start(&mut self, snapshot: Option<&Snapshot>) {
        if snapshot.is_none_or(|snapshot| snapshot.version != self.sent_over) {
            self.in_flight.settle();
        }
    }

    async fn try_start(&mut self, object: &Object, permit: &StartPermit) -> Result<Step, TargetError> {
        self.stopping = Stopping::default();
        self.runs = true;
        let snapshot = object.read().await?;
        self.settle_start(snapshot.as_ref());
        let Some(snapshot) = snapshot else {
            return self.start_missing(object).await;
        };
        self.find(&snapshot);
        if let Some(text) = object.scaling_deletes().await? {
            let state = self.state(&snapshot);
            return Ok(Step::trouble(state, ConditionReason::TargetNotSafe, text));
        }
        if let Some(step) = self.not_fenced(object, &snapshot).await? {
            return Ok(step);
        }
        let this = (permit.token(), snapshot.uid.clone());
        if snapshot.wanted == self.active {
            self.ran = Some(this);
            return Ok(Step::Done);
        }
        let numbers = self.numbers(&snapshot);
        match start_move(numbers, object.owner(&snapshot).await?) {
            StartMove::Write => {}
            StartMove::ReadAgain => return Ok(Step::Working(self.state(&snapshot))),
            StartMove::Keep => {
                self.ran = Some(this);
                return Ok(Step::Done);
            }
            StartMove::LeaveTo(owner) => {
                self.ran = Some(this);
                self.leave_to(object, snapshot.wanted, owner);
                return Ok(Step::Done);
            }
            StartMove::Conflict(owner) => {
                let text = conflict(object, snapshot.wanted, &owner, self.active);
                let reason = ConditionReason::EnforcementConflict;
                return Ok(Step::trouble(TargetState::Standby, reason, text));
            }
        }
        self.write_start(object, &snapshot, this, permit).await
    }

    fn numbers(&self, snapshot: &Snapshot) -> Numbers {
        let written = self.written.as_ref();
        let written = written.filter(|(_, uid)| *uid == snapshot.uid);
        Numbers {
            wanted: snapshot.wanted,
            active: self.active,
            standby: self.standby,
            before: self.before,
            written: written.map(|(number, _)| *number),
        }
    }

    async fn not_fenced(&self, object: &Object, snapshot: &Snapshot) -> Result<Option<Step>, TargetError> {
        let names = (&*self.reference.name, object.called());
        not_fenced(&self.context, object.place(), names, self.state(snapshot)).await
    }

    /// Writes `activeReplicas` over a standby number, or over an earlier number of this lock.
    async fn write_start(
        &mut self,
        object: &Object,
        snapshot: &Snapshot,
        this: Run,
        permit: &StartPermit,
    ) -> Result<Step, TargetError> {
        let before = self.in_flight.send();
        self.sent_over.clone_from(&snapshot.version);
        let written = object.start(self.active, snapshot, permit).await;
        self.in_flight.answered(before, &written, |write| {
            matches!(write, Write::Done(_) | Write::Missing)
        });
        Ok(match written? {
            Write::Done(version) => {
                let revived = snapshot.wanted <= self.standby && self.ran.as_ref() == Some(&this);
                self.written = Some((self.active, snapshot.uid.clone()));
                (self.started, self.ran) = (version, Some(this));
                if revived {
                    Step::Contested(format!(
                        "{} was scaled to {} by {BY_HAND}",
                        object.called(),
                        snapshot.wanted
                    ))
                } else {
                    Step::Done
                }
            }
            // The next read decides whether pods are left.
            Write::Missing => Step::Working(TargetState::Changing),
            Write::Late => Step::Working(self.state(snapshot)),
        })
    }

    /// Reports once for each owner that the number belongs to another manager: an edited `activeReplicas` has no effect
    /// then.
    fn leave_to(&mut self, object: &Object, replicas: i32, owner: String) {
        // An autoscaler changes the number all the time, and readers of the events expect that.
        if owner != AUTOSCALER && self.left_to.as_ref() != Some(&owner) {
            let text = format!(
                "{} has {replicas} replicas, set by {owner:?}: the operator does not change them; activeReplicas {} \
                 applies to the next start",
                object.called(),
                self.active
            );
            self.context.emit(EventReason::ReplicasLeft, text);
        }
        self.left_to = Some(owner);
    }
}

/// The field manager of a HorizontalPodAutoscaler.
const AUTOSCALER: &str = "kube-controller-manager";

/// The name of an unknown writer in messages: see [`Owner`].
const BY_HAND: &str = "a client of the scale subresource, such as kubectl scale";

/// Reports that there is nothing to start, with a note on its pods.
fn missing(object: &Object, state: TargetState, left: &str) -> Step {
    let text = format!(
        "{} does not exist; the operator starts it as soon as it does{left}",
        object.called()
    );
    Step::trouble(state, ConditionReason::TargetNotFound, text)
}

/// Describes the conflict, and the line to change.
fn conflict(object: &Object, wanted: i32, owner: &str, active: i32) -> String {
    let name = owner.to_lowercase();
    let what = if name == "kubectl" {
        "to keep the target stopped on purpose, annotate the lock with redlock.dev/paused, or set its state: \
         SteppedDown"
    } else if name.starts_with("keda") {
        "KEDA scales from and to zero by itself: remove this object from the targets, or scale it by a \
         HorizontalPodAutoscaler, which does not change zero"
    } else if name.contains("argocd") {
        "list /spec/replicas in the Application's ignoreDifferences with RespectIgnoreDifferences=true, or remove \
         the line `replicas:` from the manifest"
    } else {
        "remove the line `replicas:` from the manifest that it applies"
    };
    let owner = if owner == BY_HAND {
        owner.to_owned()
    } else {
        named(owner)
    };
    format!(
        "{} is kept at {wanted} replicas by {owner}, and a start does not take spec.replicas from another manager: {what}; \
         to continue: kubectl scale --replicas={active}",
        object.called()
    )
}

impl Scale {
    pub(super) fn declare(&mut self, work: &TargetWork) {
        if let TargetWork::Scale {
            active_replicas,
            standby_replicas,
            ..
        } = work
        {
            if self.active != *active_replicas {
                self.before = Some(self.active);
            }
            (self.active, self.standby) = (*active_replicas, *standby_replicas);
            (self.started, self.stopping.confirmed) = (None, None);
        }
    }

    pub(super) fn runs_untouched(&self) -> bool {
        let followed = self.object.as_ref().map(|object| object.followed());
        let followed = followed.filter(|followed| followed.trouble().is_none());
        let known = followed.and_then(Followed::known);
        self.started.is_some() && known.is_some_and(|known| known.version == self.started)
    }

    pub(super) async fn observe(&mut self) -> Result<TargetState, TargetError> {
        let object = self.object().await?;
        match object.read().await? {
            Some(snapshot) => Ok(self.state(&snapshot)),
            None => self.observe_missing(&object).await,
        }
    }

    pub(super) async fn start(&mut self, permit: &StartPermit) -> Result<Step, TargetError> {
        let object = self.object().await?;
        let step = self.try_start(&object, permit).await;
        followed(&object, step, TargetState::Active)
    }

    pub(super) async fn stop(
        &mut self,
        by: Option<BootInstant>,
        permit: &StopPermit,
    ) -> Result<Step, TargetError> {
        // The next start follows this stop, so it is not contested by another writer.
        (self.started, self.ran) = (None, None);
        let object = self.object().await?;
        let step = self.try_stop(&object, by, permit).await;
        followed(&object, step, TargetState::Standby)
    }

    /// Returns the pods that a late stop waits for; `None` if it waits for the controller of the object.
    pub(super) fn late(&self) -> Option<String> {
        let pods = self.object.as_ref().filter(|_| !self.stopping.unobserved)?.pods();
        pods.late()
    }

    /// Reports whether a pod of the object is ready; `None` if the object is missing or has no selector.
    pub(super) async fn ready(&mut self) -> Result<Option<bool>, TargetError> {
        let object = self.object().await?;
        let selector = object.read().await?.and_then(|snapshot| snapshot.selector);
        match selector {
            Some(selector) => object.pods().any_ready(&selector).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns a running pod that is not fenced, or the template if the next pods from it would not be
    /// fenced.
    pub(super) async fn unfenced(&mut self) -> Result<Option<String>, TargetError> {
        let object = self.object().await?;
        let Some(snapshot) = object.read().await? else {
            return self.unfenced_of_missing(&object).await;
        };
        let names = (&*self.reference.name, object.called());
        let runs = snapshot.wanted > self.standby;
        let template = unfenced_template(&self.context, object.place(), names, |_| runs).await?;
        if template.is_some() {
            return Ok(template);
        }
        self.find(&snapshot);
        match &self.selector {
            Some(selector) => unfenced(&self.context, (selector, object.called()), |_| true).await,
            None => Ok(None),
        }
    }

    pub(super) fn changes(&self) -> Changes {
        changes_of(&self.context, &self.reference, Need::Scale)
    }
}

/// Reports an object that cannot be watched as trouble. The object is switched nevertheless, but a write by
/// another writer is noticed late.
fn followed(
    object: &Object,
    step: Result<Step, TargetError>,
    goal: TargetState,
) -> Result<Step, TargetError> {
    match (
        step.map_err(|error| error.granting(|| object.rule()))?,
        object.followed().trouble(),
    ) {
        (Step::Done, Some(error)) => {
            let error = error.granting(|| object.rule());
            Ok(Step::trouble(goal, error.reason(), error.to_string()))
        }
        (step, _) => Ok(step),
    }
}

async fn place(context: &TargetContext, reference: &TargetRef) -> Result<Place, TargetError> {
    Place::find(&context.client, &context.shared.kinds, reference, Need::Scale).await
}

#[cfg(test)]
mod tests;
