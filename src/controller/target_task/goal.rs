//! Decides the goal of a lock's targets in this cluster. Pure.

use std::time::Duration;

use crate::{
    api::leader_lock::OnQuorumLoss,
    controller::planted::{WorldMistake, plants},
    lease::{BootInstant, FencingToken},
};

/// The facts that the decision is based on.
#[derive(Clone, Copy, Debug)]
pub(super) struct TargetFacts {
    /// The end of this process's authority, if it holds the lock now.
    pub(super) held_until: Option<BootInstant>,
    /// The time before which no target may start: the takeover delay after an unclean end.
    pub(super) start_after: BootInstant,
    /// Whether the lease before this process's lease belonged to another cluster.
    pub(super) from_elsewhere: bool,
    /// The observed lease of another process, of this cluster or of another one, if it has not ended.
    pub(super) other: Option<Other>,
    /// Whether the last observed holder, after any holder of this cluster, belonged to another cluster.
    pub(super) passed_on: bool,
    /// The end of this replica's lease, if it was the last holder.
    pub(super) lost: Option<BootInstant>,
    /// The end of the last observed lease of a sibling.
    pub(super) sibling_until: Option<BootInstant>,
    /// The answers of the siblings, if this replica cannot see the masters itself.
    pub(super) siblings: Siblings,
    /// The time until which a replica that does not see the masters leaves stops to the coordinator.
    pub(super) coordinated_until: Option<BootInstant>,
    /// Whether other processes contend, and this replica only observes which of them holds the lock.
    pub(super) observes: bool,
    /// The time at which this replica began to watch the lock.
    pub(super) began: BootInstant,
    /// The deadline of a requested stop, which applies regardless of the holder of the lock.
    pub(super) stop_by: Option<BootInstant>,
    pub(super) takeover_delay: Duration,
    /// Whether the node agents freeze pods whose cluster no longer holds the lock, and this cluster contends
    /// for it.
    pub(super) fenced: bool,
    pub(super) stop: Duration,
    pub(super) on_quorum_loss: OnQuorumLoss,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Other {
    Sibling,
    Elsewhere,
}

/// The judgement of the siblings' answers about the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Siblings {
    /// This replica has a majority of the masters: its own view counts.
    Unasked,
    /// This replica has no majority, and takes no irreversible step until the siblings have answered, or until this
    /// time.
    Awaited(BootInstant),
    /// No sibling has a majority, or no sibling answers.
    Silent,
    /// A replica of this cluster holds the lock at least until this time, under a lease with this token.
    Held(BootInstant, FencingToken),
    /// At the time of the question the lock was free, and a sibling contended for it.
    Free(BootInstant),
    Elsewhere,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    Run,
    /// Everything must be stopped by the given time, if there is a deadline.
    Stop(Option<BootInstant>),
    /// Leave the targets unchanged; decide again at the given time, or when something changes.
    Keep(Option<BootInstant>),
}

/// The time after a restart within which one acquire round shows the holder of the lock.
const FIRST_ROUND: Duration = Duration::from_secs(1);
/// A safety margin before another cluster may begin.
const MARGIN: Duration = Duration::from_secs(1);

/// The time after the question for which a sibling that contends for a free lock is trusted to act. Another
/// cluster that wins the lock at the moment of the question begins after the takeover delay, which is by
/// default 5 s longer than a stop takes: 2 s for this trust, 1 s for the margin, and up to 2 s for the age of
/// the sibling's view.
const RELIED_UPON: Duration = Duration::from_secs(2);

/// Reports whether there is time for a stop between the end of a lease and the start of another cluster. Without that
/// time the holder cannot leave its targets to a sibling, which may fail, too.
pub(in crate::controller) fn has_room(takeover_delay: Duration, stop: Duration) -> bool {
    takeover_delay >= stop + MARGIN
}

impl TargetFacts {
    pub(super) fn has_room(&self) -> bool {
        self.fenced || has_room(self.takeover_delay, self.stop)
    }
}

/// Reports whether the targets stop only because it is not known that all their pods are fenced. The stop has
/// no deadline, so the pods can be listed first (P-116).
pub(super) fn depends_on_fencing(facts: &TargetFacts, now: BootInstant) -> bool {
    let fenced = TargetFacts {
        fenced: true,
        ..*facts
    };
    goal(facts, now) == Goal::Stop(None) && !matches!(goal(&fenced, now), Goal::Stop(_))
}

/// Decides on the goal. A stop may be left to the coordinator.
pub(super) fn goal(facts: &TargetFacts, now: BootInstant) -> Goal {
    match own_goal(facts, now) {
        Goal::Stop(by) => {
            left_to_coordinator(facts, now).map_or(Goal::Stop(by), |until| Goal::Keep(Some(until)))
        }
        goal @ (Goal::Run | Goal::Keep(_)) => goal,
    }
}

