//! One target, and how far it is from where it should be.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time;

use super::{fights::Fights, ready::Found};
use crate::{
    api::{
        lock_status::TargetState,
        plan::{TargetPlan, TargetWork},
    },
    clock,
    controller::pace::Pace,
    lease::Moment,
    targets::{Action, Changes, Leave, LeaveToStop, Site, Step, TargetError, Trouble, action, is_same},
    telemetry::TargetSeries,
};

/// An API server that takes longer is not waited for: the next step looks again, and a lease may end meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);
/// Of the last steps before an end.
const SHORTEST: Duration = Duration::from_millis(500);
/// What is not stopped so shortly before its end is reported.
const LATE: Duration = Duration::from_secs(1);
/// Requests of a step, as a rule.
const REQUESTS: u32 = 2;
const REQUESTS_TO_STOP: u32 = 3;

pub(super) struct Switch {
    pub(super) name: String,
    pub(super) observed: TargetState,
    pub(super) work: TargetWork,
    /// How long it takes to stop.
    pub(super) stop_time: Duration,
    action: Box<dyn Action>,
    site: Site,
    pace: Arc<Pace>,
    turn: Option<(Lane, Moment)>,
    /// Another writer starts what is stopped here, and stops what is started here.
    fights: Fights,
    revivals: Fights,
    /// What the other writer did last.
    contest: String,
    /// It was found stopped, and not started since.
    stopped: bool,
    /// What was heard of it is old: it counts for nothing until it was looked at.
    distrusted: bool,
    series: Option<TargetSeries>,
}

/// What the next step is for: one that waits for its turn must not have it for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    Start,
    Stop,
}

impl Switch {
    pub(super) fn new(site: Site, pace: Arc<Pace>, target: &TargetPlan) -> Self {
        let mut switch = Self {
            name: String::new(),
            observed: TargetState::Unknown,
            work: target.work.clone(),
            stop_time: target.stop,
            action: action(site.clone(), &target.work),
            site,
            pace,
            turn: None,
            fights: Fights::default(),
            revivals: Fights::default(),
            contest: String::new(),
            stopped: false,
            distrusted: false,
            series: None,
        };
        switch.is_called(&target.name);
        switch
    }

    /// Whether this is about the same object, switched in the same way; its numbers may be others, and its name, too,
    /// unless nothing is lost by beginning anew.
    pub(super) fn does(&self, target: &TargetPlan) -> bool {
        is_same(&self.work, &target.work) && (self.is_undone() || self.name == target.name)
    }

    /// Whether it must be undone before another cluster may begin.
    pub(super) fn is_undone(&self) -> bool {
        self.work.is_undone()
    }

    /// As it is declared now.
    pub(super) fn declared(mut self, target: &TargetPlan) -> Self {
        self.work.clone_from(&target.work);
        self.stop_time = target.stop;
        self.action.declare(&target.work);
        self.is_called(&target.name);
        self
    }

    fn is_called(&mut self, name: &str) {
        if self.name != name || self.series.is_none() {
            name.clone_into(&mut self.name);
            let lock = (&*self.site.namespace, &*self.site.object);
            let series = TargetSeries::new(&self.site.telemetry, lock, name, self.work.action());
            self.series = Some(series);
        }
    }

    /// Not declared any more: another may have its name.
    pub(super) fn undeclared(mut self) -> Self {
        self.series = None;
        self
    }

    pub(super) fn changes(&self) -> Changes {
        self.action.changes()
    }

    /// When it may take the step that it waits for.
    pub(super) fn due(&self) -> Option<Moment> {
        self.turn.map(|(_, at)| at)
    }

