//! What is to become of a lock's targets in this cluster. Pure.

use std::time::Duration;

use crate::{
    api::leader_lock::OnQuorumLoss,
    lease::{BootInstant, FencingToken},
};

/// What is known when it is decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct TargetFacts {
    /// End of the own authority, if held now.
    pub(super) held_until: Option<BootInstant>,
    /// Nothing may start before: the takeover delay after an unclean end.
    pub(super) start_after: BootInstant,
    /// The lease before it was seen to be another cluster's.
    pub(super) from_elsewhere: bool,
    /// Whose lease is seen, if it has not ended: of this cluster or of another.
    pub(super) other: Option<Other>,
    /// The last holder that was seen, after any of this cluster, was another cluster's.
    pub(super) passed_on: bool,
    /// This replica held the lock last, until then.
    pub(super) lost: Option<BootInstant>,
    /// The end of the last lease of a sibling that was seen.
    pub(super) sibling_until: Option<BootInstant>,
    /// What the siblings say, where this replica cannot see the masters itself.
    pub(super) siblings: Siblings,
    /// Others contend, and this replica only watches who holds the lock.
    pub(super) observes: bool,
    /// When this replica began to watch the lock.
    pub(super) began: BootInstant,
    /// A stop was requested by then, whoever holds the lock.
    pub(super) stop_by: Option<BootInstant>,
    pub(super) takeover_delay: Duration,
    pub(super) stop: Duration,
    pub(super) on_quorum_loss: OnQuorumLoss,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Other {
    Sibling,
    Elsewhere,
}

/// What the siblings say of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Siblings {
    /// This replica has a majority of the masters: what it sees itself counts.
    Unasked,
    /// It has none, and nothing that cannot be undone is done before the siblings have answered, or until then.
    Awaited(BootInstant),
    /// None of them has a majority, or none answers.
    Silent,
    /// A replica of this cluster holds the lock until then, or longer, by a lease with this token.
    Held(BootInstant, FencingToken),
    /// Nobody held it when they were asked, and one of them contends for it.
    Free(BootInstant),
    Elsewhere,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    Run,
    /// Everything must be gone by then, where there is a bound.
    Stop(Option<BootInstant>),
    /// Leave things as they are; decided again then, or when something changes.
    Keep(Option<BootInstant>),
}

/// After a restart: as long as one acquire round may take to show who holds the lock.
const FIRST_ROUND: Duration = Duration::from_secs(1);
/// Kept free before another cluster may begin.
const MARGIN: Duration = Duration::from_secs(1);

/// So long after the question a sibling that contends for a free lock is relied upon to do what there is to do. Another
/// cluster that wins the lock in the moment of the question begins after the takeover delay, which is by default 5 s longer
/// than a stop takes: 2 s for this, 1 s for the margin, and up to 2 s for what the sibling saw before.
const RELIED_UPON: Duration = Duration::from_secs(2);

/// Whether there is time for a stop between the end of a lease and the start of another cluster. Without it the holder
/// cannot leave its targets to a sibling, which may fail, too.
pub(super) fn has_room(takeover_delay: Duration, stop: Duration) -> bool {
    takeover_delay >= stop + MARGIN
}

impl TargetFacts {
    pub(super) fn has_room(&self) -> bool {
        has_room(self.takeover_delay, self.stop)
    }
}

pub(super) fn goal(facts: &TargetFacts, now: BootInstant) -> Goal {
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

/// Until the siblings have answered: what has to be stopped by a certain time is not held up.
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

/// By what this replica sees itself, or saw last.
fn alone(facts: &TargetFacts, now: BootInstant) -> Goal {
    if facts.observes {
        return match facts.other {
            Some(Other::Sibling) => Goal::Run,
            None if facts.sibling_until.is_none() && now < facts.began + FIRST_ROUND => {
                Goal::Keep(Some(facts.began + FIRST_ROUND))
            }
            // Nobody here can lengthen what was seen, nor adopt what the holder has.
            Some(Other::Elsewhere) | None => Goal::Stop(None),
        };
    }
    let keeps = facts.on_quorum_loss == OnQuorumLoss::KeepRunning;
    if facts.held_until.is_some() {
        return if now >= facts.start_after {
            Goal::Run
        } else if keeps || !facts.from_elsewhere {
            // What runs here may be this cluster's own.
            Goal::Keep(Some(facts.start_after))
        } else {
            // Another cluster's targets may run still: whatever runs here is not this cluster's turn.
            Goal::Stop(None)
        };
    }
    match facts.other {
        // It adopts what runs, and starts the rest. That its lease ends is not always told: not without a majority.
        Some(Other::Sibling) => return Goal::Keep(facts.sibling_until),
        Some(Other::Elsewhere) if !keeps => return Goal::Stop(facts.lost),
        // The lease ran out long ago: there is no end to keep, and two run already.
        Some(Other::Elsewhere) => return Goal::Stop(None),
        None => {}
    }
    if keeps {
        // Also when nobody can be seen any more: whoever had the lock keeps it running, too.
        return if facts.passed_on {
            Goal::Stop(None)
        } else {
            Goal::Keep(None)
        };
    }
    if facts.lost.is_some() {
        return Goal::Stop(facts.lost);
    }
    // Another cluster may begin after the takeover delay; a sibling may adopt until shortly before.
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
