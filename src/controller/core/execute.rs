//! Performs each effect with one call or one task.

// A new effect must be performed here.
#![deny(clippy::wildcard_enum_match_arm)]

use std::{sync::Arc, time::Duration};

use tokio::{sync::oneshot, time};

use super::{Executor, Incoming};
use crate::{
    clock,
    controller::{
        coordination::CoordinatorView,
        index::{
            AfterStop, Effect, ElectorChange, Input, MastersRequest, PATIENCE, QuorumChange, SiblingRequest,
            TargetTaskChange, TargetTaskStart, WatchChange, WillingQuestion,
        },
        object::ObjectKey,
        sibling_answers::Round,
        siblings::Siblings,
        target_task::{self, Command, Config, StopRequest},
    },
    elector::Elector,
    lease::{ClusterId, LockName, ReleaseMode, Terms},
    masters::{self, Masters, TakesPart},
    operator::state::InUse,
};

/// Time limit for the scan of a master's keys, of which there may be several hundred thousand.
const WALK: Duration = Duration::from_secs(2);

impl Executor {
    /// Performs an effect. Returns the result if the effect ends at once.
    pub(super) fn execute(&mut self, effect: Effect) -> Option<Input> {
        match effect {
            Effect::Status(write) => self.write_status(write),
            Effect::Object(request) => self.request_object(request),
            Effect::Targets(change) => return self.change_target_task(change),
            Effect::Watch(change) => self.change_watch(change),
            Effect::Quorum(change) => return self.change_quorum(change),
            Effect::Elector(change) => self.change_elector(change),
            Effect::Masters(request) => self.ask_masters(request),
            Effect::Siblings(request) => self.ask_siblings(request),
            Effect::Record(event) => self.kubernetes.events.emit(event),
            Effect::Publish(shown) => self.publish(*shown),
            Effect::EndProcess => self.ends = true,
        }
        None
    }

    fn change_target_task(&mut self, change: TargetTaskChange) -> Option<Input> {
        match change {
            TargetTaskChange::Start(start) => return self.start_target_task(*start),
            TargetTaskChange::Update { key, plan, hands } => self.order(&key, Command::Plan(plan, hands)),
            TargetTaskChange::Stop { key, halt, after } => self.stop_targets(key, halt, after),
            TargetTaskChange::Resume(key) => self.order(&key, Command::Resume),
            TargetTaskChange::CancelDeparture(key) => self.order(&key, Command::CancelDeparture),
            TargetTaskChange::End(key) => drop(self.tasks.targets.remove(&key)),
            TargetTaskChange::PublishCoordinator(view) => self.publish_coordinator(view),
        }
        None
    }

    fn change_watch(&mut self, change: WatchChange) {
        let client = &self.kubernetes.clients.work;
        match change {
            WatchChange::FollowNodeGuards => {
                if let Some(Siblings { namespace, .. }) = &self.followed {
                    self.guards
                        .follow(client, namespace, &self.inbox, Incoming::NodeGuard);
                }
            }
            WatchChange::FollowTemplate(key, reference) => {
                let (reader, inbox) = (&self.kubernetes.reader, self.inbox.clone());
                let (of, what) = (key.clone(), reference.clone());
                let start = |hurry| reader.start(of, what, hurry, inbox, Incoming::Template);
                self.tasks.readings.begin(key, reference, start);
            }
            WatchChange::UnfollowTemplate(key, reference) => self.tasks.readings.end(key, reference),
            WatchChange::HurryTemplate(key, reference) => self.tasks.readings.hurry(key, reference),
            WatchChange::FollowSecrets(plans) => {
                self.secrets
                    .follow(plans.iter(), client, &self.inbox, Incoming::Secret);
            }
        }
    }

    fn ask_siblings(&mut self, request: SiblingRequest) {
        match request {
            SiblingRequest::AskAll(quorums) => {
                let round = self.round(self.siblings.all(), quorums, PATIENCE);
                let broken = Input::SiblingsAnswered(Round::default());
                self.tasks
                    .jobs
                    .start(broken, async move { Input::SiblingsAnswered(round.await) });
            }
            SiblingRequest::AskUses(name, quorums) => {
                let round = self.round(self.siblings.all(), quorums, PATIENCE);
                let broken = Input::Uses(name.clone(), None);
                self.tasks
                    .jobs
                    .start(broken, async move { Input::Uses(name, Some(round.await)) });
            }
        }
    }

