//! Takes one step of a lock's targets towards the present goal.

use futures_util::future::{self, join_all};

use super::{
    RETRY, TargetTask,
    blind::{LatestAnswer, has_majority},
    fencing::Fencing,
    goal::{Goal, TargetFacts, depends_on_fencing, goal},
    kind_check::LockKinds,
    lease_view::LeaseView,
    leases::{Observation, observes},
    mark::Undeclared,
    outcome::{Outcome, RETRY_TROUBLE},
    removed::stop_removed,
    settled::Aim,
    stop_time::too_short,
    stopping::Deadline,
    target::Target,
};
use crate::{
    api::{leader_lock::Enforcement, lock_status::TargetState},
    clock,
    controller::{
        coordination::SETTLES,
        planted::{WorldMistake, plants},
    },
    lease::{BootInstant, FencingToken, Mark},
    targets::{EventReason, Note, StartPermit, StopPermit},
};

/// The report of a step, and when the next step is due.
pub(super) type Stepped = (super::TargetReport, Option<BootInstant>);

impl TargetTask {
    pub(super) async fn step(&mut self) -> Stepped {
        let (facts, goal, now) = self.decide().await;
        if self.config.permissions.off {
            self.kinds = LockKinds::Unchecked;
            // Requests are refused, too: the closed channel shows each requester that nothing was stopped.
            self.refuse_stops();
            let paused = self.config.plan.enforcement == Enforcement::Enforce;
            let again = self.mark_while_paused(goal).await;
            return self.observe(goal, again, paused.then_some(false)).await;
        }
        self.stopping.follow(goal);
        if !matches!(goal, Goal::Stop(_)) {
            self.read_gate.reset();
        }
        if let Some((problem, again)) = self.check_kinds().await {
            return self.report_not_started(goal, problem, again).await;
        }
        if let Some(until) = facts.held_until
            && self.unread_since(&facts).is_some()
        {
            return self.await_read(goal, until).await;
        }
        match goal {
            Goal::Run if !self.config.permissions.starts => self.observe(goal, None, None).await,
            Goal::Run => self.run_while_held().await,
            Goal::Stop(by) => {
                let stop = self.config.plan.longest_stop();
                let deadline = self.stopping.deadline(by, stop, now);
                let permit = self.permit_to_stop(&facts);
                let (report, again) = self.stop_targets(deadline, &permit).await;
                let starts =
                    (facts.held_until.is_some() && now < facts.start_after).then_some(facts.start_after);
                (report, again.into_iter().chain(starts).min())
            }
            Goal::Keep(until) => self.observe(goal, until, None).await,
        }
    }

    /// Returns since when the present lease waits for a read of the object: the sibling that held the lock before may have
    /// stopped the targets for good. A requested stop does not wait, and an observer starts nothing under an own lease.
    fn unread_since(&self, facts: &TargetFacts) -> Option<BootInstant> {
        if facts.observes || facts.stop_by.is_some() || plants(WorldMistake::DepartsUnrecorded) {
            return None;
        }
        let won = self.leases.won()?;
        let read = self.config.permissions.read;
        read.is_none_or(|read| read < won).then_some(won)
    }

    /// Waits for a read of the object under a new lease. The pods of a fenced lock run already, so their lease is marked.
    async fn await_read(&mut self, goal: Goal, until: BootInstant) -> Stepped {
        // A recorded target may have been started again under the leases in between.
        self.left.clear();
        if goal == Goal::Run && self.fencing.is_some() {
            return self.run_while_held().await;
        }
        (self.report(goal, Outcome::UNSETTLED), Some(until))
    }

