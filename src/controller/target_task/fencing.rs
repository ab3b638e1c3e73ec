//! Handles the steps that node fencing adds to the task of a lock: the delay that its holder declares, and
//! the confirmation that all of its pods are gone.

use std::time::Duration;

use futures_util::future::join_all;

use super::{RETRY, TargetTask, goal::Goal, mark::Undeclared, settled::Aim, target::Target};
use crate::{
    api::plan::LockPlan,
    clock,
    controller::problem::Problem,
    lease::{
        BootInstant, FencingToken, Mark,
        fence::{Begun, Reach, Succession, UnknownPods},
    },
    targets::{Epoch, EventReason, FencedPods, Gone, Note, Shared},
};

/// The pods of a fenced lock, and the progress of its present lease.
pub(super) struct Fencing {
    pub(super) pods: FencedPods,
    reach: Option<Reach<Epoch>>,
    /// Whether a pod that is not fenced runs, according to the last check of the targets.
    unfenced: Option<bool>,
    /// The lease under which the targets were last checked.
    checked: Option<FencingToken>,
    /// The lease under which a majority forbids starts.
    closed: Option<FencingToken>,
    /// The lease whose end was reported as not confirmed.
    reported: Option<FencingToken>,
    /// A lease that an earlier task marked, until it is handed to this cluster.
    inherited: Option<FencingToken>,
}

impl Fencing {
    /// Follows the pods of a fenced lock; returns `None` for any other lock.
    pub(super) fn of(plan: &LockPlan, shared: &Shared) -> Option<Self> {
        plan.is_fenced().then(|| Self {
            pods: shared.fenced_pods(&plan.namespace, &plan.name),
            reach: None,
            unfenced: None,
            checked: None,
            closed: None,
            reported: None,
            inherited: None,
        })
    }

    /// Reports whether the pods of the targets were never listed.
    pub(super) fn is_unchecked(&self) -> bool {
        self.unfenced.is_none()
    }

    /// Reports whether every pod of the targets is known to be fenced.
    pub(super) fn fences_all(&self) -> bool {
        self.unfenced == Some(false)
    }

    /// Determines the reach of a new lease before its mark is sent.
    fn reach(
        &mut self,
        token: FencingToken,
        succession: Succession,
        begun: Begun,
        now: Option<Epoch>,
    ) -> Result<(), Undeclared> {
        if self.reach.is_some_and(|reach| reach.token == token) {
            return Ok(());
        }
        self.inherited = (begun == Begun::Marked).then_some(token);
        let reach = Reach::of(token, succession, begun, self.reach, now);
        let trouble = || self.pods.trouble();
        self.reach = Some(reach.ok_or_else(|| {
            trouble().map_or(Undeclared::Awaited, |error| {
                Undeclared::Trouble(Problem::new(error.reason(), error.to_string()))
            })
        })?);
        Ok(())
    }

    /// Returns the epoch since which this holder knows the pods.
    fn known_since(&self, token: FencingToken) -> Result<Epoch, Doubt> {
        let reach = self.reach.filter(|reach| reach.token == token);
        let known = reach.map_or(Err(UnknownPods::Always), |reach| reach.since(clock::now()));
        let unseen = "this replica does not know all pods that ran under the leases of this cluster";
        let (since, until) = match known {
            Ok(since) => (since, None),
            Err(UnknownPods::Until { since, until }) => (since, Some(until)),
            Err(UnknownPods::Always) => return Err(Doubt::Lasting(unseen.to_owned())),
        };
        if let Some(why) = self.pods.unknown(since) {
            return Err(Doubt::Lasting(why));
        }
        until.map_or(Ok(since), |until| Err(Doubt::Until(until)))
    }
}

/// The reason why it is not known whether the pods are gone.
enum Doubt {
    /// Until this time, pods may run under permits of an earlier lineage.
    Until(BootInstant),
    Lasting(String),
}

/// The progress of the confirmation that all pods are gone.
enum Confirmation {
    /// The stop request is answered.
    Over,
    Again,
}

