//! Switches the targets of one lock: a task for each lock that has some.
//!
//! Owns nothing of the election: it watches how the lock stands, and asks for authority after the last await before a
//! write that starts something. What is to become of the targets is decided in [`goal`].

mod blind;
mod contact;
mod delay;
mod facts;
mod fights;
mod goal;
mod halt;
mod handle;
mod leave;
mod mark;
mod outcome;
mod patience;
mod quiet;
mod ready;
mod report;
mod target;

use std::time::Duration;

use futures_util::{
    StreamExt,
    future::{self, join_all},
    stream::SelectAll,
};
use tokio::{sync::mpsc, time};

pub(super) use handle::{Command, Config, Handle, Permissions, StopRequest, TargetReport};

use crate::{
    api::{leader_lock::Enforcement, lock_status::TargetState},
    clock,
    lease::{FencingToken, Mark, Moment},
    targets::{Changes, LeaveToStop, Note, Site},
};
use blind::Blind;
use delay::Delays;
use goal::{Goal, goal};
use halt::StopRequests;
use outcome::{Outcome, between_looks};
use quiet::Aim;
use ready::Readiness;
use target::{Switch, stop_all};

/// Between two tries after something failed, and between two looks at pods that are about to go.
const AGAIN: Duration = Duration::from_millis(250);
/// Things are looked at again this often although nothing was heard: messages get lost.
const NOW_AND_THEN: Duration = Duration::from_secs(300);

/// Starts a warden, which reports to `told`.
pub(super) fn start<T: Send + 'static>(
    config: Config,
    told: mpsc::Sender<T>,
    tell: fn(TargetReport) -> T,
) -> Handle {
    let (orders, ordered) = mpsc::unbounded_channel();
    let now = clock::now();
    let warden = TargetTask {
        switches: Vec::new(),
        removed: Vec::new(),
        delays: Delays::default(),
        start_after: now,
        from_elsewhere: false,
        seen_token: None,
        lost: None,
        last_until: None,
        sibling_until: None,
        blind: Blind::default(),
        began: now,
        stop_began: None,
        stopping: None,
        halts: StopRequests::default(),
        readiness: Readiness::default(),
        patience_checked: false,
        quiet: None,
        reported: None,
        notes: mpsc::unbounded_channel(),
        config,
    };
    let task = tokio::spawn(warden.run(ordered, told, tell));
    Handle {
        orders,
        task,
        last: None,
        detached: None,
    }
}

struct TargetTask {
    config: Config,
    switches: Vec<Switch>,
    /// Not declared any more, and perhaps still running: another cluster may declare them and start them.
    removed: Vec<Switch>,
    delays: Delays,
    start_after: Moment,
    /// The lease before it was seen to be another cluster's.
    from_elsewhere: bool,
    seen_token: Option<FencingToken>,
    lost: Option<Moment>,
    last_until: Option<Moment>,
    sibling_until: Option<Moment>,
    blind: Blind,
    began: Moment,
    /// Since when it stops without a bound.
    stop_began: Option<Moment>,
    /// Since when it stops what still runs.
    stopping: Option<Moment>,
    halts: StopRequests,
    readiness: Readiness,
    /// Of what is declared now.
    patience_checked: bool,
    /// All is as it should be for this, and left alone until something is heard, or until then.
    quiet: Option<(Aim, Moment)>,
    reported: Option<TargetReport>,
    /// What the targets tell, for the next report.
    notes: (mpsc::UnboundedSender<Note>, mpsc::UnboundedReceiver<Note>),
}

impl TargetTask {
    async fn run<T>(
        mut self,
        mut orders: mpsc::UnboundedReceiver<Command>,
        told: mpsc::Sender<T>,
        tell: fn(TargetReport) -> T,
    ) {
        self.open();
        let mut changes = self.follow();
        loop {
            let (report, again) = self.turn().await;
            if self.reported.as_ref() != Some(&report) {
                let mut said = report.clone();
                said.notes.clear();
                self.reported = Some(said);
                if told.send(tell(report)).await.is_err() {
                    return;
                }
            }
            let pause = again.map_or(NOW_AND_THEN, |at| at.left(clock::now()));
            tokio::select! {
                order = orders.recv() => match order {
                    None => return,
                    Some(Command::Stop(halt, done)) => {
                        self.quiet = None;
                        self.halts.add(halt, done);
                    }
                    Some(Command::Resume) => self.halts.lift(),
                    Some(Command::Plan(plan, permissions)) => {
                        let anew = plan.targets != self.config.plan.targets;
                        // The status of the lock changes more often than what it declares.
                        self.quiet = self.quiet.filter(|_| plan == self.config.plan && permissions == self.config.permissions);
                        (self.config.plan, self.config.permissions) = (plan, permissions);
                        if anew {
                            self.open();
                            changes = self.follow();
                        }
                    }
                },
                changed = self.config.standing.changed() => if changed.is_err() {
                    self.find_standing().await;
                },
                Some(()) = changes.next(), if !changes.is_empty() => {
                    self.quiet = None;
                    self.blind.note_change(clock::now());
                }
                Ok(()) = self.config.said.changed() => {}
                Ok(()) = self.config.lost.changed() => self.heed_contact(),
                () = time::sleep(pause.min(NOW_AND_THEN)) => {}
            }
        }
    }