    /// Decides on the goal. A stop that is needed only if a pod is not fenced waits until the pods are
    /// listed: it would destroy work that the nodes protect.
    async fn decide(&mut self) -> (TargetFacts, Goal, BootInstant) {
        let mut now = clock::now();
        let mut facts = self.facts(now);
        let unchecked = self.fencing.as_ref().is_some_and(Fencing::is_unchecked);
        if unchecked && depends_on_fencing(&facts, now) {
            // If the pods cannot be listed, a pod that is not fenced may be among them.
            let _ = self.check_pods(None).await;
            now = clock::now();
            facts = self.facts(now);
        }
        (facts, goal(&facts, now), now)
    }

    fn facts(&mut self, now: BootInstant) -> TargetFacts {
        let fenced = self.fences_all();
        let coordinated_until = self.coordinated_until(now);
        let config = &mut self.config;
        let lease = LeaseView::of(&config.view.borrow_and_update(), &config.cluster, now);
        let plan = &config.plan;
        self.stop_requests.expire(&lease, now);
        let seen = Observation {
            latest_answer: LatestAnswer::of(
                &config.sibling_answers.borrow_and_update(),
                &plan.quorum,
                &plan.lock_name,
                &lease,
            ),
            majority: has_majority(config.masters.as_ref()),
            coordinated_until,
            lease,
            fenced,
            stop_by: self.stop_requests.by(),
            now,
            unix: clock::unix_time(),
        };
        self.leases.observe(&seen, &config.plan, &config.own_tokens)
    }

    /// Returns until when a replica that does not see the masters leaves stops to the coordinator: also while the API server
    /// does not answer, and for some time after that, in which the coordinator renews its Lease.
    fn coordinated_until(&mut self, now: BootInstant) -> Option<BootInstant> {
        let config = &mut self.config;
        let view = config.coordinator.borrow_and_update();
        let view = view.as_ref()?;
        let regained = if *config.lost.borrow() {
            Some(now + SETTLES)
        } else {
            self.regained.map(|regained| regained + SETTLES)
        };
        let regained = regained.filter(|until| now < *until);
        view.leaves_until(&config.plan.quorum, now).max(regained)
    }

    /// Returns the permit for the lease under which targets run, and its end if no event reports it.
    pub(super) fn permit(&self) -> Option<(StartPermit, Option<BootInstant>)> {
        let config = &self.config;
        let view = config.view.clone();
        if !observes(&config.plan) {
            return self.leases.own.map(|token| (StartPermit::new(view, token), None));
        }
        let holder = view.borrow().holder_at(clock::now()).cloned();
        let holder = holder.filter(|holder| holder.cluster.uid() == config.cluster.uid())?;
        let until = holder.ends;
        Some((StartPermit::observed(view, holder), Some(until)))
    }

    fn fences_all(&self) -> bool {
        self.fencing.as_ref().is_some_and(Fencing::fences_all)
    }

    /// Reads the targets without switching them.
    async fn observe(&mut self, goal: Goal, again: Option<BootInstant>, enforced: Option<bool>) -> Stepped {
        self.readiness.forget();
        let fenced = self.fences_all();
        if !self.settled.holds(Aim::Observe, clock::now()) {
            self.begin(Aim::Observe);
            let remembers = plants(WorldMistake::RemembersRemoved);
            let removed = self.removed.iter_mut().filter(|_| !remembers);
            let all = self.targets.iter_mut().chain(removed);
            join_all(all.map(|target| target.observe(enforced))).await;
            let checked = self.check_pods(None).await.is_ok();
            let known =
                |target: &Target| matches!(target.observed, TargetState::Active | TargetState::Standby);
            self.settle(Aim::Observe, checked && self.targets.iter().all(known));
        }
        // The goal was decided before the pods were listed.
        let changed = (self.fences_all() != fenced).then(clock::now);
        let again = self.due().into_iter().chain(again).chain(changed).min();
        (self.report(goal, Outcome::SETTLED), again)
    }

    fn begin(&mut self, aim: Aim) {
        if self.settled.begin(aim, clock::now()) {
            let all = self.targets.iter_mut().chain(&mut self.removed);
            all.for_each(|target| target.done = false);
        }
    }

