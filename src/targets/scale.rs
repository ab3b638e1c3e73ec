//! Scale: the replicas of anything with a scale subresource, and of that subresource only.
//!
//! A start raises what asks for `standbyReplicas` or fewer to `activeReplicas`. Above that it runs: another number is
//! left to whoever wrote it, such as a HorizontalPodAutoscaler or somebody with `kubectl scale`; only its own number
//! follows the lock. A stop is done when the pods are gone, not when the number is written.

mod subresource;

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use tokio::time;

use super::{Action, Changes, Leave, Pause, Site, Step, TargetError, in_flight::InFlight};
use crate::{
    api::{lock_status::TargetState, plan::TargetWork, target::TargetRef},
    clock,
    lease::Moment,
};
use subresource::{Object, Owner, Sight, Write};

/// After the number was written: a controller that acts on what it saw before may still make a pod.
const SETTLE: Duration = Duration::from_millis(500);

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
    stopping: Stopping,
    /// Whose number it was said to be.
    left_to: Option<String>,
}

/// What was done of a stop since the last start.
#[derive(Default)]
struct Stopping {
    /// When the number was written, and of which object.
    written: Option<(Moment, Option<String>)>,
    /// All of it was gone, of this object.
    confirmed: Option<Option<String>>,
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
            stopping: Stopping::default(),
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
        let runs = sight.wanted > self.standby;
        if sight.wanted == self.active {
            return Ok(Step::Done);
        }
        match object.owner(&sight).await? {
            Owner::Other(owner) if runs => {
                self.leave_to(object, sight.wanted, owner);
                return Ok(Step::Done);
            }
            Owner::Other(owner) => {
                let text = conflict(object, sight.wanted, &owner, self.active);
                return Ok(Step::trouble(TargetState::Standby, "EnforcementConflict", text));
            }
            Owner::Late => return Ok(Step::Working(self.state(Some(&sight)))),
            Owner::Nobody => {}
        }
        let before = self.in_flight.send();
        self.sent_over.clone_from(&sight.version);
        let written = object.start(self.active, &sight, leave).await;
        self.in_flight.answered(before, &written, |write| {
            matches!(write, Write::Done(_) | Write::Missing)
        });
        Ok(match written? {
            Write::Done(version) => {
                self.started = version;
                Step::Done
            }
            Write::Missing => missing(),
            Write::Late => Step::Working(self.state(Some(&sight))),
        })
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

    async fn try_stop(&mut self, object: &Object, by: Option<Moment>) -> Result<Step, TargetError> {
        // Asked before anything is counted: what was counted before it was heeded may be less than what comes. What is
        // known to run is stopped first.
        let confirmed = self.stopping.confirmed.clone();
        let heeded = confirmed.is_none() && !self.runs && object.is_heeded().await?;
        let sight = object.look().await?;
        self.heed(sight.as_ref());
        // A missing target counts as stopped.
        let Some(sight) = sight else {
            self.stopping = Stopping::default();
            return Ok(Step::Done);
        };
        if sight.wanted > self.standby {
            return self.write_stop(object, &sight).await;
        }
        self.runs = false;
        // What was gone stays so while nobody writes.
        let gone = confirmed.as_ref() == Some(&sight.uid);
        self.stopping.confirmed = confirmed.filter(|_| gone);
        let left = match &sight.selector {
            Some(selector) => object.pods().left(selector).await?,
            None => Vec::new(),
        };
        let keep = usize::try_from(self.standby).unwrap_or(0);
        let recent = |(at, _): &(Moment, _)| clock::now().since(*at) < SETTLE;
        let settled = gone || (heeded && !self.stopping.written.as_ref().is_some_and(recent));
        if settled && sight.counted <= self.standby && left.len() <= keep && !self.in_flight.is_open() {
            self.stopping.confirmed = Some(sight.uid);
            return Ok(Step::Done);
        }
        let left: Vec<_> = left
            .into_iter()
            .filter(|pod| keep == 0 || pod.is_going())
            .collect();
        object.pods().hurry(&left, by, heeded).await?;
        Ok(Step::Working(TargetState::Changing))
    }

    async fn write_stop(&mut self, object: &Object, sight: &Sight) -> Result<Step, TargetError> {
        let of_it = |uid: &Option<String>| *uid == sight.uid;
        let written = self.stopping.written.as_ref().map(|(_, uid)| uid);
        let again = written.is_some_and(of_it) || self.stopping.confirmed.as_ref().is_some_and(of_it);
        // Before it is overwritten.
        let writer = object.followed().known().and_then(|known| known.writer);
        if object.stop(self.standby).await? == Write::Missing {
            return Ok(Step::Done);
        }
        self.stopping.written = Some((clock::now(), sight.uid.clone()));
        self.stopping.confirmed = None;
        self.runs = false;
        if !again {
            return Ok(Step::Working(TargetState::Changing));
        }
        let writer = writer.map_or_else(|| "somebody".to_owned(), |writer| format!("{writer:?}"));
        Ok(Step::Contested(format!(
            "{} was scaled to {} by {writer}",
            object.called(),
            sight.wanted
        )))
    }
}

/// The field manager of a HorizontalPodAutoscaler.
const AUTOSCALER: &str = "kube-controller-manager";

/// The line to change.
fn conflict(object: &Object, wanted: i32, owner: &str, active: i32) -> String {
    let name = owner.to_lowercase();
    let what = if name.contains("argocd") {
        "list /spec/replicas in the Application's ignoreDifferences with RespectIgnoreDifferences=true, \
         or take the line `replicas:` out of the manifest"
    } else if name == "kubectl" {
        "it was scaled by hand"
    } else {
        "take the line `replicas:` out of the manifest that it applies"
    };
    format!(
        "{} is kept at {wanted} replicas by {owner:?}, and a start does not take spec.replicas from anybody: {what}; \
         or start it yourself this once: kubectl scale --replicas={active}",
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
            self.started = None;
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

    fn changes(&self) -> Changes {
        let (site, reference) = (self.site.clone(), self.reference.clone());
        let found = stream::once(async move {
            let mut pause = Pause::default();
            loop {
                if let Ok(object) = find(&site, &reference).await {
                    return object.followed().clone();
                }
                time::sleep(pause.next().unwrap_or(SETTLE)).await;
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