    /// What is declared now. A target that is declared as before keeps what is known of it.
    fn open(&mut self) {
        let plan = self.config.plan.clone();
        self.patience_checked = false;
        let mut before = std::mem::take(&mut self.switches);
        before.append(&mut self.removed);
        for target in &plan.targets {
            let known = before.iter().position(|switch| switch.does(target));
            self.switches.push(match known {
                Some(index) => before.swap_remove(index).declared(target),
                None => Switch::new(self.site(&target.name), self.config.pace.clone(), target),
            });
        }
        // Where nothing is switched, nothing is left to be stopped either.
        let enforced = plan.enforcement == Enforcement::Enforce;
        before.retain(|switch| enforced && switch.is_undone() && switch.observed != TargetState::Standby);
        self.removed = before.into_iter().map(Switch::undeclared).collect();
    }

    fn site(&self, target: &str) -> Site {
        Site {
            client: self.config.client.clone(),
            shared: self.config.shared.clone(),
            namespace: self.config.plan.namespace.clone(),
            object: self.config.plan.name.clone(),
            lock: self.config.plan.lock_name.clone(),
            target: target.to_owned(),
            cluster: self.config.cluster.clone(),
            elector: self.config.elector.clone(),
            telemetry: self.config.telemetry.clone(),
            notes: self.notes.0.clone(),
        }
    }

    fn follow(&self) -> SelectAll<Changes> {
        self.switches.iter().map(Switch::changes).collect()
    }

    /// A lock that was given up and put again stands anew: what was followed ended with the lease before.
    async fn find_standing(&mut self) {
        let standing = self.config.elector.watch(&self.config.plan.lock_name);
        match standing.filter(|standing| standing.has_changed().is_ok()) {
            Some(standing) => self.config.standing = standing,
            None => time::sleep(AGAIN).await,
        }
    }

    /// One step towards the goal, and when the next is due.
    async fn turn(&mut self) -> (TargetReport, Option<Moment>) {
        let now = clock::now();
        let facts = self.facts(now);
        let goal = goal(&facts, now);
        if self.config.permissions.off {
            // Also not by an order: who gave it is told by the end of the channel that nothing was stopped.
            self.halts.refuse();
            let paused = self.config.plan.enforcement == Enforcement::Enforce;
            return self.look(goal, None, paused.then_some(false)).await;
        }
        if goal != Goal::Stop(None) {
            self.stop_began = None;
        }
        if !matches!(goal, Goal::Stop(_)) {
            self.stopping = None;
        }
        match goal {
            Goal::Run => {
                let leave = self.leave().map(|(leave, _)| leave);
                let ended = async {
                    match leave {
                        Some(leave) => leave.ended().await,
                        None => future::pending().await,
                    }
                };
                // A start that hangs must not take the time that stopping needs.
                tokio::select! {
                    biased;
                    turn = self.run_targets() => turn,
                    () = ended => {
                        // What was being started may run.
                        for switch in &mut self.switches {
                            switch.observed = TargetState::Unknown;
                        }
                        (self.report(goal, false, false, None), Some(clock::now()))
                    }
                }
            }
            Goal::Stop(by) => {
                let bound = self.stop_bound(by, now);
                let leave = self.leave_to_stop(&facts);
                let (report, again) = self.stop_targets(bound, by.is_some(), &leave).await;
                let starts =
                    (facts.held_until.is_some() && now < facts.start_after).then_some(facts.start_after);
                (report, again.into_iter().chain(starts).min())
            }
            Goal::Keep(until) => self.look(goal, until, None).await,
        }
    }

    async fn look(
        &mut self,
        goal: Goal,
        again: Option<Moment>,
        enforced: Option<bool>,
    ) -> (TargetReport, Option<Moment>) {
        self.readiness.forget();
        if !self.is_quiet(Aim::Look) {
            join_all(self.switches.iter_mut().map(|switch| switch.look(enforced))).await;
            let known =
                |switch: &Switch| matches!(switch.observed, TargetState::Active | TargetState::Standby);
            self.leave_alone(Aim::Look, self.switches.iter().all(known));
        }
        let again = self.due().into_iter().chain(again).min();
        (self.report(goal, true, false, None), again)
    }