/// Returns until when a blind replica leaves a stop to the coordinator. A requested stop, and the end of an own lease, are
/// not left to others.
fn left_to_coordinator(facts: &TargetFacts, now: BootInstant) -> Option<BootInstant> {
    let blind = facts.siblings != Siblings::Unasked;
    let requested = facts.stop_by.is_some() || facts.held_until.is_some() || facts.lost.is_some();
    facts
        .coordinated_until
        .filter(|until| blind && !requested && now < *until)
        .filter(|_| !plants(WorldMistake::StopsUnelected))
}

fn own_goal(facts: &TargetFacts, now: BootInstant) -> Goal {
    if let Some(by) = facts.stop_by {
        return Goal::Stop(Some(facts.lost.map_or(by, |lost| lost.min(by))));
    }
    if facts.held_until.is_some() {
        return alone(facts, now);
    }
    let leaves = facts.lost.is_none() || facts.has_room();
    match facts.siblings {
        Siblings::Held(until, _) if leaves && now < until => Goal::Keep(Some(until)),
        Siblings::Free(asked) if leaves && now < asked + RELIED_UPON => Goal::Keep(Some(asked + RELIED_UPON)),
        Siblings::Elsewhere => {
            let other = Some(Other::Elsewhere);
            alone(&TargetFacts { other, ..*facts }, now)
        }
        Siblings::Awaited(until) => awaiting(facts, until, now),
        Siblings::Unasked | Siblings::Silent | Siblings::Held(..) | Siblings::Free(_) => alone(facts, now),
    }
}

/// Decides before the siblings have answered: a stop with a deadline is not delayed.
fn awaiting(facts: &TargetFacts, until: BootInstant, now: BootInstant) -> Goal {
    let until = match facts.lost {
        Some(lost) => until.min(lost - (facts.stop + MARGIN / 2)),
        None => until,
    };
    match alone(facts, now) {
        Goal::Stop(by) if now < until && (by.is_none() || facts.lost.is_some()) => Goal::Keep(Some(until)),
        goal => goal,
    }
}

/// Decides from this replica's own observations.
fn alone(facts: &TargetFacts, now: BootInstant) -> Goal {
    if facts.observes {
        return match facts.other {
            Some(Other::Sibling) => Goal::Run,
            None if facts.sibling_until.is_none() && now < facts.began + FIRST_ROUND => {
                Goal::Keep(Some(facts.began + FIRST_ROUND))
            }
            // This replica can neither extend an observed lease nor adopt the targets of its holder.
            Some(Other::Elsewhere) | None => Goal::Stop(None),
        };
    }
    let keeps = facts.on_quorum_loss == OnQuorumLoss::KeepRunning;
    if facts.held_until.is_some() {
        return if now >= facts.start_after {
            Goal::Run
        } else if keeps || !facts.from_elsewhere {
            // The running targets may be this cluster's own.
            Goal::Keep(Some(facts.start_after))
        } else {
            // Another cluster's targets may still run: a target that runs here does so out of turn.
            Goal::Stop(None)
        };
    }
    match facts.other {
        // The sibling adopts the running targets and starts the others. Without a majority the end of its lease is not
        // always reported.
        Some(Other::Sibling) => return Goal::Keep(facts.sibling_until),
        Some(Other::Elsewhere) if !keeps => return Goal::Stop(facts.lost),
        // The lease ended long ago: no deadline is left to keep, and targets already run in two clusters.
        Some(Other::Elsewhere) => return Goal::Stop(None),
        None => {}
    }
    if keeps {
        // Applies without any observed holder, too: the last holder also keeps its targets running.
        return if facts.passed_on {
            Goal::Stop(None)
        } else {
            Goal::Keep(None)
        };
    }
    if facts.lost.is_some() {
        return Goal::Stop(facts.lost);
    }
    if facts.fenced {
        // The nodes run the pods as long as they may. A sibling adopts them whenever it wins.
        return if facts.passed_on {
            Goal::Stop(None)
        } else {
            Goal::Keep(None)
        };
    }
    // Another cluster may begin after the takeover delay; a sibling may adopt until shortly before (P-87).
    let (at, others) = match facts.sibling_until {
        Some(ended) => (
            ended + facts.takeover_delay.saturating_sub(facts.stop + MARGIN),
            Some(ended + facts.takeover_delay),
        ),
        None => (facts.began + FIRST_ROUND, None),
    };
    if now < at {
        Goal::Keep(Some(at))
    } else {
        Goal::Stop(others.filter(|others| now < *others))
    }
}

#[cfg(test)]
mod tests;
