use std::time::Duration;

use super::*;
use crate::{
    api::leader_lock::OnQuorumLoss,
    controller::target_task::{
        handle::{StopRequest, StopScope},
        lease_view::OtherLease,
    },
    lease::{DeclaredDelay, Marks},
};

impl Decided {
    /// Reports whether the decision would be the same now.
    fn stands(&self, seen: Now, now: BootInstant) -> bool {
        matches!(self.decide_again(seen, now), Goal::Stop(_))
    }
}

const OWN: FencingToken = FencingToken(7);

fn at(seconds: u64) -> BootInstant {
    BootInstant::from_nanos(seconds * 1_000_000_000)
}

/// Returns the decision of a standby that stops running targets because another cluster holds the lock.
fn standby() -> Decided {
    Decided {
        facts: TargetFacts {
            fenced: false,
            held_until: None,
            start_after: at(0),
            from_elsewhere: true,
            other: Some(Other::Elsewhere),
            passed_on: true,
            lost: None,
            sibling_until: None,
            siblings: Siblings::Unasked,
            coordinated_until: None,
            observes: false,
            began: at(0),
            stop_by: None,
            takeover_delay: Duration::from_secs(40),
            stop: Duration::from_secs(35),
            on_quorum_loss: OnQuorumLoss::Stop,
        },
        held: None,
        last: Some(OWN),
        request: None,
    }
}

const fn seen(held: Option<(FencingToken, BootInstant)>, other: Option<Other>) -> Now {
    let other = match other {
        None => None,
        Some(of) => Some(OtherLease {
            of,
            token: FencingToken(8),
            ends: BootInstant::from_nanos(200_000_000_000),
        }),
    };
    let marks = Marks {
        held: 0,
        clean: 0,
        delay: DeclaredDelay {
            token: 0,
            milliseconds: 0,
        },
    };
    Now {
        lease: LeaseView {
            succeeds_sibling: false,
            held,
            other,
            last: None,
            marks,
        },
        siblings: Siblings::Unasked,
        coordinated_until: None,
    }
}

const ELSEWHERE: Now = seen(None, Some(Other::Elsewhere));
const NO_HOLDER: Now = seen(None, None);
const SIBLING: Now = seen(None, Some(Other::Sibling));

fn held(token: FencingToken) -> Now {
    seen(Some((token, at(130))), None)
}

fn requested(lease: Option<FencingToken>) -> ActiveStop {
    let request = StopRequest {
        by: at(120),
        scope: lease.map_or(StopScope::EndOfHolder, StopScope::Lease),
    };
    ActiveStop {
        request,
        marked: false,
        beside: None,
    }
}

#[test]
fn a_stop_ends_when_this_cluster_has_won_the_lock() {
    for on_quorum_loss in [OnQuorumLoss::Stop, OnQuorumLoss::KeepRunning] {
        let mut stop = standby();
        stop.facts.on_quorum_loss = on_quorum_loss;
        assert!(stop.stands(ELSEWHERE, at(100)), "{on_quorum_loss:?}");
        assert!(stop.stands(NO_HOLDER, at(100)), "{on_quorum_loss:?}: released");
        assert!(!stop.stands(SIBLING, at(100)), "{on_quorum_loss:?}");
        assert!(!stop.stands(held(OWN), at(100)), "{on_quorum_loss:?}");
    }
}

#[test]
fn a_stop_by_the_end_of_the_own_lease_ends_when_a_sibling_has_won_the_lock() {
    let mut stop = standby();
    stop.facts.lost = Some(at(120));
    assert!(stop.stands(ELSEWHERE, at(100)) && stop.stands(NO_HOLDER, at(100)));
    assert!(!stop.stands(SIBLING, at(100)));
}

#[test]
fn a_stop_by_the_end_of_the_own_lease_ends_when_a_sibling_proves_a_later_lease() {
    let mut stop = standby();
    (stop.facts.other, stop.facts.lost) = (None, Some(at(120)));
    // No time is left for a stop after the end of the lease.
    stop.facts.takeover_delay = Duration::ZERO;
    let sibling_holds = |token| Now {
        siblings: Siblings::Held(at(110), FencingToken(token)),
        ..NO_HOLDER
    };
    assert!(
        stop.stands(sibling_holds(7), at(100)),
        "the sibling saw the lost lease"
    );
    assert!(!stop.stands(sibling_holds(8), at(100)), "the sibling took over");
}

#[test]
fn a_replica_without_a_majority_stops_by_the_current_reports_of_its_siblings() {
    let mut stop = standby();
    (stop.facts.other, stop.facts.siblings) = (None, Siblings::Elsewhere);
    let siblings_answer = |siblings| Now {
        siblings,
        ..NO_HOLDER
    };
    assert!(stop.stands(siblings_answer(Siblings::Elsewhere), at(100)));
    assert!(!stop.stands(siblings_answer(Siblings::Held(at(110), FencingToken(8))), at(100)));
    assert!(!stop.stands(siblings_answer(Siblings::Free(at(100))), at(100)));
    assert!(!stop.stands(siblings_answer(Siblings::Awaited(at(101))), at(100)));
    // Targets whose end another cluster waits for are stopped in time.
    stop.facts.sibling_until = Some(at(70));
    assert!(stop.stands(siblings_answer(Siblings::Awaited(at(101))), at(100)));
}

#[test]
fn an_order_about_a_lease_is_carried_out_under_that_lease_only() {
    let mut stop = standby();
    (stop.held, stop.facts.held_until) = (Some(OWN), Some(at(130)));
    stop.request = Some(requested(Some(OWN)));
    stop.facts.stop_by = Some(at(120));
    assert!(stop.stands(held(OWN), at(100)));
    assert!(!stop.stands(held(FencingToken(8)), at(100)));
    assert!(!stop.stands(SIBLING, at(100)));
    assert!(stop.stands(ELSEWHERE, at(100)));
    assert!(stop.stands(held(OWN), at(119)));
    assert!(!stop.stands(held(OWN), at(120)), "its time is over");
    stop.request = Some(ActiveStop {
        marked: true,
        ..requested(Some(OWN))
    });
    assert!(stop.stands(held(OWN), at(120)), "what is carried out stays so");
}

#[test]
fn an_order_for_good_is_carried_out_under_any_holder() {
    let mut stop = standby();
    stop.request = Some(requested(None));
    for seen in [ELSEWHERE, NO_HOLDER, SIBLING, held(OWN)] {
        assert!(stop.stands(seen, at(100)), "{seen:?}");
    }
}

#[test]
fn a_holder_that_waits_out_the_takeover_delay_stops_until_it_may_start() {
    let mut stop = standby();
    (stop.held, stop.facts.held_until) = (Some(OWN), Some(at(130)));
    (stop.facts.other, stop.facts.start_after) = (None, at(110));
    assert!(stop.stands(held(OWN), at(109)));
    assert!(!stop.stands(held(OWN), at(110)));
    assert!(!stop.stands(held(FencingToken(8)), at(109)));
}
