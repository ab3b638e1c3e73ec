//! Switches the targets of one lock: a task for each lock that has some.
//!
//! Owns nothing of the election: it watches how the lock stands, and asks for authority after the last await before a
//! write that starts something. What is to become of the targets is decided in [`goal`].

mod fights;
mod goal;
mod handle;
mod target;

use std::time::Duration;

use futures_util::{StreamExt, future::join_all, stream::SelectAll};
use tokio::{
    sync::{mpsc, oneshot},
    time,
};

pub(super) use handle::{Handle, Hands, Order, Post, Report};

use crate::{
    api::{
        leader_lock::{Candidates, Enforcement},
        lock_status::{TargetState, TargetStatus},
    },
    clock,
    elector::Standing,
    lease::{FencingToken, Holder, Moment},
    targets::{Changes, Leave, Note, Site, Step},
};
use goal::{Facts, Goal, Other, goal};
use target::Switch;

/// Between two tries after something failed, and between two looks at pods that are about to go.
const AGAIN: Duration = Duration::from_millis(250);
/// Between two looks at pods that take their time: a thousand of them must not be a thousand looks every [`AGAIN`].
const SELDOM: Duration = Duration::from_secs(1);
/// Between two tries where somebody has to do something first.
const TROUBLED: Duration = Duration::from_secs(2);
/// Things are looked at again this often although nothing was heard: messages get lost.
const NOW_AND_THEN: Duration = Duration::from_secs(300);

/// Starts a warden, which reports to `told`.
pub(super) fn start<T: Send + 'static>(post: Post, told: mpsc::Sender<T>, tell: fn(Report) -> T) -> Handle {
    let (orders, ordered) = mpsc::unbounded_channel();
    let now = clock::now();
    let warden = Warden {
        switches: Vec::new(),
        removed: Vec::new(),
        marked: None,
        start_after: now,
        seen_token: None,
        lost: None,
        last_until: None,
        sibling_until: None,
        began: now,
        stop: Vec::new(),
        halted: None,
        stopping: None,
        turn: None,
        reported: None,
        notes: mpsc::unbounded_channel(),
        post,
    };
    let task = tokio::spawn(warden.run(ordered, told, tell));
    Handle {
        orders,
        task,
        last: None,
    }
}

struct Warden {
    post: Post,
    switches: Vec<Switch>,
    /// Not declared any more, and perhaps still running: another cluster may declare them and start them.
    removed: Vec<Switch>,
    /// The token under which `held` was written.
    marked: Option<FencingToken>,
    start_after: Moment,
    seen_token: Option<FencingToken>,
    lost: Option<Moment>,
    last_until: Option<Moment>,
    sibling_until: Option<Moment>,
    began: Moment,
    stop: Vec<oneshot::Sender<bool>>,
    /// Once told to stop, it starts nothing any more: the lock is still held until whoever asked gives it up.
    halted: Option<Moment>,
    /// Since when it stops what still runs.
    stopping: Option<Moment>,
    /// When the finalizer may be asked for.
    turn: Option<Moment>,
    reported: Option<Report>,
    /// What the targets tell, for the next report.
    notes: (mpsc::UnboundedSender<Note>, mpsc::UnboundedReceiver<Note>),
}

