//! Scale: the replicas of anything with a scale subresource, and of that subresource only.
//!
//! A start raises what asks for `standbyReplicas` or fewer to `activeReplicas`. Above that it runs: another number is
//! left to whoever wrote it, such as a HorizontalPodAutoscaler or somebody with `kubectl scale`; only its own number, or
//! a default, follows the lock. A stop is done when the pods are gone, not when the number is written.

mod stop;
mod subresource;

use std::sync::Arc;

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use tokio::time;

use super::{Action, Changes, Leave, Pause, Site, Step, TargetError, in_flight::InFlight};
use crate::{
    api::{lock_status::TargetState, plan::TargetWork, target::TargetRef},
    lease::{FencingToken, Moment},
};
use stop::Stopping;
use subresource::{Object, Owner, Sight, Write};

pub(super) struct Scale {
    site: Site,
    reference: TargetRef,
    active: i32,
    standby: i32,
    /// Found once.
    object: Option<Arc<Object>>,
    in_flight: InFlight,
    /// What the last start was written over; it cannot come true of another version.
    sent_over: Option<String>,
    /// What it became by the last start.
    started: Option<String>,
    /// It was last found to run, or started.
    runs: bool,
    /// Under which lease it ran, and which object that was.
    ran: Option<(FencingToken, Option<String>)>,
    /// How often it was started again since.
    revived: u32,
    /// What `activeReplicas` was before.
    before: Option<i32>,
    stopping: Stopping,
    /// Of its pods, as it was last seen.
    selector: Option<String>,
    /// Whose number it was said to be.
    left_to: Option<String>,
}

impl Scale {
    pub(super) fn new(site: Site, reference: &TargetRef, (active, standby): (i32, i32)) -> Self {
        Self {
            site,
            reference: reference.clone(),
            active,
            standby,
            object: None,
            in_flight: InFlight::default(),
            sent_over: None,
            started: None,
            runs: false,
            ran: None,
            revived: 0,
            before: None,
            stopping: Stopping::default(),
            selector: None,
            left_to: None,
        }
    }

    async fn object(&mut self) -> Result<Arc<Object>, TargetError> {
        if let Some(object) = &self.object {
            return Ok(object.clone());
        }
        let object = find(&self.site, &self.reference).await?;
        Ok(self.object.insert(Arc::new(object)).clone())
    }

    fn state(&self, sight: Option<&Sight>) -> TargetState {
        match sight {
            None => TargetState::Standby,
            Some(sight) if sight.wanted > self.standby => TargetState::Active,
            Some(sight) if sight.counted <= self.standby => TargetState::Standby,
            Some(_) => TargetState::Changing,
        }
    }

    /// A start that was not answered is over when the object is another than the one that it was for.
    fn heed(&mut self, sight: Option<&Sight>) {
        if sight.is_none_or(|sight| sight.version != self.sent_over) {
            self.in_flight.settle();
        }
    }

    async fn try_start(&mut self, object: &Object, leave: &Leave) -> Result<Step, TargetError> {
        let missing = || {
            let text = format!(
                "{} does not exist; it is started as soon as it does",
                object.called()
            );
            Step::trouble(TargetState::Standby, "TargetNotFound", text)
        };
        self.stopping = Stopping::default();
        self.runs = true;
        let sight = object.look().await?;
        self.heed(sight.as_ref());
        let Some(sight) = sight else {
            return Ok(missing());
        };
        self.selector.clone_from(&sight.selector);
        let this = (leave.token(), sight.uid.clone());
        if sight.wanted == self.active {
            self.ran = Some(this);
            return Ok(Step::Done);
        }
        let owner = object.owner(&sight).await?;
        if owner == Owner::Late {
            return Ok(Step::Working(self.state(Some(&sight))));
        }
        if sight.wanted > self.standby {
            self.ran = Some(this.clone());
            // Of whom nothing is known, the number may be what the lock asked for before.
            let ours = owner == Owner::Ours || self.before == Some(sight.wanted);
            if let Owner::Other(owner) = owner {
                self.leave_to(object, sight.wanted, owner);
                return Ok(Step::Done);
            }
            if !ours {
                return Ok(Step::Done);
            }
        } else if let Owner::Other(owner) = owner {
            let text = conflict(object, sight.wanted, &owner, self.active);
            return Ok(Step::trouble(TargetState::Standby, "EnforcementConflict", text));
        } else if self.ran.as_ref() == Some(&this) {
            // It may have been a replica of this operator that cannot see the masters, and takes this one for dead.
            if self.revived >= REVIVED {
                let text = conflict(object, sight.wanted, BY_HAND, self.active);
                return Ok(Step::trouble(TargetState::Standby, "EnforcementConflict", text));
            }
        } else {
            self.revived = 0;
        }
        let before = self.in_flight.send();
        self.sent_over.clone_from(&sight.version);
        let written = object.start(self.active, &sight, leave).await;
        self.in_flight.answered(before, &written, |write| {
            matches!(write, Write::Done(_) | Write::Missing)
        });
        Ok(match written? {
            Write::Done(version) => {
                if sight.wanted <= self.standby && self.ran.as_ref() == Some(&this) {
                    self.tell_revived(object, sight.wanted);
                }
                (self.started, self.ran) = (version, Some(this));
                Step::Done
            }
            Write::Missing => missing(),
            Write::Late => Step::Working(self.state(Some(&sight))),
        })
    }