    /// Changes the quorums that are open. Returns the result of a change that failed.
    fn change_quorum(&mut self, change: QuorumChange) -> Option<Input> {
        match change {
            QuorumChange::Open { plan, access, stored } => {
                let opened = self.quorums.open(&plan, *access, stored);
                return opened.err().map(|error| {
                    tracing::error!(quorum = plan.name, %error, "quorum could not be opened");
                    Input::NotOpened(plan.name, error.to_string())
                });
            }
            QuorumChange::Close { name, why } => self.quorums.close(&name, why),
            QuorumChange::Adjust { plan, access } => {
                if let Some(running) = self.quorums.get_mut(&plan.name) {
                    if let Err(error) = running.rekey(*access) {
                        tracing::error!(quorum = plan.name, %error, "credentials could not be replaced");
                    }
                    running.adjust(&plan);
                }
            }
            QuorumChange::ReplaceUrl(retired) => {
                let running = self.quorums.get_mut(&retired.quorum)?;
                let error = running.replace_url(&retired.master, &retired.new).err()?;
                tracing::error!(quorum = retired.quorum, master = retired.master, %error,
                    "url of a master could not be replaced; retrying");
                return Some(Input::NotReplaced(retired, error.to_string()));
            }
            QuorumChange::RememberToken { quorum, token } => {
                if let Some(masters) = self.masters_of(&quorum) {
                    // A token too far in the future is refused; its holder reports that.
                    let _ = masters.remember_token(token);
                }
            }
            QuorumChange::ForgetMetrics(name) => self.state.telemetry.forget_quorum(&name),
            QuorumChange::ReportGone(name) => {
                if let Some(gone) = &self.gone {
                    // At the end of the process the receiver is gone.
                    let _ = gone.send(name);
                }
            }
        }
        None
    }

    /// Changes the locks of the elector of a quorum, if the quorum is open.
    fn change_elector(&mut self, change: ElectorChange) {
        match change {
            ElectorChange::ActivateLock(plan) => {
                if let Some(running) = self.quorums.get_mut(&plan.quorum) {
                    running.put_lock(&plan, &self.cluster);
                }
            }
            ElectorChange::RemoveLock {
                quorum,
                lock,
                release_mode,
            } => {
                if let Some(running) = self.quorums.get_mut(&quorum) {
                    running.remove_lock(&lock, release_mode);
                }
            }
            ElectorChange::PutInternal { quorum, lock, terms } => self.put_internal(&quorum, lock, terms),
            ElectorChange::RemoveInternal { quorum, lock } => {
                if let Some(running) = self.quorums.get(&quorum) {
                    running.elector.remove(lock, ReleaseMode::Release);
                }
            }
            ElectorChange::HandOver {
                quorum,
                lock,
                token,
                to,
            } => {
                if let Some(running) = self.quorums.get(&quorum) {
                    running.elector.hand_over_lease(lock, token, to);
                }
            }
        }
    }

    fn put_internal(&self, quorum: &str, lock: LockName, terms: Terms) {
        if let Some(running) = self.quorums.get(quorum) {
            running.elector.put(lock, terms);
        }
    }

    fn masters_of(&self, quorum: &str) -> Option<Masters> {
        Some(self.quorums.get(quorum)?.masters.clone())
    }

    /// Sends requests to the masters, each in a task.
    fn ask_masters(&mut self, request: MastersRequest) {
        match request {
            MastersRequest::BeginInitialization(name) => {
                let broken = Input::InitializationBegun(name.clone(), None);
                self.ask_quorum(&name.clone(), broken, |masters| async move {
                    let end = masters::begin_init(&masters).await;
                    Input::InitializationBegun(name, Some(end))
                });
            }
            MastersRequest::Initialize(name) => {
                let broken = Input::Initialized(name.clone(), None);
                self.ask_quorum(&name.clone(), broken, |masters| async move {
                    let end = masters::init(&masters).await;
                    Input::Initialized(name, Some(end))
                });
            }
            MastersRequest::AskClusters(name) => {
                self.ask_quorum(&name.clone(), Input::Nothing, |masters| async move {
                    let reporters = masters.clusters(WALK).await;
                    Input::Clusters(name, reporters)
                });
            }
            MastersRequest::ForgetEnded(quorum) => {
                self.ask_quorum(&quorum.clone(), Input::Nothing, |masters| async move {
                    match masters.forget_ended().await {
                        Ok(0) => {}
                        Ok(count) => {
                            tracing::info!(quorum, count, "removed registers of locks that ended cleanly")
                        }
                        Err(error) => tracing::info!(
                            quorum,
                            %error,
                            "the registers of locks that ended were not all removed; retrying in an hour"
                        ),
                    }
                    Input::Nothing
                });
            }
            MastersRequest::AskWilling { quorum, questions } => {
                let broken = Input::Willing(quorum.clone(), Vec::new());
                self.ask_quorum(&quorum.clone(), broken, |masters| async move {
                    Input::Willing(quorum, answers(&masters, questions).await)
                });
            }
            MastersRequest::AskCounter(written) => {
                let broken = Input::Counter(written.clone(), None);
                self.ask_quorum(&written.quorum.clone(), broken, |masters| async move {
                    let largest = masters.largest_counter().await;
                    Input::Counter(written, largest)
                });
            }
            MastersRequest::RetireUrl(retired, old_server) => {
                let reason = "the check of the two servers ended unexpectedly; retrying".to_owned();
                let broken = Input::Retired(retired.clone(), Err(reason));
                self.ask_quorum(&retired.quorum.clone(), broken, |masters| async move {
                    let urls = (&*retired.old, &*retired.new);
                    let outcome = masters.retire(&retired.master, urls, old_server).await;
                    Input::Retired(retired, outcome.map_err(|error| error.to_string()))
                });
            }
        }
    }