    /// Records the state of the targets, which were read or took a step just now.
    fn settle(&mut self, aim: Aim, settled: bool) {
        let settled = settled && self.due().is_none();
        self.settled.set(aim, settled, clock::now());
    }

    /// Starts targets until the lease ends: a start that hangs must not use up the time for the stop.
    async fn run_while_held(&mut self) -> Stepped {
        let permit = self.permit().map(|(permit, _)| permit);
        let ended = async {
            match permit {
                Some(permit) => permit.ended().await,
                None => future::pending().await,
            }
        };
        tokio::select! {
            biased;
            stepped = self.run_targets() => stepped,
            () = ended => {
                // Targets whose start was interrupted may run.
                self.settled.clear();
                for target in &mut self.targets {
                    target.observed = TargetState::Unknown;
                }
                (self.report(Goal::Run, Outcome::UNSETTLED), Some(clock::now()))
            }
        }
    }

    async fn run_targets(&mut self) -> Stepped {
        if self.targets.is_empty() && self.removed.is_empty() {
            return (self.report(Goal::Run, Outcome::SETTLED), None);
        }
        let Some((permit, until)) = self.permit() else {
            // The lease has ended since.
            return (self.report(Goal::Run, Outcome::UNSETTLED), Some(clock::now()));
        };
        let token = permit.token();
        let guards = self.targets.iter().chain(&self.removed).any(Target::is_undone);
        let unguarded = guards && !self.config.permissions.guarded;
        // The pods of a fenced lock that run already must not wait for the API server.
        if unguarded && self.fencing.is_none() {
            return (self.report(Goal::Run, Outcome::WANTS_GUARD), None);
        }
        // The registers concern candidates, not an observer.
        if guards
            && !observes(&self.config.plan)
            && self.may_start_any()
            && let Err(why) = self.declare(token).await
        {
            return self.not_marked(&permit, why).await;
        }
        if unguarded {
            return (self.report(Goal::Run, Outcome::WANTS_GUARD), None);
        }
        if self.wants_read().is_some() {
            return (self.report(Goal::Run, Outcome::UNSETTLED), None);
        }
        let outcome = self.start_targets(&permit).await;
        if outcome.settled {
            self.check_stop_times();
        }
        let retry = if outcome.trouble.is_some() {
            RETRY_TROUBLE
        } else {
            RETRY
        };
        let unchecked = (guards && !self.is_checked(token)).then_some(RETRY);
        let pause = outcome.pause(retry).into_iter().chain(unchecked).min();
        let pause = pause.map(|pause| clock::now() + pause);
        let step = self.due().into_iter().chain(pause).min();
        let poll = if outcome.settled || self.targets.iter().any(Target::is_start_refused) {
            self.poll_readiness(token).await
        } else {
            None
        };
        let again = [step, poll, until].into_iter().flatten().min();
        (self.report(Goal::Run, outcome), again)
    }

    /// Reports whether a target may be started or stopped under the present lease, or runs although it was not started: other
    /// clusters must wait for it.
    fn may_start_any(&self) -> bool {
        let runs = |target: &Target| matches!(target.observed, TargetState::Active | TargetState::Changing);
        let mut targets = self.targets.iter();
        !self.removed.is_empty() || targets.any(|target| target.awaits.is_none() || runs(target))
    }

    async fn start_targets(&mut self, permit: &StartPermit) -> Outcome {
        let aim = Aim::Run(permit.token());
        let mut outcome = Outcome::SETTLED;
        if !self.settled.holds(aim, clock::now()) {
            self.begin(aim);
            let to_stop = StopPermit::of(permit);
            let removed = (&mut self.removed, &mut self.left);
            for step in stop_removed(removed, Deadline::None, &to_stop).await {
                outcome.add(step, true);
            }
            // Concurrent: a target whose API hangs must not use up the time of the others.
            for step in join_all(self.targets.iter_mut().map(|target| target.start(permit))).await {
                outcome.add(step, true);
            }
            self.settle(aim, outcome.pause(RETRY).is_none());
        }
        outcome
    }