impl TargetTask {
    /// Returns the delay that the holder of a fenced lock declares (P-116), or the reason why it cannot do so yet.
    ///
    /// A lease that continues the pods of a sibling is marked without a request to the API server: until the
    /// lease is marked, its pods run under the reservation alone.
    pub(super) async fn fenced_delay(&mut self, token: FencingToken) -> Result<Duration, Undeclared> {
        let plan = self.config.plan.clone();
        // Read before the view: if the view shows no mark, every pod that starts under a mark sent since then
        // is known.
        let now = self.fencing.as_ref().and_then(|fencing| fencing.pods.epoch());
        let (succession, begun) = {
            let view = self.config.view.borrow();
            (view.succession, Begun::of(view.is_marked(token), view.marks))
        };
        let (Some(fencing), Some(succession)) = (&mut self.fencing, succession) else {
            return Ok(plan.takeover_delay);
        };
        fencing.reach(token, succession, begun, now)?;
        if fencing.inherited == Some(token) {
            return self.continue_inherited(token, plan.takeover_delay).await;
        }
        let (declared, adopted) = (self.leases.delays.of(token), self.leases.delays.adopted());
        if declared.is_none() && !adopted.is_zero() {
            return Ok(plan.fenced_delay());
        }
        if let Some(declared) = declared
            && self.is_checked(token)
            && self.settled.holds(Aim::Run(token), clock::now())
        {
            return Ok(declared);
        }
        match (self.check_pods(Some(token)).await, declared) {
            (Ok(false), _) => Ok(plan.fenced_delay()),
            (Ok(true), _) => Ok(plan.takeover_delay),
            (Err(_), Some(declared)) => Ok(declared),
            (Err(problem), None) => Err(Undeclared::Trouble(problem)),
        }
    }

    /// Handles a lease that an earlier task marked: starts may be forbidden under it (`closed`), which no
    /// later task can revoke. The lease is handed to this cluster, and its pods continue under the next
    /// lease. If a pod is not fenced, the lease is kept: the end of a lease stops such a pod.
    async fn continue_inherited(
        &mut self,
        token: FencingToken,
        ordinary: Duration,
    ) -> Result<Duration, Undeclared> {
        match self.check_pods(Some(token)).await {
            Ok(false) => {
                if let Some(fencing) = &mut self.fencing {
                    fencing.inherited = None;
                }
                self.leases.hand_to_sibling(token);
                self.continue_under_the_next(token);
                Err(Undeclared::Awaited)
            }
            Ok(true) => Ok(ordinary),
            Err(problem) => Err(Undeclared::Trouble(problem)),
        }
    }

    /// Reports whether the pods of the targets were checked under this lease. Only a fenced lock needs the
    /// check.
    pub(super) fn is_checked(&self, token: FencingToken) -> bool {
        let fencing = self.fencing.as_ref();
        fencing.is_none_or(|fencing| fencing.checked == Some(token))
    }

    /// Determines whether a pod of the targets that is not fenced runs; `token` belongs to the lease under
    /// which the pods run.
    pub(super) async fn check_pods(&mut self, token: Option<FencingToken>) -> Result<bool, Problem> {
        if self.fencing.is_none() {
            return Ok(true);
        }
        let all = self.targets.iter_mut().chain(&mut self.removed);
        let found = join_all(all.map(Target::unfenced)).await;
        let found: Result<Vec<Option<String>>, Problem> = found.into_iter().collect();
        let unfenced = found.map(|found| found.iter().any(Option::is_some));
        if let Some(fencing) = &mut self.fencing {
            fencing.checked = token.filter(|_| unfenced.is_ok());
            fencing.unfenced = unfenced.as_ref().ok().copied().or(fencing.unfenced);
        }
        unfenced
    }

    /// Marks the lease of a paused lock: its pods continue to run. Returns when to try again.
    pub(super) async fn mark_while_paused(&mut self, goal: Goal) -> Option<BootInstant> {
        let permit = self
            .permit()
            .filter(|_| goal == Goal::Run && self.fencing.is_some());
        let token = permit?.0.token();
        let declared = self.declare(token).await;
        (declared.is_err() || !self.is_checked(token)).then(|| clock::now() + RETRY)
    }

