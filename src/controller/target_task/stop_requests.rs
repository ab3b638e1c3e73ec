//! Keeps requests to stop, and the requesters that wait for an answer.

use std::time::Duration;

use tokio::sync::oneshot;

use super::{
    goal::Other,
    handle::{StopRequest, StopScope},
    lease_view::{LeaseView, OtherLease},
};
use crate::lease::{BootInstant, FencingToken};

/// The difference between two observed ends of one lease that shows a renewal.
const RENEWED: Duration = Duration::from_secs(1);

/// A request that is in force.
#[derive(Clone, Copy, Debug)]
pub(in crate::controller) struct ActiveStop {
    pub(in crate::controller) request: StopRequest,
    /// Whether the request was carried out, so that it can no longer be revoked.
    pub(in crate::controller) marked: bool,
    /// The lease of another process when the request was given.
    pub(in crate::controller) beside: Option<OtherLease>,
}

impl ActiveStop {
    /// Reports whether the request is in force. A request for a lease ends with the lease, and at its
    /// deadline unless it was carried out. Pure.
    pub(in crate::controller) fn holds(&self, lease: &LeaseView, now: BootInstant) -> bool {
        match self.request.scope {
            StopScope::Lease(held) => lease.token() == Some(held) && (self.marked || now < self.request.by),
            StopScope::Departure | StopScope::EndOfHolder => true,
            StopScope::EndOfLastProcess => {
                let other = lease.other.filter(|other| other.of == Other::Sibling);
                lease.held.is_some() || !other.is_some_and(|other| self.is_newer(other))
            }
        }
    }

    /// Reports whether this lease was acquired or renewed after the request.
    fn is_newer(&self, lease: OtherLease) -> bool {
        self.beside
            .is_none_or(|known| lease.token > known.token || lease.ends > known.ends + RENEWED)
    }
}

/// The requests to stop. While a request is in force, nothing is started: the lock is held until the
/// requester gives it up.
#[derive(Debug, Default)]
pub(in crate::controller) struct StopRequests {
    request: Option<StopRequest>,
    /// The lease of another process when the request was given.
    beside: Option<OtherLease>,
    waiting: Vec<oneshot::Sender<bool>>,
    /// Whether the clean end was recorded, or may have been: nothing may start again under this lease.
    marked: bool,
}

impl StopRequests {
    pub(in crate::controller) fn add(
        &mut self,
        request: StopRequest,
        beside: Option<OtherLease>,
        done: oneshot::Sender<bool>,
    ) {
        self.waiting.push(done);
        // A departure is not replaced by a stop under one lease, and may be ordered again with a later deadline.
        if request.lease().is_none() || self.request.is_none_or(|before| before.lease().is_some()) {
            (self.request, self.beside) = (Some(request), beside);
        }
    }

    /// Returns the deadline of the stop.
    pub(in crate::controller) fn by(&self) -> Option<BootInstant> {
        self.request.map(|request| request.by)
    }

    /// Returns the request, and whether it was carried out.
    pub(in crate::controller) fn active(&self) -> Option<ActiveStop> {
        let (marked, beside) = (self.marked, self.beside);
        self.request.map(|request| ActiveStop {
            request,
            marked,
            beside,
        })
    }

    /// Returns the lease of a request that can no longer be revoked: nothing starts again under it.
    pub(in crate::controller) fn carried_out(&self) -> Option<FencingToken> {
        self.active()
            .filter(|stop| stop.marked)
            .and_then(|stop| stop.request.lease())
    }

    /// Revokes the request, unless it belongs to a departure or is carried out.
    pub(in crate::controller) fn lift(&mut self) {
        if self.request.is_some_and(|request| request.lease().is_some()) && !self.marked {
            *self = Self::default();
        }
    }

    /// Revokes any request. Returns whether none was carried out.
    pub(in crate::controller) fn cancel(&mut self) -> bool {
        let revoked = !self.marked;
        *self = Self::default();
        revoked
    }

    /// Forgets a request that is no longer in force.
    pub(in crate::controller) fn expire(&mut self, lease: &LeaseView, now: BootInstant) {
        if self.active().is_some_and(|stop| !stop.holds(lease, now)) {
            *self = Self::default();
        }
    }

    /// Refuses all requests: the closed channel shows each requester that nothing was stopped.
    pub(in crate::controller) fn refuse(&mut self) {
        self.waiting.clear();
    }

    /// Reports whether a requester waits for an answer.
    pub(in crate::controller) fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Records that the end is about to be recorded: the request can no longer be revoked (P-82).
    pub(in crate::controller) fn begin_answer(&mut self) {
        self.marked |= self.is_awaited();
    }

