//! Brings one target to its desired state.

mod not_started;
mod readiness;

pub(super) use not_started::KindFound;
use not_started::awaits;

use std::{sync::Arc, time::Duration};

use tokio::time;

use super::{
    back_off::BackOff,
    conflict::Conflicts,
    stopping::{Deadline, PATIENCE, is_urgent, step_limit},
    turns::{Lane, StartConfirmation, Turns},
};
use crate::{
    api::{
        lock_status::TargetState,
        plan::{AwaitedTemplate, TargetPlan, TargetWork},
    },
    clock,
    controller::{problem::Problem, rate_limiter::RateLimiter},
    lease::BootInstant,
    targets::{
        Action, Changes, ConditionReason, EventReason, StartPermit, Step, StopPermit, TargetContext,
        TargetError, Trouble, is_same,
    },
    telemetry::TargetSeries,
};

/// The time before its deadline from which a target that is not stopped is reported.
const LATE: Duration = Duration::from_secs(1);

/// The message about a request that takes longer than [`PATIENCE`].
const UNANSWERED: &str = "the API server does not answer in time";

pub(super) struct Target {
    pub(super) name: String,
    pub(super) observed: TargetState,
    pub(super) work: TargetWork,
    /// The time that the target takes to stop.
    pub(super) stop_time: Duration,
    /// Why the target is not started yet.
    pub(super) awaits: Option<AwaitedTemplate>,
    action: Action,
    context: TargetContext,
    turns: Turns,
    conflicts: Conflicts,
    pub(super) back_off: BackOff,
    /// Whether the target was found stopped, and was not started since.
    stopped: bool,
    /// The time since which a stop is under way.
    stopping: Option<BootInstant>,
    /// Whether the target has reached the aim of the present pass.
    pub(super) done: bool,
    /// Whether the known state does not count until the target is read.
    distrusted: bool,
    confirmation: StartConfirmation,
    /// Whether the last step was a start that an answer of the API server ended.
    start_refused: bool,
    series: Option<TargetSeries>,
}

impl Target {
    pub(super) fn new(context: TargetContext, rate_limiter: Arc<RateLimiter>, declared: &TargetPlan) -> Self {
        let mut target = Self {
            name: String::new(),
            observed: TargetState::Unknown,
            work: declared.work.clone(),
            stop_time: declared.stop,
            awaits: awaits(declared),
            action: Action::new(context.clone(), &declared.work),
            turns: Turns::new(rate_limiter, &context.namespace),
            context,
            conflicts: Conflicts::default(),
            back_off: BackOff::of(&declared.work),
            stopped: false,
            stopping: None,
            done: false,
            distrusted: false,
            confirmation: StartConfirmation::default(),
            start_refused: false,
            series: None,
        };
        target.is_called(&declared.name);
        target
    }

    /// Reports whether the declaration is about the same object, switched in the same way. Its numbers may differ. Its
    /// name may differ, too, for a target that must be undone, whose known state would otherwise be lost.
    pub(super) fn does(&self, target: &TargetPlan) -> bool {
        is_same(&self.work, &target.work) && (self.is_undone() || self.name == target.name)
    }

    /// Reports whether the target must be undone before another cluster may begin.
    pub(super) fn is_undone(&self) -> bool {
        self.work.is_undone()
    }

    /// Returns the target with the present declaration.
    pub(super) fn declared(mut self, target: &TargetPlan) -> Self {
        if self.work != target.work {
            self.confirmation = StartConfirmation::Missing;
        }
        self.work.clone_from(&target.work);
        (self.stop_time, self.awaits) = (target.stop, awaits(target));
        self.back_off.clear();
        self.action.declare(&target.work);
        self.is_called(&target.name);
        self
    }

    fn is_called(&mut self, name: &str) {
        if self.name != name || self.series.is_none() {
            name.clone_into(&mut self.name);
            let lock = (&*self.context.namespace, &*self.context.object);
            let series = TargetSeries::new(&self.context.telemetry, lock, name, self.work.action());
            self.series = Some(series);
        }
    }

    /// Returns the target as removed from the spec: another target may have its name.
    pub(super) fn undeclared(mut self) -> Self {
        // The target has to be stopped, even if it had reached its aim.
        (self.series, self.done) = (None, false);
        self.leave();
        self
    }

    /// The target leaves the lock, or the lock ends here.
    pub(super) fn leave(&mut self) {
        self.action.undeclare();
        self.back_off.clear();
        self.confirmation = StartConfirmation::Missing;
    }

    pub(super) fn changes(&self) -> Changes {
        self.action.changes()
    }