    /// Confirms that all pods are gone after the targets were stopped under this lease, and answers the stop
    /// request. Returns whether no further step is needed.
    pub(super) async fn confirm_stop(&mut self, token: FencingToken) -> bool {
        match self.confirm(token).await {
            Ok(Confirmation::Over) => true,
            Ok(Confirmation::Again) => false,
            // The answer may end this task, so the event is emitted with the report of this step.
            Err(why) if self.report_unconfirmed(token, &why) => false,
            Err(_) => {
                self.give_up(token);
                true
            }
        }
    }

    /// Emits the event for an end that is not confirmed, once for each lease. Returns whether the event was
    /// emitted.
    fn report_unconfirmed(&mut self, token: FencingToken, why: &str) -> bool {
        let reported = self
            .fencing
            .as_mut()
            .map(|fencing| fencing.reported.replace(token));
        if reported != Some(Some(token)) {
            let reason = EventReason::EndNotConfirmed;
            let text = format!("the lease with token {} is not given up early: {why}", token.0);
            // This task owns the receiver.
            let _ = self.notes.0.send(Note { reason, text });
            return true;
        }
        false
    }

    /// Takes one step: forbids starts, judges the pods, then records the clean end (P-110). `Err` is the reason why
    /// the end is never confirmed.
    async fn confirm(&mut self, token: FencingToken) -> Result<Confirmation, String> {
        let Some(fencing) = &self.fencing else {
            return Ok(Confirmation::Over);
        };
        let (pods, closed) = (fencing.pods.clone(), fencing.closed);
        // Before starts are forbidden, the targets may still run again under this lease.
        let since = match fencing.known_since(token) {
            Ok(since) => since,
            Err(Doubt::Lasting(why)) => return Err(why),
            Err(Doubt::Until(until)) => {
                let why = "pods of this cluster may still run by permits from before this lineage";
                // If the request ends first, the requester learns that now.
                return match self.stop_requests.by() {
                    Some(by) if until < by => self.again(why),
                    _ => Err(why.to_owned()),
                };
            }
        };
        self.stop_requests.begin_answer();
        if closed != Some(token) {
            if !self.mark(token, Mark::Closed).await {
                return self.again("a majority of the masters did not record that no pod starts");
            }
            if let Some(fencing) = &mut self.fencing {
                fencing.closed = Some(token);
            }
        }
        match pods.judge(since).await {
            Ok(Gone::Yes) => {}
            Ok(Gone::Unknown(why)) => return Err(why),
            Ok(Gone::NotYet(pods)) => return self.again(&format!("not ended: {}", pods.join(", "))),
            Err(error) => return self.again(&error.to_string()),
        }
        if !self.mark(token, Mark::Clean).await {
            return self.again("a majority of the masters did not record that all pods are gone");
        }
        self.stop_requests.answer(true);
        self.leases.delays.clear();
        Ok(Confirmation::Over)
    }

    /// Tries again until the end of the request.
    fn again(&self, why: &str) -> Result<Confirmation, String> {
        tracing::debug!(lock = %self.config.plan.lock_name, why, "the end of all pods is not confirmed yet");
        let over = self.stop_requests.by().is_none_or(|by| clock::now() >= by);
        if over {
            Err(why.to_owned())
        } else {
            Ok(Confirmation::Again)
        }
    }

    /// Answers that the end of the pods is not confirmed: the lease is not passed on to another cluster. A
    /// lease under which no pod may start any more ends: this cluster continues under the next lease.
    fn give_up(&mut self, token: FencingToken) {
        if self.stop_requests.carried_out().is_some() {
            self.continue_under_the_next(token);
        }
        self.stop_requests.answer(false);
    }

    /// Refuses all requests to stop: the closed channel shows each requester that nothing was stopped. The
    /// lease of a fenced lock ends as in [`Self::give_up`] if its stop was about to be confirmed.
    pub(super) fn refuse_stops(&mut self) {
        let awaited = self.stop_requests.is_awaited() && self.fencing.is_some();
        if let Some(token) = self.stop_requests.carried_out().filter(|_| awaited) {
            self.continue_under_the_next(token);
        }
        self.stop_requests.refuse();
    }

    /// Hands the lease to this cluster.
    fn continue_under_the_next(&self, token: FencingToken) {
        let config = &self.config;
        let (lock, own) = (config.plan.lock_name.clone(), config.cluster.clone());
        config.elector.hand_over_lease(lock, token, own);
    }
}