    /// Handles a failed mark. Removed targets are stopped nonetheless, since a stop needs no mark.
    async fn not_marked(&mut self, permit: &StartPermit, why: Undeclared) -> Stepped {
        let removed = (&mut self.removed, &mut self.left);
        let steps = stop_removed(removed, Deadline::None, &StopPermit::of(permit)).await;
        let mut outcome = Outcome::UNSETTLED;
        for step in steps {
            outcome.add(step, true);
        }
        if let Undeclared::Trouble(problem) = why {
            outcome.trouble = Some(problem);
        }
        let report = self.report(Goal::Run, outcome);
        (report, Some(clock::now() + RETRY))
    }

    /// Reports, once, each target whose pods may take longer to stop than the lock allows.
    fn check_stop_times(&mut self) {
        if std::mem::replace(&mut self.stop_times_checked, true) {
            return;
        }
        for text in self.config.plan.targets.iter().filter_map(too_short) {
            let reason = EventReason::StopTooShort;
            // This task owns the receiver.
            let _ = self.notes.0.send(Note { reason, text });
        }
    }

    /// Returns when the next poll is due.
    async fn poll_readiness(&mut self, token: FencingToken) -> Option<BootInstant> {
        let after = self.config.plan.failover_after_unready?;
        let found = join_all(self.targets.iter_mut().map(Target::ready)).await;
        Some(self.readiness.take(&found, token, after, clock::now()))
    }

    async fn stop_targets(&mut self, deadline: Deadline, permit: &StopPermit) -> Stepped {
        let mut outcome = Outcome::SETTLED;
        if !self.settled.holds(Aim::Stop, clock::now()) || deadline.is_promised() {
            if deadline.is_promised() {
                self.settled.clear();
            }
            self.begin(Aim::Stop);
            // Concurrent: a target whose API hangs must not use up the time of the others.
            let removed = stop_removed((&mut self.removed, &mut self.left), deadline, permit);
            let declared = self
                .targets
                .iter_mut()
                .map(|target| target.stop(deadline, permit));
            let (removed, steps) = tokio::join!(removed, join_all(declared));
            for step in removed {
                outcome.add(step, true);
            }
            for (target, step) in self.targets.iter().zip(steps) {
                let awaited = target.is_undone() && !step.is_stopped();
                outcome.add(step, awaited);
            }
            self.settle(Aim::Stop, outcome.pause(RETRY).is_none());
        }
        self.readiness.forget();
        let now = clock::now();
        let unsettled = match deadline.at() {
            Some(by) if deadline.is_promised() || outcome.trouble.is_none() => self.stopping.pause(by, now),
            Some(_) | None => RETRY_TROUBLE,
        };
        if outcome.settled {
            outcome.settled = self.on_stopped().await;
        }
        let pause = outcome.pause(unsettled);
        let again = self.due().or_else(|| pause.map(|pause| clock::now() + pause));
        (self.report(Goal::Stop(deadline.at()), outcome), again)
    }

    /// Handles the end of a stop, which a requester may wait for. Returns whether nothing is left to do.
    pub(super) async fn on_stopped(&mut self) -> bool {
        self.stopping.finish();
        self.read_gate.reset();
        self.leases.stopped();
        if self.config.permissions.unreadable {
            self.refuse_stops();
            return true;
        }
        if !self.stop_requests.is_awaited() {
            return true;
        }
        let held = self.leases.delays.marked();
        let held = held.filter(|_| held == self.leases.own && self.leases.won().is_some());
        if let Some(token) = held.filter(|_| self.fencing.is_some()) {
            return self.confirm_stop(token).await;
        }
        self.stop_requests.begin_answer();
        let clean = match held {
            Some(token) => self.mark(token, Mark::Clean).await,
            None => true,
        };
        self.stop_requests.answer(clean);
        self.leases.delays.clear();
        true
    }
}
