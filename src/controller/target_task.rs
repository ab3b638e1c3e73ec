//! Switches the targets of one lock. Each lock with targets has a task, which receives commands and returns reports.
//!
//! The task owns no part of the election: it watches the state of the lock, and requests authority after the last await
//! before a write that starts a target. Pure code decides the goal of the targets: [`leases`] keeps the observed states
//! of the lock, [`blind`] judges the answers of the siblings, and [`goal`] decides.

mod back_off;
mod blind;
mod conflict;
mod delay;
mod fencing;
mod goal;
mod handle;
mod kind_check;
mod lease_view;
mod leases;
mod mark;
mod outcome;
mod permit;
mod read_gate;
mod ready;
mod removed;
mod report;
mod settled;
mod step;
mod stop_requests;
mod stop_time;
mod stopping;
mod target;
mod turns;

use std::time::Duration;

use futures_util::{StreamExt, stream::SelectAll};
use tokio::{sync::mpsc, time};

pub(super) use goal::has_room;
pub(super) use handle::{
    Command, Config, Handle, Permissions, StopRequest, StopScope, TakeoverWait, TargetReport,
};
pub(super) use lease_view::LeaseView;
pub(super) use stop_requests::StopRequests;

use crate::{
    api::{leader_lock::Enforcement, lock_status::TargetState, plan::TargetWork},
    clock,
    controller::planted::{WorldMistake, plants},
    lease::BootInstant,
    targets::{Changes, Note, TargetContext, is_same},
};
use fencing::Fencing;
use kind_check::LockKinds;
use leases::Leases;
use read_gate::ReadGate;
use ready::Readiness;
use settled::Settled;
use stopping::Stopping;
use target::Target;

/// Interval between retries after a failure, and between polls of pods that are about to end.
const RETRY: Duration = Duration::from_millis(250);
/// Interval between reads of the targets without an observed change: notifications can get lost.
const POLL_AT_REST: Duration = Duration::from_secs(300);

/// Starts a task that sends its reports to `events`.
pub(super) fn start<T: Send + 'static>(
    config: Config,
    events: mpsc::Sender<T>,
    event: fn(TargetReport) -> T,
) -> Handle {
    let (commands, received) = mpsc::unbounded_channel();
    let task = TargetTask {
        targets: Vec::new(),
        removed: Vec::new(),
        left: Vec::new(),
        leases: Leases::new(clock::now()),
        fencing: Fencing::of(&config.plan, &config.shared),
        stopping: Stopping::default(),
        stop_requests: StopRequests::default(),
        read_gate: ReadGate::default(),
        readiness: Readiness::default(),
        regained: None,
        stop_times_checked: false,
        settled: Settled::default(),
        kinds: LockKinds::default(),
        reported: None,
        notes: mpsc::unbounded_channel(),
        config,
    };
    let task = tokio::spawn(task.run(received, events, event));
    Handle {
        commands,
        task,
        detached: None,
    }
}

struct TargetTask {
    config: Config,
    targets: Vec<Target>,
    /// The targets that are no longer declared, but may still run: another cluster may declare and start
    /// them.
    removed: Vec<Target>,
    /// The recorded targets that were seen stopped since they were removed: the record is being shortened.
    left: Vec<TargetWork>,
    leases: Leases,
    /// The state of fencing, for a fenced lock.
    fencing: Option<Fencing>,
    stopping: Stopping,
    stop_requests: StopRequests,
    read_gate: ReadGate,
    readiness: Readiness,
    /// The time at which the API server answered again.
    regained: Option<BootInstant>,
    /// Whether the stop times of the declared targets were checked.
    stop_times_checked: bool,
    settled: Settled,
    kinds: LockKinds,
    /// The last report, without its notes.
    reported: Option<TargetReport>,
    /// Events of the targets, for the next report.
    notes: (mpsc::UnboundedSender<Note>, mpsc::UnboundedReceiver<Note>),
}

impl TargetTask {
    async fn run<T>(
        mut self,
        mut commands: mpsc::UnboundedReceiver<Command>,
        events: mpsc::Sender<T>,
        event: fn(TargetReport) -> T,
    ) {
        self.open();
        let mut changes = self.follow();
        loop {
            let (report, again) = self.step().await;
            if self.is_new(&report) && events.send(event(report)).await.is_err() {
                return;
            }
            let pause = again.map_or(POLL_AT_REST, |at| at.left(clock::now()));
            tokio::select! {
                command = commands.recv() => match command {
                    None => return,
                    Some(command) => if self.obey(command) {
                        changes = self.follow();
                    }
                },
                changed = self.config.view.changed() => if changed.is_err() {
                    self.find_standing().await;
                },
                Some(()) = changes.next(), if !changes.is_empty() => {
                    self.settled.clear();
                    self.wake();
                    self.leases.blind.note_change(clock::now());
                }
                Ok(()) = self.config.sibling_answers.changed() => {}
                Ok(()) = self.config.coordinator.changed() => {}
                Ok(()) = self.config.lost.changed() => self.on_contact(),
                () = time::sleep(pause.min(POLL_AT_REST)) => {}
            }
        }
    }

    /// Reports whether a report differs from the last one.
    fn is_new(&mut self, report: &TargetReport) -> bool {
        let new = self.reported.as_ref() != Some(report);
        if new {
            self.reported = Some(TargetReport {
                notes: Vec::new(),
                ..report.clone()
            });
        }
        new
    }