    /// When the first may go on that waits for its turn.
    fn due(&self) -> Option<Moment> {
        let all = self.switches.iter().chain(&self.removed);
        all.filter_map(Switch::due).min()
    }

    async fn run_targets(&mut self) -> (TargetReport, Option<Moment>) {
        if self.switches.is_empty() && self.removed.is_empty() {
            return (self.report(Goal::Run, true, false, None), None);
        }
        let Some((leave, until)) = self.leave() else {
            // It has ended since.
            return (self.report(Goal::Run, false, false, None), Some(clock::now()));
        };
        let token = leave.token();
        let guards = self.switches.iter().chain(&self.removed).any(Switch::is_undone);
        if guards && !self.config.permissions.guarded {
            return (self.report(Goal::Run, false, true, None), None);
        }
        // The registers are about those who contend, not about what an observer does.
        if guards && !self.observes() && !self.declare(token).await {
            // A stop needs no mark.
            stop_all(&mut self.removed, None, false, &LeaveToStop::of(&leave)).await;
            let text =
                "a majority of the masters did not write down that targets start, or need longer to stop";
            let trouble = Some(("NotMarked", text.to_owned()));
            let report = self.report(Goal::Run, false, false, trouble);
            return (report, Some(clock::now() + AGAIN));
        }
        let mut outcome = Outcome::new();
        if !self.is_quiet(Aim::Run(token)) {
            let to_stop = LeaveToStop::of(&leave);
            outcome.settled = stop_all(&mut self.removed, None, false, &to_stop).await;
            // Together: one whose API hangs must not take the time of the others.
            for step in join_all(self.switches.iter_mut().map(|switch| switch.start(&leave))).await {
                outcome.take(step, true);
            }
            self.leave_alone(Aim::Run(token), outcome.pause(AGAIN).is_none());
        }
        if outcome.settled {
            self.check_patience();
        }
        let pause = outcome.pause(AGAIN * if outcome.trouble.is_some() { 8 } else { 1 });
        let mut again = self.due().or_else(|| pause.map(|pause| clock::now() + pause));
        if outcome.settled
            && let Some(after) = self.config.plan.failover_after_unready
        {
            let found = join_all(self.switches.iter_mut().map(Switch::ready)).await;
            let look = self.readiness.take(&found, token, after, clock::now());
            again = Some(again.map_or(look, |again| again.min(look)));
        }
        let again = again.into_iter().chain(until).min();
        (
            self.report(Goal::Run, outcome.settled, false, outcome.trouble),
            again,
        )
    }

    /// `promised`: another cluster may begin after `by`.
    async fn stop_targets(
        &mut self,
        by: Moment,
        promised: bool,
        leave: &LeaveToStop,
    ) -> (TargetReport, Option<Moment>) {
        let goal = Goal::Stop(Some(by));
        let since = *self.stopping.get_or_insert_with(clock::now);
        let mut outcome = Outcome::new();
        if !self.is_quiet(Aim::Stop) || promised {
            self.quiet = None;
            // Together: one whose API hangs must not take the time of the others.
            let removed = stop_all(&mut self.removed, Some(by), promised, leave);
            let declared = self
                .switches
                .iter_mut()
                .map(|switch| switch.stop(Some(by), promised, leave));
            let (removed, steps) = tokio::join!(removed, join_all(declared));
            outcome.settled = removed;
            for (switch, step) in self.switches.iter().zip(steps) {
                let awaited = switch.is_undone() && !step.is_stopped();
                outcome.take(step, awaited);
            }
            self.leave_alone(Aim::Stop, outcome.pause(AGAIN).is_none());
        }
        self.readiness.forget();
        if outcome.settled {
            (self.lost, self.stop_began, self.stopping) = (None, None, None);
            // Another replica may have stopped what was found running.
            self.blind.forget_started();
            if self.config.permissions.unreadable {
                self.halts.refuse();
            } else if self.halts.begin_answer() {
                let held = self.delays.marked();
                let clean = match held.filter(|_| held == self.seen_token) {
                    Some(token) => self.mark(token, Mark::Clean).await,
                    None => true,
                };
                self.halts.answer(clean);
                self.delays.clear();
            }
        }
        let unsettled = if promised || outcome.trouble.is_none() {
            between_looks(since, by, clock::now())
        } else {
            AGAIN * 8
        };
        let pause = outcome.pause(unsettled);
        let again = self.due().or_else(|| pause.map(|pause| clock::now() + pause));
        (self.report(goal, outcome.settled, false, outcome.trouble), again)
    }
}
