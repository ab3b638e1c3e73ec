//! Decides again, right before the write, whether a target that was found running may be stopped.
//!
//! A step reads the API server before it writes. Between the two, another replica of this cluster may win the lock and
//! start the target that is about to be stopped.

use std::sync::Arc;

use tokio::sync::watch;

use super::{
    TargetTask,
    blind::{Blind, LatestAnswer, has_majority},
    goal::{Goal, Other, Siblings, TargetFacts, goal},
    lease_view::LeaseView,
    leases::still_owed,
    read_gate::ReadGate,
    stop_requests::ActiveStop,
};
use crate::{
    api::plan::{LockPlan, TargetWork},
    clock,
    controller::{
        coordination::CoordinatorView,
        planted::{WorldMistake, plants},
        sibling_answers::Round,
    },
    elector::LockView,
    lease::{BootInstant, ClusterId, FencingToken},
    masters::Masters,
    targets::{Found, StopPermit},
};

/// The basis of the decision to stop.
#[derive(Clone, Copy, Debug)]
struct Decided {
    facts: TargetFacts,
    /// The present lease of this process.
    held: Option<FencingToken>,
    /// The last lease of this process.
    last: Option<FencingToken>,
    request: Option<ActiveStop>,
}

/// The state at the time of the write.
#[derive(Clone, Copy, Debug)]
struct Now {
    lease: LeaseView,
    siblings: Siblings,
    coordinated_until: Option<BootInstant>,
}

impl Decided {
    /// Returns the goal now; not a stop if the decision no longer applies. Pure.
    fn decide_again(&self, seen: Now, now: BootInstant) -> Goal {
        let held = seen.lease.token();
        let request = self.request.filter(|request| request.holds(&seen.lease, now));
        // A sibling that holds the lock carries the departure out, or runs the targets of another object.
        let sibling = seen.lease.holder() == Some(Other::Sibling);
        if held.is_none() && sibling && request.is_some_and(|request| request.request.departs()) {
            return Goal::Keep(None);
        }
        if request.is_none() && held.is_some() && held != self.held {
            // The lease was won since: running targets are adopted.
            return Goal::Keep(None);
        }
        let other = seen.lease.holder();
        let lost = self.facts.lost.filter(|_| other != Some(Other::Sibling));
        let facts = TargetFacts {
            held_until: seen.lease.held.map(|(_, until)| until),
            other,
            siblings: seen.siblings,
            coordinated_until: seen.coordinated_until,
            lost: still_owed(lost, seen.siblings, self.last, self.facts.has_room()),
            stop_by: request.map(|stop| stop.request.by),
            ..self.facts
        };
        goal(&facts, now)
    }
}

/// A decision, and the sources for checking it again.
struct Watched {
    decided: Decided,
    blind: Blind,
    plan: Arc<LockPlan>,
    cluster: ClusterId,
    view: watch::Receiver<LockView>,
    masters: Option<Masters>,
    sibling_answers: watch::Receiver<Arc<Round>>,
    coordinator: watch::Receiver<Option<CoordinatorView>>,
    /// The gate for a stop that neither a request nor the end of an own lease asks for, and the last read.
    gate: Option<(ReadGate, Option<BootInstant>)>,
}

impl Watched {
    fn holds(&self, found: Found, now: BootInstant) -> bool {
        let lease = LeaseView::of(&self.view.borrow(), &self.cluster, now);
        if found == Found::StartedAgain {
            // The latest answers of the siblings may be older than this finding.
            self.blind.note_started(now);
        }
        let latest = LatestAnswer::of(
            &self.sibling_answers.borrow(),
            &self.plan.quorum,
            &self.plan.lock_name,
            &lease,
        );
        let majority = has_majority(self.masters.as_ref());
        let siblings = self.blind.clone().siblings(majority, latest, now);
        let seen = Now {
            lease,
            siblings,
            coordinated_until: self.leaves_until(now),
        };
        let Goal::Stop(by) = self.decided.decide_again(seen, now) else {
            return false;
        };
        let defers = by.is_none() && self.is_coordinated(now);
        let gate = self.gate.as_ref();
        let stands = gate.is_none_or(|(gate, read)| gate.admits(*read, defers, now));
        if stands {
            self.blind.forget_started();
        }
        stands
    }

    fn leaves_until(&self, now: BootInstant) -> Option<BootInstant> {
        let view = self.coordinator.borrow();
        let left = view.as_ref()?.leaves_until(&self.plan.quorum, now);
        left.max(self.decided.facts.coordinated_until)
    }

    fn is_coordinated(&self, now: BootInstant) -> bool {
        let view = self.coordinator.borrow();
        view.as_ref()
            .is_some_and(|view| view.is_coordinated(&self.plan.quorum, now))
    }
}

impl TargetTask {
    pub(super) fn permit_to_stop(&self, facts: &TargetFacts) -> StopPermit {
        let watched = Watched {
            decided: Decided {
                facts: *facts,
                held: self.leases.own.filter(|_| facts.held_until.is_some()),
                last: self.leases.own,
                request: self.stop_requests.active(),
            },
            blind: self.leases.blind.clone(),
            plan: self.config.plan.clone(),
            cluster: self.config.cluster.clone(),
            view: self.config.view.clone(),
            masters: self.config.masters.clone(),
            sibling_answers: self.config.sibling_answers.clone(),
            coordinator: self.config.coordinator.clone(),
            gate: self.gate(facts),
        };
        StopPermit::new(move |found| watched.holds(found, clock::now()))
    }

    /// Reports whether a stop renews records at rest, which must not wait for a read: the action Lease does.
    fn renews_records(&self) -> bool {
        let all = self.targets.iter().chain(&self.removed);
        all.map(|target| &target.work)
            .any(|work| matches!(work, TargetWork::Lease { .. }))
    }

    /// Returns the gate for a stop, unless a request or the end of an own lease asks for the stop.
    fn gate(&self, facts: &TargetFacts) -> Option<(ReadGate, Option<BootInstant>)> {
        // A departure without an own lease is decided by what this replica knows of the object.
        let request = self.stop_requests.active();
        let ordered = request.is_some_and(|stop| !stop.request.departs() || facts.held_until.is_some());
        let decided_here = !ordered
            && facts.lost.is_none()
            && !self.renews_records()
            && !plants(WorldMistake::DepartsUnrecorded);
        decided_here.then(|| (self.read_gate.clone(), self.config.permissions.read))
    }
}

#[cfg(test)]
mod tests;
