//! The leave to stop what was found running: the decision, asked again with all that is known by then.
//!
//! A step reads the API server before it writes. Meanwhile another replica of this cluster may win the lock and start what
//! is about to be stopped.

use std::sync::Arc;

use tokio::sync::watch;

use super::{
    TargetTask,
    blind::{Blind, Said, has_majority},
    facts::{other_at, still_owed},
    goal::{Facts, Goal, Other, Siblings, goal},
    halt::ActiveStop,
};
use crate::{
    api::plan::LockPlan,
    clock,
    controller::said::Round,
    elector::Standing,
    lease::{ClusterId, FencingToken, Moment},
    masters::Masters,
    targets::{Found, LeaveToStop},
};

/// What a stop was decided by.
#[derive(Clone, Copy, Debug)]
struct Decided {
    facts: Facts,
    /// The lease of this process.
    held: Option<FencingToken>,
    /// The last lease of this process.
    last: Option<FencingToken>,
    order: Option<ActiveStop>,
}

/// What is known when the write is about to be sent.
#[derive(Clone, Copy, Debug)]
struct Now {
    /// The lease of this process, and its end.
    held: Option<(FencingToken, Moment)>,
    other: Option<Other>,
    siblings: Siblings,
    /// The lease that a sibling proves.
    proven: Option<FencingToken>,
}

impl Decided {
    /// Whether the same would be decided now. Pure.
    fn stands(&self, seen: Now, now: Moment) -> bool {
        let held = seen.held.map(|(token, _)| token);
        let order = self.order.filter(|order| order.holds(held, now));
        if order.is_none() && held.is_some() && held != self.held {
            // Won since then: what runs is adopted.
            return false;
        }
        let lost = self.facts.lost.filter(|_| seen.other != Some(Other::Sibling));
        let facts = Facts {
            held_until: seen.held.map(|(_, until)| until),
            other: seen.other,
            siblings: seen.siblings,
            lost: still_owed(
                lost,
                (seen.siblings, seen.proven),
                self.last,
                self.facts.has_room(),
            ),
            ordered: order.map(|order| order.halt.by),
            ..self.facts
        };
        matches!(goal(&facts, now), Goal::Stop(_))
    }
}

/// A decision, and where to see whether it still stands.
struct Watched {
    decided: Decided,
    blind: Blind,
    plan: Arc<LockPlan>,
    cluster: ClusterId,
    standing: watch::Receiver<Standing>,
    masters: Option<Masters>,
    said: watch::Receiver<Arc<Round>>,
}

impl Watched {
    fn holds(&self, found: Found, now: Moment) -> bool {
        let standing = self.standing.borrow();
        if found == Found::StartedAgain {
            // The last word of the siblings may be older.
            self.blind.note_started(now);
        }
        let round = self.said.borrow();
        let lock = (&*self.plan.quorum, &self.plan.lock_name);
        let said = Said::of(&round, lock, &standing, &self.cluster, now);
        let majority = has_majority(self.masters.as_ref());
        let (siblings, proven) = self.blind.clone().siblings(majority, said, now);
        let authority = standing.authority_at(now);
        let seen = Now {
            held: authority.map(|authority| (authority.token, authority.valid_until)),
            other: other_at(&standing, &self.cluster, now),
            siblings,
            proven,
        };
        let stands = self.decided.stands(seen, now);
        if stands {
            self.blind.forget_started();
        }
        stands
    }
}

impl TargetTask {
    pub(super) fn leave_to_stop(&self, facts: &Facts) -> LeaveToStop {
        let watched = Watched {
            decided: Decided {
                facts: *facts,
                held: self.seen_token.filter(|_| facts.held_until.is_some()),
                last: self.seen_token,
                order: self.halts.order(),
            },
            blind: self.blind.clone(),
            plan: self.config.plan.clone(),
            cluster: self.config.cluster.clone(),
            standing: self.config.standing.clone(),
            masters: self.config.masters.clone(),
            said: self.config.said.clone(),
        };
        LeaveToStop::new(move |found| watched.holds(found, clock::now()))
    }
}

#[cfg(test)]
mod tests;