    /// Sends a request to the masters of a quorum, if it is open. `broken` is the result of a task that panics.
    fn ask_quorum<F>(&mut self, quorum: &str, broken: Input, ask: impl FnOnce(Masters) -> F)
    where
        F: Future<Output = Input> + Send + 'static,
    {
        if let Some(masters) = self.masters_of(quorum) {
            self.tasks.jobs.start(broken, ask(masters));
        }
    }

    fn start_target_task(&mut self, start: TargetTaskStart) -> Option<Input> {
        let TargetTaskStart {
            key,
            plan,
            hands,
            detached,
            own_tokens,
        } = start;
        let (elector, masters, view, unknown) = if detached {
            let (elector, unknown) = Elector::detached();
            (elector, None, unknown.subscribe(), Some(unknown))
        } else {
            let running = self.quorums.get(&plan.quorum);
            let found = running.and_then(|running| Some((running, running.elector.watch(&plan.lock_name)?)));
            let Some((running, view)) = found else {
                return Some(Input::TargetTaskEnded(key));
            };
            let masters = Some(running.masters.clone());
            (running.elector.clone(), masters, view, None)
        };
        let kubernetes = &self.kubernetes;
        let config = Config {
            key: key.clone(),
            plan,
            permissions: hands,
            cluster: self.cluster.clone(),
            client: kubernetes.clients.urgent.clone(),
            shared: kubernetes.shared.clone(),
            rate_limiter: kubernetes.rate_limiter.clone(),
            elector,
            telemetry: self.state.telemetry.clone(),
            view,
            masters,
            sibling_answers: self.sibling_answers.subscribe(),
            coordinator: self.coordinator.subscribe(),
            lost: kubernetes.clients.lost.clone(),
            own_tokens,
        };
        let mut task = target_task::start(config, self.inbox.clone(), Incoming::Report);
        task.detached = unknown;
        self.tasks.targets.insert(key, task);
        None
    }

    pub(super) fn order(&self, key: &ObjectKey, order: Command) {
        if let Some(task) = self.tasks.targets.get(key) {
            task.send(order);
        }
    }

    fn stop_targets(&mut self, key: ObjectKey, halt: StopRequest, after: AfterStop) {
        let (done, stopped) = oneshot::channel();
        self.order(&key, Command::Stop(halt, done));
        match after {
            AfterStop::TakenAway(until) => {
                let left = until.left(clock::now());
                let broken = Input::Stopped(key.clone(), false);
                self.tasks.jobs.start(broken, async move {
                    let end = time::timeout(left, stopped).await;
                    Input::Stopped(key, matches!(end, Ok(Ok(_))))
                });
            }
            AfterStop::Drained(purpose, drained) => {
                let broken = Input::Drained(key.clone(), purpose.clone(), drained.clone());
                // No timeout here: only the target task knows until when the stop can be revoked.
                self.tasks.jobs.start(broken, async move {
                    let mut drained = drained;
                    let end = stopped.await;
                    (drained.stopped, drained.clean) = (end.is_ok(), end == Ok(true));
                    Input::Drained(key, purpose, drained)
                });
            }
        }
    }

    /// Passes the coordinator on to the target tasks. A renewal alone wakes none of them.
    fn publish_coordinator(&self, view: CoordinatorView) {
        self.coordinator.send_if_modified(|known| {
            let wakes = known
                .as_ref()
                .is_none_or(|known| known.settles_at != view.settles_at);
            *known = Some(view);
            wakes
        });
    }

    fn publish(&self, shown: InUse) {
        let quorums = self.quorums.in_use();
        let api_server_answered = Some(self.kubernetes.clients.answered.clone());
        self.state.in_use.store(Arc::new(InUse {
            quorums,
            api_server_answered,
            ..shown
        }));
    }
}

/// Asks the masters all questions at once.
async fn answers(
    masters: &Masters,
    questions: Vec<WillingQuestion>,
) -> Vec<(WillingQuestion, Vec<TakesPart>)> {
    let pairs = |question: &WillingQuestion| {
        let pair = |cluster: &ClusterId| (question.lock.clone(), cluster.clone());
        question.clusters.iter().map(pair).collect::<Vec<_>>()
    };
    let all: Vec<_> = questions.iter().flat_map(pairs).collect();
    let mut taken = masters.take_part(&all).await.into_iter();
    let answered = questions.into_iter().map(|question| {
        let own = taken.by_ref().take(question.clusters.len()).collect();
        (question, own)
    });
    answered.collect()
}