    /// Whether the step has to wait for its turn.
    fn waits(&mut self, lane: Lane) -> bool {
        let now = clock::now();
        let at = match self.turn.filter(|(for_lane, _)| *for_lane == lane) {
            Some((_, at)) => at,
            None if lane == Lane::Stop => self.pace.turn_to_stop(REQUESTS_TO_STOP, now),
            None => self.pace.turn(REQUESTS, now),
        };
        let again = match lane {
            _ if at > now => Some(at),
            Lane::Start => self.pace.send(REQUESTS, now),
            Lane::Stop => self.pace.send_stop(REQUESTS_TO_STOP, now),
        };
        self.turn = again.map(|at| (lane, at));
        self.turn.is_some()
    }

    /// Only looks. Whether the target is as it should be is told as given: none, where another replica switches it.
    pub(super) async fn look(&mut self, enforced: Option<bool>) {
        self.tell(enforced);
        if self.waits(Lane::Start) {
            return;
        }
        self.look_now().await;
    }

    async fn look_now(&mut self) {
        let looked = time::timeout(PATIENCE, self.action.look()).await;
        self.distrusted &= !matches!(looked, Ok(Ok(_)));
        self.observed = match looked {
            Ok(Ok(state)) => state,
            Ok(Err(_)) | Err(_) => TargetState::Unknown,
        };
    }

    /// How it is now is unknown.
    pub(super) fn distrust(&mut self) {
        self.distrusted = true;
        self.observed = TargetState::Unknown;
        self.tell(None);
    }

    /// Whether what runs of it is ready.
    pub(super) async fn ready(&mut self) -> Found {
        self.pace.count(REQUESTS, clock::now());
        match time::timeout(PATIENCE, self.action.ready()).await {
            Ok(Ok(None)) => Found::NoMatter,
            Ok(Ok(Some(true))) => Found::Ready,
            Ok(Ok(Some(false))) => Found::Unready,
            Ok(Err(_)) | Err(_) => Found::Unknown,
        }
    }

    pub(super) async fn start(&mut self, leave: &Leave) -> Step {
        self.stopped = false;
        if self.revivals.rests_until(clock::now()).is_some() {
            if !self.waits(Lane::Start) {
                self.look_now().await;
            }
            self.tell(Some(false));
            return self.conflict(Lane::Start);
        }
        if self.distrusted || !self.action.runs_untouched() {
            if self.waits(Lane::Start) {
                return Step::Working(self.observed);
            }
            let end = time::timeout(PATIENCE, self.action.start(leave)).await;
            return self.found(end, TargetState::Active);
        }
        self.turn = None;
        self.found(Ok(Ok(Step::Done)), TargetState::Active)
    }

    /// `promised`: another cluster may begin after `by`.
    pub(super) async fn stop(&mut self, by: Option<Moment>, promised: bool, leave: &LeaveToStop) -> Step {
        // What is known to run must not wait for others, unless somebody starts it again and again.
        let runs = matches!(self.observed, TargetState::Active | TargetState::Changing);
        let contested = self.fights.rests_until(clock::now()).is_some();
        if promised || (runs && !contested) {
            self.pace.count(REQUESTS_TO_STOP, clock::now());
            self.turn = None;
        } else if self.waits(Lane::Stop) {
            return Step::Working(self.observed);
        } else if contested {
            self.look_now().await;
            if self.observed != TargetState::Standby {
                self.tell(Some(false));
                return self.conflict(Lane::Stop);
            }
        }
        // What takes no time has no end, unless somebody waits for the stop. A label that is given an end is taken off
        // for sure; else one of a holder that only this replica does not see is left to the replica that gave it.
        let until = by.filter(|_| promised || self.work.takes_time_to_stop());
        // The last steps are short: what hangs is tried again while there is time.
        let patience = until.map_or(PATIENCE, |by| {
            (by.left(clock::now()) / 2).clamp(SHORTEST, PATIENCE)
        });
        let end = time::timeout(patience, self.action.stop(until, leave)).await;
        let step = self.found(end, TargetState::Standby);
        let now = clock::now();
        let stopped = step.is_stopped();
        if promised
            && stopped
            && !self.stopped
            && let Some(by) = by
        {
            let margin = by.left(now).as_secs_f64() - now.since(by).as_secs_f64();
            self.site.telemetry.stopped(self.work.action(), margin);
        }
        self.stopped = stopped;
        let late = until.is_some_and(|by| by.left(now) <= LATE);
        if late
            && step == Step::Working(self.observed)
            && let Some(left) = self.action.late()
        {
            let text = format!(
                "target {}: not stopped within its stop time; not ended: {left}",
                self.name
            );
            return Step::trouble(self.observed, "StopLate", text);
        }
        if self.fights.is_conflict(now) && matches!(step, Step::Done | Step::Waiting(_) | Step::Working(_)) {
            self.tell(Some(false));
            return self.conflict(Lane::Stop);
        }
        step
    }