    fn tell_revived(&mut self, object: &Object, replicas: i32) {
        self.revived += 1;
        let text = format!(
            "{} was scaled to {replicas} by {BY_HAND}, while it is to run here; started again",
            object.called()
        );
        self.site.warn("StartedAgain", text);
    }

    /// Says once that a number is somebody else's: an edited `activeReplicas` does nothing meanwhile.
    fn leave_to(&mut self, object: &Object, replicas: i32, owner: String) {
        // An autoscaler changes it all the time, and nobody wonders.
        if owner != AUTOSCALER && self.left_to.as_ref() != Some(&owner) {
            let text = format!(
                "{} has {replicas} replicas by {owner:?}: left as they are; activeReplicas {} is for the next start",
                object.called(),
                self.active
            );
            self.site.note("ReplicasLeft", text);
        }
        self.left_to = Some(owner);
    }
}

/// How often under one lease what somebody scaled down is started again.
const REVIVED: u32 = 5;

/// The field manager of a HorizontalPodAutoscaler.
const AUTOSCALER: &str = "kube-controller-manager";

/// Who is not known: see [`Owner`].
const BY_HAND: &str = "somebody, by /scale, as kubectl scale does";

/// The line to change.
fn conflict(object: &Object, wanted: i32, owner: &str, active: i32) -> String {
    let name = owner.to_lowercase();
    let what = if owner == BY_HAND || name == "kubectl" {
        "to keep it off on purpose, annotate the lock with redlock.dev/paused, or set its state: SteppedDown"
    } else if name.contains("argocd") {
        "list /spec/replicas in the Application's ignoreDifferences with RespectIgnoreDifferences=true, \
         or take the line `replicas:` out of the manifest"
    } else {
        "take the line `replicas:` out of the manifest that it applies"
    };
    format!(
        "{} is kept at {wanted} replicas by {owner}, and a start takes spec.replicas from nobody: {what}; \
         it goes on with: kubectl scale --replicas={active}",
        object.called()
    )
}

impl Action for Scale {
    fn declare(&mut self, work: &TargetWork) {
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

    fn runs_untouched(&self) -> bool {
        let known = self.object.as_ref().and_then(|object| object.followed().known());
        self.started.is_some() && known.is_some_and(|known| known.version == self.started)
    }

    fn look(&mut self) -> BoxFuture<'_, Result<TargetState, TargetError>> {
        async {
            let sight = self.object().await?.look().await?;
            Ok(self.state(sight.as_ref()))
        }
        .boxed()
    }

    fn start<'a>(&'a mut self, leave: &'a Leave) -> BoxFuture<'a, Result<Step, TargetError>> {
        async {
            let object = self.object().await?;
            let step = self.try_start(&object, leave).await;
            followed(&object, step, TargetState::Active)
        }
        .boxed()
    }

    fn stop(&mut self, by: Option<Moment>) -> BoxFuture<'_, Result<Step, TargetError>> {
        async move {
            // What this stops, nobody else did.
            (self.started, self.ran) = (None, None);
            let object = match self.object().await {
                // What no API server knows does not run; but it cannot be started here either.
                Err(error @ TargetError::UnknownKind { .. }) => {
                    return Ok(Step::trouble(
                        TargetState::Standby,
                        error.reason(),
                        error.to_string(),
                    ));
                }
                found => found?,
            };
            let step = self.try_stop(&object, by).await;
            followed(&object, step, TargetState::Standby)
        }
        .boxed()
    }

    fn ready(&mut self) -> BoxFuture<'_, Result<Option<bool>, TargetError>> {
        async {
            let object = self.object().await?;
            let selector = object.look().await?.and_then(|sight| sight.selector);
            match selector {
                Some(selector) => object.pods().any_ready(&selector).await.map(Some),
                None => Ok(None),
            }
        }
        .boxed()
    }

    fn changes(&self) -> Changes {
        let (site, reference) = (self.site.clone(), self.reference.clone());
        let found = stream::once(async move {
            let mut pause = Pause::default();
            loop {
                if let Ok(object) = find(&site, &reference).await {
                    return object.followed().clone();
                }
                time::sleep(pause.next().unwrap_or_default()).await;
            }
        });
        let events = found.flat_map(|followed| {
            // That it was found is the first: it may have taken until somebody defined the kind.
            let changes = stream::unfold(followed, |mut followed| async {
                followed.changed().await;
                Some(((), followed))
            });
            stream::once(async {}).chain(changes)
        });
        events.boxed()
    }
}

/// What cannot be followed is switched nevertheless, but somebody's hand would be noticed late.
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

async fn find(site: &Site, reference: &TargetRef) -> Result<Object, TargetError> {
    let resource = site.shared.kinds.scaled(&site.client, reference).await?;
    Ok(Object::new(
        &site.client,
        &site.shared,
        &site.namespace,
        reference,
        resource,
    ))
}
