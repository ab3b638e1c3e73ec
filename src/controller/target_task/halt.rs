//! Orders to stop, and who waits for the end of it.

use tokio::sync::oneshot;

use super::handle::StopRequest;
use crate::lease::{FencingToken, Moment};

/// An order as it was given.
#[derive(Clone, Copy, Debug)]
pub(super) struct ActiveStop {
    pub(super) halt: StopRequest,
    /// It was carried out: it cannot be taken back.
    pub(super) marked: bool,
}

impl ActiveStop {
    /// One that is about a lease ends with it, and with its time. Pure.
    pub(super) fn holds(self, held: Option<FencingToken>, now: Moment) -> bool {
        self.halt
            .lease
            .is_none_or(|lease| held == Some(lease) && (self.marked || now < self.halt.by))
    }
}

/// While there is one, nothing is started: the lock is still held until whoever asked gives it up.
#[derive(Debug, Default)]
pub(super) struct StopRequests {
    halt: Option<StopRequest>,
    waiting: Vec<oneshot::Sender<bool>>,
    /// That all is stopped was written down, or may have been: under this lease nothing may be started again.
    marked: bool,
}

impl StopRequests {
    pub(super) fn add(&mut self, halt: StopRequest, done: oneshot::Sender<bool>) {
        self.waiting.push(done);
        if self.halt.is_none_or(|before| before.lease.is_some()) {
            self.halt = Some(halt);
        }
    }

    /// Everything must be gone by then.
    pub(super) fn by(&self) -> Option<Moment> {
        self.halt.map(|halt| halt.by)
    }

    /// The order that holds now.
    pub(super) fn order(&self) -> Option<ActiveStop> {
        let marked = self.marked;
        self.halt.map(|halt| ActiveStop { halt, marked })
    }

    /// The order does not hold any more: unless it is for good, or is carried out.
    pub(super) fn lift(&mut self) {
        if self.halt.is_some_and(|halt| halt.lease.is_some()) && !self.marked {
            *self = Self::default();
        }
    }

    /// Forgets an order that does not hold any more.
    pub(super) fn expire(&mut self, held: Option<FencingToken>, now: Moment) {
        if self.order().is_some_and(|order| !order.holds(held, now)) {
            *self = Self::default();
        }
    }

    /// Nobody is answered: whoever waits learns by the end of its channel that nothing was stopped.
    pub(super) fn refuse(&mut self) {
        self.waiting.clear();
    }

    /// Somebody waits for what is written down now. From here on it cannot be taken back.
    pub(super) fn begin_answer(&mut self) -> bool {
        self.marked |= !self.waiting.is_empty();
        !self.waiting.is_empty()
    }

    pub(super) fn answer(&mut self, clean: bool) {
        for done in self.waiting.drain(..) {
            // Whoever asked may have given up.
            let _ = done.send(clean);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_nanos(1_000);
    const LATER: Moment = Moment::from_nanos(2_000);
    const TOKEN: FencingToken = FencingToken(7);

    fn halted(lease: Option<FencingToken>) -> (StopRequests, oneshot::Receiver<bool>) {
        let (done, end) = oneshot::channel();
        let mut halts = StopRequests::default();
        halts.add(StopRequest { by: LATER, lease }, done);
        (halts, end)
    }

    #[test]
    fn an_order_about_a_lease_ends_with_it_and_can_be_taken_back() {
        let (mut halts, mut end) = halted(Some(TOKEN));
        halts.expire(Some(TOKEN), NOW);
        assert_eq!(halts.by(), Some(LATER));
        halts.expire(Some(FencingToken(8)), NOW);
        assert_eq!(halts.by(), None, "a later lease runs again");
        assert!(end.try_recv().is_err());
        let (mut halts, _end) = halted(Some(TOKEN));
        halts.expire(None, NOW);
        assert_eq!(halts.by(), None);
        let (mut halts, _end) = halted(Some(TOKEN));
        halts.expire(Some(TOKEN), LATER);
        assert_eq!(halts.by(), None, "too late");
        let (mut halts, _end) = halted(Some(TOKEN));
        halts.lift();
        assert_eq!(halts.by(), None);
    }

    #[test]
    fn what_was_written_down_as_clean_runs_no_more_under_its_lease() {
        let (mut halts, mut end) = halted(Some(TOKEN));
        assert!(halts.begin_answer());
        halts.answer(false);
        assert_eq!(end.try_recv(), Ok(false));
        halts.lift();
        halts.expire(Some(TOKEN), LATER);
        assert_eq!(halts.by(), Some(LATER));
        assert!(!halts.begin_answer(), "once");
        halts.expire(Some(FencingToken(8)), LATER);
        assert_eq!(halts.by(), None);
    }

    #[test]
    fn an_order_for_good_stays() {
        let (mut halts, _end) = halted(None);
        halts.expire(Some(TOKEN), LATER);
        halts.lift();
        let (done, _drained) = oneshot::channel();
        halts.add(
            StopRequest {
                by: NOW,
                lease: Some(TOKEN),
            },
            done,
        );
        halts.expire(None, LATER);
        assert_eq!(halts.by(), Some(LATER));
    }
}