    fn conflict(&self, lane: Lane) -> Step {
        let (name, contest) = (&self.name, &self.contest);
        let text = match lane {
            Lane::Start => format!(
                "target {name}: {contest} again and again while this cluster holds the lock; it is started again, ever \
                 more slowly, until that ends; to keep it off on purpose, annotate the lock with redlock.dev/paused, or \
                 set its state: SteppedDown"
            ),
            Lane::Stop => format!(
                "target {name}: {contest} again and again while this cluster stands by; it is stopped again, ever more \
                 slowly, until that ends"
            ),
        };
        Step::trouble(self.observed, "EnforcementConflict", text)
    }

    fn tell(&self, enforced: Option<bool>) {
        if let Some(series) = &self.series {
            series.set(enforced);
        }
    }

    /// What a step says of how the target is now.
    fn found(
        &mut self,
        end: Result<Result<Step, TargetError>, time::error::Elapsed>,
        goal: TargetState,
    ) -> Step {
        self.distrusted &= !matches!(end, Ok(Ok(_)));
        let step = match end {
            Ok(Ok(step)) => step,
            Ok(Err(error)) => Step::trouble(TargetState::Unknown, error.reason(), error.to_string()),
            Err(_) => {
                let text = "the API server does not answer in time".to_owned();
                Step::trouble(TargetState::Unknown, "TargetUnreachable", text)
            }
        };
        // While the API server does not answer, how the target is is unknown: neither enforced nor not.
        let known = !self.distrusted;
        self.tell(known.then_some(matches!(step, Step::Done | Step::Waiting(_))));
        match step {
            Step::Done | Step::Waiting(_) => {
                self.observed = goal;
                step
            }
            Step::Working(state) => {
                self.observed = state;
                Step::Working(state)
            }
            Step::Contested(what) => {
                self.observed = TargetState::Changing;
                let name = &self.name;
                if goal == TargetState::Active {
                    self.revivals.add(clock::now());
                    let text =
                        format!("target {name}: {what} while this cluster holds the lock; started again");
                    self.site.warn("StartedAgain", text);
                } else {
                    self.fights.add(clock::now());
                    let text = format!("target {name}: {what} while this cluster stands by; stopped again");
                    self.site.warn("StoppedAgain", text);
                }
                self.contest = what;
                Step::Working(self.observed)
            }
            Step::Trouble(Trouble { state, reason, text }) => {
                self.observed = state;
                Step::trouble(state, reason, format!("target {}: {text}", self.name))
            }
        }
    }
}

/// Stops what is not declared any more. True if nothing of it is left.
pub(super) async fn stop_all(
    removed: &mut Vec<Switch>,
    by: Option<Moment>,
    promised: bool,
    leave: &LeaveToStop,
) -> bool {
    let stop = |switch| Switch::stop(switch, by, promised, leave);
    let steps = join_all(removed.iter_mut().map(stop)).await;
    let mut done = steps.iter().map(Step::is_stopped);
    removed.retain(|_| !done.next().unwrap_or(false));
    removed.is_empty()
}
