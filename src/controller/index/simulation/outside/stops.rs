//! Keeps the requests to stop of a target task, as the task does, and the requesters that wait for an answer.

use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::{
    controller::{
        index::{AfterStop, drain::Purpose},
        target_task::{LeaseView, StopRequest, StopRequests},
    },
    lease::{BootInstant, FencingToken},
};

#[derive(Debug, Default)]
pub(in crate::controller::index::simulation) struct Stops {
    requests: StopRequests,
    waiting: Vec<(AfterStop, oneshot::Receiver<bool>)>,
}

impl Stops {
    pub(super) fn add(&mut self, request: StopRequest, after: AfterStop) {
        let (done, end) = oneshot::channel();
        self.requests.add(request, None, done);
        self.waiting.push((after, end));
    }

    pub(super) fn is_requested(&self) -> bool {
        self.requests.by().is_some()
    }

    pub(super) fn expire(&mut self, held: Option<FencingToken>, now: BootInstant) {
        self.requests.expire(&LeaseView::own(held, now), now);
    }

    pub(super) fn refuse(&mut self) {
        self.requests.refuse();
    }

    pub(super) fn lift(&mut self) {
        self.requests.lift();
    }

    pub(super) fn cancel(&mut self) {
        self.requests.cancel();
    }

    /// Records that everything is stopped. An end that is not confirmed is not recorded, and can be revoked.
    pub(super) fn finish(&mut self, clean: bool) {
        if clean {
            self.requests.begin_answer();
        }
        self.requests.answer(clean);
    }

    /// Ends the task.
    pub(super) fn end(&mut self) {
        self.requests = StopRequests::default();
    }

    /// Returns the drains that wait for the stop.
    pub(in crate::controller::index::simulation) fn drains(&self) -> impl Iterator<Item = &Purpose> {
        self.waiting.iter().filter_map(|(after, _)| match after {
            AfterStop::Drained(purpose, _) => Some(purpose),
            AfterStop::TakenAway(_) => None,
        })
    }

    /// Returns the requests whose wait is over, whether everything was stopped, and whether the end is confirmed.
    pub(super) fn ended(&mut self, now: BootInstant) -> Vec<(AfterStop, bool, bool)> {
        let mut ended = Vec::new();
        self.waiting.retain_mut(|(after, end)| {
            let (stopped, clean) = match end.try_recv() {
                Ok(clean) => (true, clean),
                Err(TryRecvError::Closed) => (false, false),
                Err(TryRecvError::Empty) => match after {
                    AfterStop::TakenAway(until) if *until <= now => (false, false),
                    AfterStop::TakenAway(_) | AfterStop::Drained(..) => return true,
                },
            };
            ended.push((after.clone(), stopped, clean));
            false
        });
        ended
    }
}