    /// Returns when the target may take its pending step.
    pub(super) fn due(&self) -> Option<BootInstant> {
        self.turns.due()
    }

    /// Reads the target without switching it. `enforced` is reported as given; `None` if another replica
    /// switches the target.
    pub(super) async fn observe(&mut self, enforced: Option<bool>) {
        self.set_enforced(enforced);
        if !self.done && !self.turns.wait(Lane::Start, clock::now()) {
            self.read().await;
            self.done = matches!(self.observed, TargetState::Active | TargetState::Standby);
        }
    }

    async fn read(&mut self) {
        let read = time::timeout(PATIENCE, self.action.observe()).await;
        self.distrusted &= !matches!(read, Ok(Ok(_)));
        self.confirmation = StartConfirmation::Missing;
        self.observed = match read {
            Ok(Ok(state)) => state,
            Ok(Err(_)) | Err(_) => TargetState::Unknown,
        };
    }

    /// Marks the state of the target as unknown.
    pub(super) fn distrust(&mut self) {
        self.distrusted = true;
        self.confirmation = StartConfirmation::Missing;
        self.observed = TargetState::Unknown;
        self.set_enforced(None);
    }

    /// Returns a running pod that is not fenced, if the lock is fenced and there is such a pod.
    pub(super) async fn unfenced(&mut self) -> Result<Option<String>, Problem> {
        self.turns.count(Lane::Start, clock::now());
        let (reason, text) = match time::timeout(PATIENCE, self.action.unfenced()).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(error)) => (error.reason(), error.to_string()),
            Err(_) => (ConditionReason::TargetUnreachable, UNANSWERED.to_owned()),
        };
        Err(Problem::new(reason, format!("target {}: {text}", self.name)))
    }

    pub(super) async fn start(&mut self, permit: &StartPermit) -> Step {
        if self.done {
            return Step::Done;
        }
        if let Some(awaits) = self.awaits {
            return self.await_template(awaits).await;
        }
        let step = self.try_start(permit).await;
        self.done = step == Step::Done;
        step
    }

    async fn try_start(&mut self, permit: &StartPermit) -> Step {
        (self.stopped, self.stopping) = (false, None);
        if let Some(trouble) = self.back_off.rests(Lane::Start, clock::now()) {
            self.turns.forgo();
            return trouble;
        }
        if self.conflicts.rests(Lane::Start, clock::now()) {
            if !self.turns.wait(Lane::Start, clock::now()) {
                self.read().await;
            }
            return self.conflict(Lane::Start);
        }
        if self.distrusted || !self.action.runs_untouched() {
            if self.turns.wait(Lane::Start, clock::now()) {
                let rest = self.confirmation.rests(permit.token(), clock::now());
                return rest.map_or(Step::Working(self.observed), Step::Waiting);
            }
            let end = time::timeout(PATIENCE, self.action.start(permit)).await;
            let step = self.finish(end, Lane::Start, clock::now());
            self.confirmation = StartConfirmation::new(&step, permit.token());
            return step;
        }
        self.turns.forgo();
        let step = self.finish(Ok(Ok(Step::Done)), Lane::Start, clock::now());
        self.confirmation = StartConfirmation::new(&step, permit.token());
        step
    }

    pub(super) async fn stop(&mut self, deadline: Deadline, permit: &StopPermit) -> Step {
        if self.done {
            return Step::Done;
        }
        let step = self.try_stop(deadline, permit).await;
        // Until a deadline that another cluster relies on, each step reads the target again.
        self.done = step == Step::Done && !deadline.is_promised();
        step
    }

    async fn try_stop(&mut self, deadline: Deadline, permit: &StopPermit) -> Step {
        if let Some(step) = self.wait_to_stop(deadline).await {
            return step;
        }
        let until = self.bound(deadline);
        let limit = step_limit(until, clock::now());
        let end = time::timeout(limit, self.action.stop(until, permit)).await;
        let now = clock::now();
        let step = self.finish(end, Lane::Stop, now);
        self.measure(step.is_stopped(), deadline, now);
        let working = matches!(step, Step::Working(_)).then_some(now);
        self.stopping = working.map(|now| self.stopping.unwrap_or(now));
        let overdue = self
            .stopping
            .is_some_and(|since| now.since(since) > self.stop_time);
        let late = until.map_or(overdue, |by| by.left(now) <= LATE);
        if late
            && step == Step::Working(self.observed)
            && let Some(left) = self.action.late()
        {
            let text = format!(
                "target {}: not stopped within its stop time; not ended: {left}",
                self.name
            );
            return Step::trouble(self.observed, ConditionReason::StopLate, text);
        }
        let conflict = self.conflicts.is_conflict(Lane::Stop, now);
        if conflict && matches!(step, Step::Done | Step::Waiting(_) | Step::Working(_)) {
            return self.conflict(Lane::Stop);
        }
        step
    }

    /// Returns the result of a stop that is not attempted now; `None` if the stop is attempted.
    async fn wait_to_stop(&mut self, deadline: Deadline) -> Option<Step> {
        if !deadline.is_promised()
            && let Some(trouble) = self.back_off.rests(Lane::Stop, clock::now())
        {
            self.turns.forgo();
            return Some(trouble);
        }
        let contested = self.conflicts.rests(Lane::Stop, clock::now());
        if is_urgent(deadline, self.observed, contested) {
            self.turns.count(Lane::Stop, clock::now());
            self.turns.forgo();
            return None;
        }
        if self.turns.wait(Lane::Stop, clock::now()) {
            return Some(Step::Working(self.observed));
        }
        if contested {
            self.read().await;
            if self.observed != TargetState::Standby {
                return Some(self.conflict(Lane::Stop));
            }
        }
        None
    }

    /// Returns the deadline of the stop for the action. A target without a stop time has none, unless another
    /// cluster waits for the stop. With a deadline, a label is always removed; without one, the label of a
    /// holder that only this replica does not see is left to the replica that set it.
    fn bound(&self, deadline: Deadline) -> Option<BootInstant> {
        let bounded = deadline.is_promised() || self.work.takes_time_to_stop();
        deadline.at().filter(|_| bounded)
    }

    /// Measures how long before its deadline a target is stopped, once for each stop.
    fn measure(&mut self, stopped: bool, deadline: Deadline, now: BootInstant) {
        if let Deadline::Promised(by) = deadline
            && stopped
            && !self.stopped
        {
            let margin = by.left(now).as_secs_f64() - now.since(by).as_secs_f64();
            self.context.telemetry.stopped(self.work.action(), margin);
        }
        self.stopped = stopped;
    }

    fn conflict(&self, lane: Lane) -> Step {
        self.set_enforced(Some(false));
        let text = self.conflicts.message(lane, &self.name);
        Step::trouble(self.observed, ConditionReason::EnforcementConflict, text)
    }

    fn set_enforced(&self, enforced: Option<bool>) {
        if let Some(series) = &self.series {
            series.set(enforced);
        }
    }

    /// Applies the result of a step to the state of the target.
    fn finish(&mut self, end: StepResult, lane: Lane, now: BootInstant) -> Step {
        self.distrusted &= !matches!(end, Ok(Ok(_)));
        let refused = matches!(&end, Ok(Err(error)) if error.is_refusal());
        let step = match end {
            Ok(Ok(step)) => step,
            Ok(Err(error)) => Step::trouble(TargetState::Unknown, error.reason(), error.to_string()),
            Err(_) => {
                let text = UNANSWERED.to_owned();
                Step::trouble(TargetState::Unknown, ConditionReason::TargetUnreachable, text)
            }
        };
        // While the API server does not answer, the state of the target is unknown: neither enforced nor
        // unenforced.
        let known = !self.distrusted;
        let is_enforced = matches!(step, Step::Done | Step::Waiting(_));
        self.set_enforced(known.then_some(is_enforced));
        self.confirmation = StartConfirmation::Missing;
        self.observed = match &step {
            Step::Done | Step::Waiting(_) => lane.goal(),
            Step::Working(state) => *state,
            Step::Contested(_) => TargetState::Changing,
            Step::Trouble(trouble) => trouble.state,
        };
        let step = match step {
            Step::Contested(write) => {
                self.warn_of(lane, &write);
                self.conflicts.add(lane, write, now);
                Step::Working(self.observed)
            }
            Step::Trouble(Trouble { state, reason, text }) => {
                Step::trouble(state, reason, format!("target {}: {text}", self.name))
            }
            step => step,
        };
        self.start_refused = lane == Lane::Start && readiness::is_start_refused(&step);
        self.back_off.add(lane, &step, refused, now);
        step
    }

    /// Warns about this write of another writer.
    fn warn_of(&self, lane: Lane, write: &str) {
        let name = &self.name;
        let (reason, text) = match lane {
            Lane::Start => (
                EventReason::StartedAgain,
                format!(
                    "target {name}: {write} while this cluster holds the lock; the operator started it again"
                ),
            ),
            Lane::Stop => (
                EventReason::StoppedAgain,
                format!("target {name}: {write} while this cluster stands by; the operator stopped it again"),
            ),
        };
        self.context.emit(reason, text);
    }
}

type StepResult = Result<Result<Step, TargetError>, time::error::Elapsed>;
