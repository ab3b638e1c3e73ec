//! Checks, before anything is started, whether this cluster can switch the targets of a lock.

use std::time::Duration;

use futures_util::{StreamExt, stream::FuturesUnordered};

use super::{
    TargetTask,
    goal::Goal,
    outcome::{Outcome, RETRY_TROUBLE},
    step::Stepped,
    target::{KindFound, Target},
};
use crate::{
    api::leader_lock::Enforcement,
    clock,
    controller::{
        planted::{WorldMistake, plants},
        problem::Problem,
    },
    lease::BootInstant,
};

/// The time for which kinds that cannot be switched are not asked for again, unless one of them changes.
const REFUSED_FOR: Duration = Duration::from_secs(30);

/// Whether this cluster can switch a target of the lock.
#[derive(Debug, Default)]
pub(super) enum LockKinds {
    /// It is not known yet: nothing is started.
    #[default]
    Unchecked,
    Switchable,
    /// No target can be switched: another cluster may serve the kinds, so this one does not hold the lock. They are asked for
    /// again at this time.
    Refused(Problem, BootInstant),
}

impl LockKinds {
    /// Reports whether a target may be started, so that the object needs its finalizer.
    pub(super) const fn allow_start(&self) -> bool {
        matches!(self, Self::Switchable)
    }

    pub(super) const fn is_refused(&self) -> bool {
        matches!(self, Self::Refused(..))
    }

    /// Asks for refused kinds again.
    pub(super) fn wake(&mut self, now: BootInstant) {
        if let Self::Refused(_, until) = self {
            *until = now;
        }
    }
}

impl TargetTask {
    /// Returns why no target can be started, and when to ask again.
    pub(super) async fn check_kinds(&mut self) -> Option<(Problem, Option<BootInstant>)> {
        if self.may_have_started() || plants(WorldMistake::HoldsUnswitchable) {
            self.kinds = LockKinds::Switchable;
            return None;
        }
        if let LockKinds::Refused(problem, until) = &self.kinds
            && clock::now() < *until
        {
            return Some((problem.clone(), Some(*until)));
        }
        match find_kinds(&self.targets).await {
            KindFound::Served => {
                self.kinds = LockKinds::Switchable;
                None
            }
            KindFound::Refused(problem) => {
                let until = clock::now() + REFUSED_FOR;
                self.kinds = LockKinds::Refused(problem.clone(), until);
                Some((problem, Some(until)))
            }
            // A failed discovery changes nothing that is known.
            KindFound::Unknown(_) if self.kinds.allow_start() => None,
            KindFound::Unknown(problem) => Some((problem, None)),
        }
    }

    /// Reports that no target can be started. If none can be switched, a requested stop has nothing to do.
    pub(super) async fn report_not_started(
        &mut self,
        goal: Goal,
        problem: Problem,
        again: Option<BootInstant>,
    ) -> Stepped {
        if self.kinds.is_refused() && matches!(goal, Goal::Stop(_)) {
            self.on_stopped().await;
        }
        let report = self.report(goal, Outcome::failed(problem));
        let again = again.unwrap_or_else(|| clock::now() + RETRY_TROUBLE);
        (report, Some(again))
    }

    /// Reports whether a target of the lock may have been started in this cluster: the object is kept by its finalizer, or the
    /// masters show that targets run. Other locks, and those without targets to switch, need no check.
    fn may_have_started(&self) -> bool {
        let config = &self.config;
        let marks = config.view.borrow().marks;
        let inherited = marks.ended_uncleanly() && config.own_tokens.has(marks.held);
        config.permissions.guarded
            || config.permissions.finalizer
            || inherited
            || self.leases.delays.marked().is_some()
            || self.fencing.is_some()
            || !self.removed.is_empty()
            || self.targets.is_empty()
            || config.plan.enforcement != Enforcement::Enforce
    }
}

/// Returns `Served` for the first target whose kind can be switched: another one whose API hangs does not delay it.
async fn find_kinds(targets: &[Target]) -> KindFound {
    let mut checks: FuturesUnordered<_> = targets.iter().map(Target::find_kind).collect();
    let mut worst = KindFound::Served;
    while let Some(found) = checks.next().await {
        worst = match (worst, found) {
            (_, KindFound::Served) => return KindFound::Served,
            (KindFound::Unknown(problem), KindFound::Refused(_)) => KindFound::Unknown(problem),
            (_, found) => found,
        };
    }
    worst
}
