//! Tracks whether a quorum is in use and under which plan, or why it is not in use.

use crate::{
    api::{RedisQuorumSpec, plan::QuorumPlan},
    controller::{
        index::resolve::QuorumView,
        problem::{Problem, Reason},
    },
};

#[derive(Debug, Default)]
pub(super) enum QuorumPhase {
    /// The object was not applied yet.
    #[default]
    New,
    NotInUse {
        problem: Problem,
        /// Whether another quorum of the same name runs until no lock is active on it.
        awaits_other: bool,
    },
    InUse(Box<InUse>),
}

#[derive(Debug)]
pub(super) struct InUse {
    plan: QuorumPlan,
    /// The spec that the plan was made from.
    spec: RedisQuorumSpec,
    /// The reason why the present object is not in use, or why no lock may use it.
    problem: Option<Problem>,
}

fn opening() -> Problem {
    Problem::new(Reason::Opening, "being opened")
}

impl QuorumPhase {
    pub(super) fn open(&mut self, plan: QuorumPlan, spec: RedisQuorumSpec, clash: Option<Problem>) {
        *self = Self::InUse(Box::new(InUse {
            plan,
            spec,
            problem: clash,
        }));
    }

    /// Takes the quorum out of use. Without a problem it is being opened.
    pub(super) fn close(&mut self, problem: Option<Problem>) {
        *self = Self::NotInUse {
            problem: problem.unwrap_or_else(opening),
            awaits_other: self.awaits_other(),
        };
    }

    /// Records that the present object cannot be used. A plan in use stays in use.
    pub(super) fn refuse(&mut self, problem: Problem) {
        match self {
            Self::InUse(in_use) => in_use.problem = Some(problem),
            Self::New | Self::NotInUse { .. } => self.close(Some(problem)),
        }
    }

    /// Records that another quorum of the same name runs. Returns whether that is new.
    pub(super) fn await_other(&mut self) -> bool {
        let awaited = self.awaits_other();
        *self = Self::NotInUse {
            problem: opening(),
            awaits_other: true,
        };
        !awaited
    }

    pub(super) fn other_is_closed(&mut self) {
        if let Self::NotInUse { awaits_other, .. } = self {
            *awaits_other = false;
        }
    }

    pub(super) const fn awaits_other(&self) -> bool {
        matches!(
            self,
            Self::NotInUse {
                awaits_other: true,
                ..
            }
        )
    }

    /// Returns the reason why the object is not in use, or why only an earlier version of it is.
    pub(super) fn problem(&self) -> Option<&Problem> {
        match self {
            Self::New => None,
            Self::NotInUse { problem, .. } => Some(problem),
            Self::InUse(in_use) => in_use.problem.as_ref(),
        }
    }

    pub(super) fn plan(&self) -> Option<&QuorumPlan> {
        Some(&self.in_use()?.plan)
    }

    pub(super) fn spec(&self) -> Option<&RedisQuorumSpec> {
        Some(&self.in_use()?.spec)
    }

    /// Returns the view for the locks that name the quorum.
    pub(super) fn view(&self) -> QuorumView<'_> {
        match self {
            Self::New => QuorumView::Missing,
            Self::NotInUse { problem, .. } => QuorumView::NotUsable(problem),
            Self::InUse(in_use) => match &in_use.problem {
                Some(problem) if problem.reason.is_of_another_cluster() => QuorumView::NotUsable(problem),
                _ => QuorumView::Usable(&in_use.plan),
            },
        }
    }

    fn in_use(&self) -> Option<&InUse> {
        match self {
            Self::InUse(in_use) => Some(in_use),
            Self::New | Self::NotInUse { .. } => None,
        }
    }
}