    pub(in crate::controller) fn answer(&mut self, clean: bool) {
        for done in self.waiting.drain(..) {
            // The requester may have given up.
            let _ = done.send(clean);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: BootInstant = BootInstant::from_nanos(1_000);
    const LATER: BootInstant = BootInstant::from_nanos(2_000);
    const TOKEN: FencingToken = FencingToken(7);

    fn holding(token: FencingToken) -> LeaseView {
        LeaseView::own(Some(token), LATER)
    }

    fn requested(scope: StopScope) -> (StopRequests, oneshot::Receiver<bool>) {
        let (done, end) = oneshot::channel();
        let mut requests = StopRequests::default();
        requests.add(StopRequest { by: LATER, scope }, None, done);
        (requests, end)
    }

    #[test]
    fn a_request_about_a_lease_ends_with_it_and_can_be_taken_back() {
        let (mut requests, mut end) = requested(StopScope::Lease(TOKEN));
        requests.expire(&holding(TOKEN), NOW);
        assert_eq!(requests.by(), Some(LATER));
        requests.expire(&holding(FencingToken(8)), NOW);
        assert_eq!(requests.by(), None, "a later lease runs again");
        assert!(end.try_recv().is_err());
        let (mut requests, _end) = requested(StopScope::Lease(TOKEN));
        requests.expire(&LeaseView::default(), NOW);
        assert_eq!(requests.by(), None);
        let (mut requests, _end) = requested(StopScope::Lease(TOKEN));
        requests.expire(&holding(TOKEN), LATER);
        assert_eq!(requests.by(), None, "too late");
        let (mut requests, _end) = requested(StopScope::Lease(TOKEN));
        requests.lift();
        assert_eq!(requests.by(), None);
    }

    #[test]
    fn targets_marked_clean_run_no_more_under_their_lease() {
        let (mut requests, mut end) = requested(StopScope::Lease(TOKEN));
        assert!(requests.is_awaited());
        assert_eq!(requests.carried_out(), None);
        requests.begin_answer();
        requests.answer(false);
        assert_eq!(end.try_recv(), Ok(false));
        requests.lift();
        requests.expire(&holding(TOKEN), LATER);
        assert_eq!(requests.by(), Some(LATER));
        assert!(!requests.is_awaited(), "once");
        requests.expire(&holding(FencingToken(8)), LATER);
        assert_eq!(requests.by(), None);
    }

    #[test]
    fn a_refused_request_that_was_carried_out_leaves_a_lease_under_which_nothing_starts() {
        let (mut requests, mut end) = requested(StopScope::Lease(TOKEN));
        requests.begin_answer();
        requests.refuse();
        assert!(end.try_recv().is_err());
        requests.lift();
        requests.expire(&holding(TOKEN), LATER);
        assert_eq!(requests.carried_out(), Some(TOKEN), "the lease has to end");
        requests.expire(&LeaseView::default(), LATER);
        assert_eq!(requests.carried_out(), None);
    }

    #[test]
    fn a_request_for_good_stays() {
        let (mut requests, _end) = requested(StopScope::Departure);
        requests.expire(&holding(TOKEN), LATER);
        requests.lift();
        let (done, _drained) = oneshot::channel();
        let request = StopRequest {
            by: NOW,
            scope: StopScope::Lease(TOKEN),
        };
        requests.add(request, None, done);
        requests.expire(&LeaseView::default(), LATER);
        assert_eq!(requests.by(), Some(LATER));
    }

    #[test]
    fn a_request_of_the_last_process_ends_when_a_sibling_acquires_or_renews_a_lease() {
        let lease = |of, token, ends| {
            Some(OtherLease {
                of,
                token: FencingToken(token),
                ends,
            })
        };
        let holds = |beside, other| {
            let stop = ActiveStop {
                request: StopRequest {
                    by: LATER,
                    scope: StopScope::EndOfLastProcess,
                },
                marked: false,
                beside,
            };
            let seen = LeaseView {
                other,
                ..LeaseView::default()
            };
            stop.holds(&seen, NOW)
        };
        let lost = lease(Other::Sibling, 7, LATER);
        assert!(holds(lost, lost) && holds(lost, None) && holds(None, None));
        assert!(!holds(lost, lease(Other::Sibling, 8, LATER)), "acquired");
        assert!(
            !holds(lost, lease(Other::Sibling, 7, LATER + 2 * RENEWED)),
            "renewed"
        );
        assert!(!holds(None, lost));
        assert!(holds(lost, lease(Other::Elsewhere, 8, LATER)));
    }
}