impl Warden {
    async fn run<T>(
        mut self,
        mut orders: mpsc::UnboundedReceiver<Order>,
        told: mpsc::Sender<T>,
        tell: fn(Report) -> T,
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
                    Some(Order::Stop(by, done)) => {
                        self.halted = Some(by);
                        self.stop.push(done);
                    }
                    Some(Order::Plan(plan, hands)) => {
                        let anew = plan.targets != self.post.plan.targets;
                        (self.post.plan, self.post.hands) = (plan, hands);
                        if anew {
                            self.open();
                            changes = self.follow();
                        }
                    }
                },
                changed = self.post.standing.changed() => if changed.is_err() {
                    self.find_standing().await;
                },
                Some(()) = changes.next(), if !changes.is_empty() => {}
                () = time::sleep(pause.min(NOW_AND_THEN)) => {}
            }
        }
    }

    /// What is declared now. A target that is declared as before keeps what is known of it.
    fn open(&mut self) {
        let plan = self.post.plan.clone();
        let mut before = std::mem::take(&mut self.switches);
        before.append(&mut self.removed);
        for target in &plan.targets {
            let known = before.iter().position(|switch| switch.does(target));
            self.switches.push(match known {
                Some(index) => before.swap_remove(index).declared(target),
                None => Switch::new(self.site(&target.name), self.post.pace.clone(), target),
            });
        }
        before.retain(|switch| switch.observed != TargetState::Standby);
        self.removed = before.into_iter().map(Switch::undeclared).collect();
    }

    fn site(&self, target: &str) -> Site {
        Site {
            client: self.post.client.clone(),
            shared: self.post.shared.clone(),
            namespace: self.post.plan.namespace.clone(),
            object: self.post.plan.name.clone(),
            lock: self.post.plan.lock_name.clone(),
            target: target.to_owned(),
            cluster: self.post.cluster.clone(),
            elector: self.post.elector.clone(),
            telemetry: self.post.telemetry.clone(),
            notes: self.notes.0.clone(),
        }
    }

    /// Stops what is not declared any more. True if nothing of it is left.
    async fn stop_removed(&mut self, by: Option<Moment>) -> bool {
        let steps = join_all(self.removed.iter_mut().map(|switch| switch.stop(by))).await;
        let mut done = steps.into_iter().map(|step| matches!(step, Step::Done));
        self.removed.retain(|_| !done.next().unwrap_or(false));
        self.removed.is_empty()
    }

    fn follow(&self) -> SelectAll<Changes> {
        self.switches.iter().map(Switch::changes).collect()
    }

    /// A lock that was given up and put again stands anew: what was followed ended with the lease before.
    async fn find_standing(&mut self) {
        let standing = self.post.elector.watch(&self.post.plan.lock_name);
        match standing.filter(|standing| standing.has_changed().is_ok()) {
            Some(standing) => self.post.standing = standing,
            None => time::sleep(AGAIN).await,
        }
    }

    /// One step towards the goal, and when the next is due.
    async fn turn(&mut self) -> (Report, Option<Moment>) {
        let now = clock::now();
        let goal = goal(&self.facts(now), now);
        if self.post.hands.off {
            // Also not by an order: who gave it is told by the end of the channel that nothing was stopped.
            self.stop.clear();
            let paused = self.post.plan.enforcement != Enforcement::Observe;
            self.switches
                .iter()
                .for_each(|switch| switch.is_left_alone(paused));
            return (self.report(goal, true, false, None), None);
        }
        match goal {
            Goal::Run => {
                self.stopping = None;
                self.run_targets().await
            }
            Goal::Stop(by) => self.stop_targets(by).await,
            Goal::Keep(until) => {
                for switch in &mut self.switches {
                    switch.look().await;
                }
                let due = self.due().into_iter().chain(until).min();
                (self.report(goal, true, false, None), due)
            }
        }
    }

    /// When the first may go on that waits for its turn.
    fn due(&self) -> Option<Moment> {
        let all = self.switches.iter().chain(&self.removed);
        all.filter_map(Switch::due).min()
    }

    /// What is known now, also of leases that have ended since.
    fn facts(&mut self, now: Moment) -> Facts {
        let standing = self.post.standing.borrow_and_update().clone();
        let authority = standing.authority_at(now);
        if let Some(authority) = authority {
            if self.seen_token != Some(authority.token) {
                self.seen_token = Some(authority.token);
                self.start_after = now + self.delay(&standing);
            }
            self.last_until = Some(authority.valid_until);
            (self.lost, self.sibling_until) = (None, None);
        } else if let Some(until) = self.last_until.take() {
            self.lost = Some(until);
        }
        // The own lease, lost and left to run out, is no sibling's: what it guarded must be gone by its end.
        let others = |holder: &&Holder| Some(holder.token) != self.seen_token;
        let holder = standing.holder_at(now).filter(others);
        let other = holder.map(|holder| {
            if holder.cluster.uid() == self.post.cluster.uid() {
                Other::Sibling
            } else {
                Other::Elsewhere
            }
        });
        if other == Some(Other::Sibling) {
            self.lost = None;
            self.sibling_until = holder.map(|holder| holder.ends);
        }
        Facts {
            held_until: authority.map(|authority| authority.valid_until),
            start_after: self.start_after,
            other,
            lost: self.lost,
            sibling_until: self.sibling_until,
            observes: self.observes(),
            began: self.began,
            ordered: self.halted,
            takeover_delay: self.post.plan.takeover_delay,
            stop: self.post.plan.timings.stop,
            on_quorum_loss: self.post.plan.on_quorum_loss,
        }
    }

    /// How long a lease that was just won waits: after an unclean end in another cluster, until what ran there is gone.
    fn delay(&self, standing: &Standing) -> Duration {
        if !standing.marks.ended_uncleanly() {
            return Duration::ZERO;
        }
        let held = standing.marks.held;
        let own = standing
            .last_holder
            .as_ref()
            .is_some_and(|holder| holder.token.0 == held && holder.cluster.uid() == self.post.cluster.uid());
        if own || self.post.own_tokens.has(held) {
            Duration::ZERO
        } else {
            self.post.plan.takeover_delay
        }
    }

    /// `candidates: Agents`: whoever holds the lock is a process of its own.
    fn observes(&self) -> bool {
        self.post.plan.candidates == Candidates::Agents
    }

    /// The lease under which targets run, and where nobody tells of its end, when it is over.
    fn leave(&self) -> Option<(Leave, Option<Moment>)> {
        let standing = self.post.standing.clone();
        if !self.observes() {
            return self.seen_token.map(|token| (Leave::new(standing, token), None));
        }
        let holder = standing.borrow().holder_at(clock::now()).cloned();
        let holder = holder.filter(|holder| holder.cluster.uid() == self.post.cluster.uid())?;
        let until = holder.ends;
        Some((Leave::observed(standing, holder), Some(until)))
    }

    async fn mark(&self, clean: bool) -> bool {
        let lock = self.post.plan.lock_name.clone();
        self.post.elector.mark(lock, clean).await
    }

    async fn run_targets(&mut self) -> (Report, Option<Moment>) {
        if self.switches.is_empty() && self.removed.is_empty() {
            return (self.report(Goal::Run, true, false, None), None);
        }
        let Some((leave, until)) = self.leave() else {
            // It has ended since.
            return (self.report(Goal::Run, false, false, None), Some(clock::now()));
        };
        let token = leave.token();
        if !self.post.hands.guarded {
            let now = clock::now();
            let turn = *self.turn.get_or_insert_with(|| self.post.pace.turn(1, now));
            let due = (turn > now).then_some(turn);
            return (self.report(Goal::Run, false, due.is_none(), None), due);
        }
        self.turn = None;
        // What an observer does is not told by the registers: they are about those who contend.
        if !self.observes() && self.marked != Some(token) {
            if !self.mark(false).await {
                let trouble = (
                    "NotMarked",
                    "a majority of the masters did not write down that targets start".to_owned(),
                );
                return (
                    self.report(Goal::Run, false, false, Some(trouble)),
                    Some(clock::now() + AGAIN),
                );
            }
            self.marked = Some(token);
            self.post.own_tokens.remember(token.0);
        }
        let (mut settled, mut trouble) = (self.stop_removed(None).await, None);
        // Together: one whose API hangs must not take the time of the others.
        for step in join_all(self.switches.iter_mut().map(|switch| switch.start(&leave))).await {
            match step {
                Step::Done => {}
                Step::Working(_) | Step::Contested(_) => settled = false,
                Step::Trouble(why) => (settled, trouble) = (false, Some((why.reason, why.text))),
            }
        }
        let pause = if trouble.is_some() { TROUBLED } else { AGAIN };
        let again = (!settled).then(|| self.due().unwrap_or(clock::now() + pause));
        let again = again.into_iter().chain(until).min();
        (self.report(Goal::Run, settled, false, trouble), again)
    }

    async fn stop_targets(&mut self, by: Option<Moment>) -> (Report, Option<Moment>) {
        let goal = Goal::Stop(by);
        let (mut settled, mut trouble) = (self.stop_removed(by).await, None);
        let steps = join_all(self.switches.iter_mut().map(|switch| switch.stop(by)));
        for step in steps.await {
            match step {
                Step::Done => {}
                Step::Working(_) | Step::Contested(_) => settled = false,
                Step::Trouble(why) => {
                    // It is stopped, and there is something to say nevertheless.
                    settled &= why.state == TargetState::Standby;
                    trouble = Some((why.reason, why.text));
                }
            }
        }
        let since = *self.stopping.get_or_insert_with(clock::now);
        if settled {
            (self.lost, self.stopping) = (None, None);
            if !self.stop.is_empty() {
                let held = self.marked.is_some() && self.marked == self.seen_token;
                let clean = !held || self.mark(true).await;
                for done in self.stop.drain(..) {
                    // Whoever asked may have given up.
                    let _ = done.send(clean);
                }
                self.marked = None;
            }
        }
        let again = match (settled, by) {
            (true, _) => trouble.is_some().then(|| clock::now() + TROUBLED),
            (false, None) if trouble.is_some() => Some(clock::now() + TROUBLED),
            (false, _) => Some(self.due().unwrap_or_else(|| look_again(since, by, clock::now()))),
        };
        (self.report(goal, settled, false, trouble), again)
    }

    fn report(
        &mut self,
        goal: Goal,
        settled: bool,
        wants_guard: bool,
        trouble: Option<(&'static str, String)>,
    ) -> Report {
        let status = |switch: &Switch| TargetStatus {
            name: switch.name.clone(),
            desired: match goal {
                Goal::Run => TargetState::Active,
                Goal::Stop(_) => TargetState::Standby,
                Goal::Keep(_) => switch.observed,
            },
            observed: switch.observed,
        };
        Report {
            key: self.post.key.clone(),
            targets: self.switches.iter().map(status).collect(),
            runs: self
                .switches
                .iter()
                .chain(&self.removed)
                .any(|switch| switch.observed != TargetState::Standby),
            wants_guard,
            settled,
            trouble,
            notes: std::iter::from_fn(|| self.notes.1.try_recv().ok()).collect(),
        }
    }
}

/// When what is stopping is looked at again: an eighth of its time late, and closely towards its end.
fn look_again(since: Moment, by: Option<Moment>, now: Moment) -> Moment {
    let left = by.map_or(Duration::MAX, |by| by.left(now));
    let pause = now.since(since).min(left) / 8;
    now + pause.clamp(AGAIN, SELDOM)
}