    /// Applies a command. Returns whether the declared targets have changed.
    fn obey(&mut self, command: Command) -> bool {
        match command {
            Command::Stop(request, done) => {
                self.settled.clear();
                if request.departs() {
                    self.targets.iter_mut().for_each(Target::leave);
                }
                let config = &self.config;
                let lease = LeaseView::of(&config.view.borrow(), &config.cluster, clock::now());
                self.stop_requests.add(request, lease.other, done);
                false
            }
            Command::Resume => {
                self.stop_requests.lift();
                false
            }
            Command::CancelDeparture => {
                self.settled.clear();
                if !self.stop_requests.cancel() {
                    // Nothing may start under a lease whose end is recorded as clean: it is given up.
                    self.give_up_lease();
                }
                false
            }
            Command::Plan(plan, permissions) => {
                let config = &mut self.config;
                let other_targets =
                    (&plan.targets, &plan.leftovers) != (&config.plan.targets, &config.plan.leftovers);
                // The status of the lock changes more often than its declaration.
                if plan != config.plan || permissions.differ(config.permissions) {
                    self.settled.clear();
                    let all = self.targets.iter_mut().chain(&mut self.removed);
                    all.for_each(|target| target.back_off.clear());
                }
                (config.plan, config.permissions) = (plan, permissions);
                if other_targets {
                    self.open();
                }
                other_targets
            }
        }
    }

    /// Gives up the present lease of this process.
    fn give_up_lease(&self) {
        let lock = self.config.plan.lock_name.clone();
        self.config.elector.step_down(lock, Duration::ZERO);
    }

    /// Handles a change of the connection to the API server. While the API server does not answer, the
    /// targets may change: each of them is unknown until it is read again.
    fn on_contact(&mut self) {
        self.settled.clear();
        self.wake();
        if *self.config.lost.borrow_and_update() {
            for target in self.targets.iter_mut().chain(&mut self.removed) {
                target.distrust();
            }
        } else {
            self.regained = Some(clock::now());
        }
    }

    /// Records that an object has changed: a target that could not be switched is tried again.
    fn wake(&mut self) {
        self.kinds.wake(clock::now());
        let all = self.targets.iter_mut().chain(&mut self.removed);
        all.for_each(|target| target.back_off.wake());
    }

    /// Replaces the targets with the declared ones. A target with the same declaration keeps its observed
    /// state.
    fn open(&mut self) {
        let plan = self.config.plan.clone();
        (self.stop_times_checked, self.kinds) = (false, LockKinds::Unchecked);
        let mut before = std::mem::take(&mut self.targets);
        before.append(&mut self.removed);
        for declared in &plan.targets {
            let known = before.iter().position(|target| target.does(declared));
            self.targets.push(match known {
                Some(index) => before.swap_remove(index).declared(declared),
                None => Target::new(
                    self.context(&declared.name),
                    self.config.rate_limiter.clone(),
                    declared,
                ),
            });
        }
        self.open_removed(before);
    }

    /// Determines the targets that were removed from the spec and may still run: those of the record, and those that this
    /// task itself has started. What another replica has started is in the record.
    fn open_removed(&mut self, mut before: Vec<Target>) {
        let plan = self.config.plan.clone();
        // Without enforcement nothing is switched, so no removed target has to be stopped.
        if plan.enforcement == Enforcement::Observe {
            return;
        }
        let is_left = |work: &TargetWork| plan.leftovers.iter().any(|left| is_same(&left.work, work));
        self.left.retain(is_left);
        for leftover in &plan.leftovers {
            if self.left.iter().any(|work| is_same(work, &leftover.work)) {
                continue;
            }
            let known = before
                .iter()
                .position(|target| is_same(&target.work, &leftover.work));
            let target = match known {
                Some(index) => before.swap_remove(index),
                None => Target::new(
                    self.context(&leftover.name),
                    self.config.rate_limiter.clone(),
                    leftover,
                ),
            };
            self.removed.push(target.undeclared());
        }
        let remembers = self.leases.won().is_some() || plants(WorldMistake::RemembersRemoved);
        before.retain(|target| remembers && target.is_undone() && target.observed != TargetState::Standby);
        self.removed.extend(before.into_iter().map(Target::undeclared));
    }

    fn context(&self, target: &str) -> TargetContext {
        let config = &self.config;
        TargetContext {
            client: config.client.clone(),
            shared: config.shared.clone(),
            namespace: config.plan.namespace.clone(),
            object: config.plan.name.clone(),
            lock: config.plan.lock_name.clone(),
            fenced: config.plan.is_fenced(),
            switches: config.plan.switches(),
            target: target.to_owned(),
            cluster: config.cluster.clone(),
            elector: config.elector.clone(),
            telemetry: config.telemetry.clone(),
            notes: self.notes.0.clone(),
        }
    }

    fn follow(&self) -> SelectAll<Changes> {
        let pods = self.fencing.iter().map(|fencing| fencing.pods.changes());
        let all = self.targets.iter().chain(&self.removed);
        all.map(Target::changes).chain(pods).collect()
    }

    /// Follows a new view of the lock. A lock that was given up and is contended for again has a new view;
    /// the previous view ended with the lease.
    async fn find_standing(&mut self) {
        let view = self.config.elector.watch(&self.config.plan.lock_name);
        match view.filter(|view| view.has_changed().is_ok()) {
            Some(view) => self.config.view = view,
            None => time::sleep(RETRY).await,
        }
    }

    /// Returns when the first target with a pending turn takes its step.
    fn due(&self) -> Option<BootInstant> {
        let all = self.targets.iter().chain(&self.removed);
        all.filter_map(Target::due).min()
    }
}
