//! Stops a scaled object: the stop is done when the pods are gone, not when the number is written.

use std::time::Duration;

use super::{
    BY_HAND, Scale,
    subresource::{Object, Snapshot, Write},
};
use crate::{
    api::lock_status::TargetState,
    clock,
    lease::BootInstant,
    targets::{ConditionReason, Found, Step, StopPermit, TargetError, attempts::Attempts, owner::named},
};

/// The wait after the write of the number: a controller that acts on an earlier state may still create a pod.
pub(super) const SETTLE: Duration = Duration::from_millis(500);
/// The maximum number of attempts in one step: the controller may write to the object between a read and a
/// write.
const TRIES: usize = 8;

/// The progress of a stop since the last start.
#[derive(Default)]
pub(super) struct Stopping {
    /// The time of the write of the number, and the UID of the object.
    pub(super) written: Option<(BootInstant, Option<String>)>,
    /// The UID of the object whose pods were confirmed gone.
    pub(super) confirmed: Option<Option<String>>,
    /// Whether the controller of the object had not seen the number at the last step: it may create the pods again.
    pub(super) unobserved: bool,
    attempts: Attempts,
}

impl Scale {
    pub(super) async fn try_stop(
        &mut self,
        object: &Object,
        by: Option<BootInstant>,
        permit: &StopPermit,
    ) -> Result<Step, TargetError> {
        // The generation is read before the pods are counted: until the controller has seen the number, it
        // may add pods to the counted ones. An object that is known to run is stopped first, without this
        // read.
        let confirmed = self.stopping.confirmed.clone();
        let observed = confirmed.is_none() && !self.runs && object.is_observed().await?;
        let mut tries = 0;
        let snapshot = loop {
            let snapshot = object.read().await?;
            self.settle_start(snapshot.as_ref());
            let Some(snapshot) = snapshot else {
                self.stopping = Stopping::default();
                return self.stop_missing(object, by, permit).await;
            };
            self.find(&snapshot);
            if snapshot.wanted <= self.standby {
                break snapshot;
            }
            tries += 1;
            match self.write_stop(object, &snapshot, permit).await? {
                Some(step) => return Ok(step),
                None if tries < TRIES => {}
                None => return Ok(Step::Working(TargetState::Changing)),
            }
        };
        self.runs = false;
        self.stopping.attempts.settle();
        // A confirmed object stays confirmed while its number is not raised.
        let gone = confirmed.as_ref() == Some(&snapshot.uid);
        self.stopping.confirmed = confirmed.filter(|_| gone);
        self.stopping.unobserved = !gone && !observed;
        let left = match &snapshot.selector {
            Some(selector) => object.pods().left(selector).await?,
            None => Vec::new(),
        };
        let keep = usize::try_from(self.standby).unwrap_or(0);
        let recent = |(at, _): &(BootInstant, _)| clock::now().since(*at) < SETTLE;
        let settled = gone || (observed && !self.stopping.written.as_ref().is_some_and(recent));
        if settled && snapshot.counted <= self.standby && left.len() <= keep && !self.in_flight.is_open() {
            self.stopping.confirmed = Some(snapshot.uid);
            return Ok(Step::Done);
        }
        let left: Vec<_> = left
            .into_iter()
            .filter(|pod| keep == 0 || pod.is_terminating())
            .collect();
        object.pods().hurry(&left, by, permit).await?;
        Ok(Step::Working(TargetState::Changing))
    }

    /// Writes the number. Returns `None` if the object has changed since it was read.
    async fn write_stop(
        &mut self,
        object: &Object,
        snapshot: &Snapshot,
        permit: &StopPermit,
    ) -> Result<Option<Step>, TargetError> {
        let of_it = |uid: &Option<String>| *uid == snapshot.uid;
        let written = self.stopping.written.as_ref().map(|(_, uid)| uid);
        let again = written.is_some_and(of_it) || self.stopping.confirmed.as_ref().is_some_and(of_it);
        let writer = if again {
            object.writer(snapshot).await
        } else {
            None
        };
        // A start does not bring back what this write deletes.
        if let Some(text) = object.scaling_deletes().await? {
            self.stopping.attempts.settle();
            let reason = ConditionReason::TargetNotSafe;
            return Ok(Some(Step::trouble(TargetState::Active, reason, text)));
        }
        if !permit.holds(Found::of(again)) {
            self.stopping.attempts.settle();
            return Ok(Some(Step::Working(self.state(snapshot))));
        }
        let precondition = self.stopping.attempts.send();
        match object.stop(self.standby, snapshot, precondition).await? {
            Write::Done(_) => self.stopping.attempts.settle(),
            Write::Missing => return Ok(Some(Step::Working(TargetState::Changing))),
            Write::Late => return Ok(None),
        }
        self.stopping.written = Some((clock::now(), snapshot.uid.clone()));
        self.stopping.confirmed = None;
        self.runs = false;
        if !again {
            return Ok(Some(Step::Working(TargetState::Changing)));
        }
        let writer = writer.map_or_else(|| BY_HAND.to_owned(), |writer| named(&writer));
        Ok(Some(Step::Contested(format!(
            "{} was scaled to {} by {writer}",
            object.called(),
            snapshot.wanted
        ))))
    }
}
