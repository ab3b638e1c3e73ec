//! Performs each effect of the index in the world outside of it.

// A new effect must be performed here.
#![deny(clippy::wildcard_enum_match_arm)]

use super::{
    Focus, OTHER, Outside, Owner, Task,
    requests::{ABSTAINS, COORDINATES, READ, WRITE},
    stops::Stops,
};
use crate::{
    api::hand_over::REQUEST,
    api::leader_lock::LockState,
    controller::{
        index::{
            CoordinatorWriteEnd, Effect, ElectorChange, Guarded, Input, LockReadEnd, MastersRequest,
            ObjectRequest, QuorumChange, SiblingRequest, StatusWrite, TargetTaskChange, WatchChange,
            simulation::server::Server,
        },
        writer::Item,
    },
    lease::{FencingToken, Participation},
    masters::{Reporters, TakesPart},
};

impl Outside {
    /// Performs one effect. Returns the results that are available at once.
    pub(in crate::controller::index::simulation) fn execute(&mut self, effect: Effect) -> Vec<Input> {
        self.executed += 1;
        match effect {
            Effect::Status(write) => self.write_status(write),
            Effect::Object(request) => self.request_object(request),
            Effect::Targets(change) => self.change_target_task(change),
            Effect::Watch(change) => self.change_watch(change),
            Effect::Quorum(change) => return self.change_quorum(change),
            Effect::Elector(change) => self.change_elector(change),
            Effect::Masters(request) => self.ask_masters(request),
            Effect::Siblings(request) => self.ask_siblings(request),
            // The rules check them.
            Effect::Record(_) | Effect::Publish(_) | Effect::EndProcess => {}
        }
        Vec::new()
    }

    fn write_status(&mut self, write: StatusWrite) {
        match write {
            StatusWrite::Lock { key, version, status } => {
                let lost = self.lost();
                let write = |server: &mut Server| server.write_lock(&key, &version, &status);
                let (at, end) = self.request(WRITE, lost, write);
                self.due.push((at, Input::Written(Item::Lock(key), end)));
            }
            StatusWrite::Quorum {
                name,
                version,
                status,
            } => {
                let lost = self.lost();
                let write = |server: &mut Server| server.write_quorum(&name, &version, &status);
                let (at, end) = self.request(WRITE, lost, write);
                self.due.push((at, Input::Written(Item::Quorum(name), end)));
            }
        }
    }

    fn request_object(&mut self, request: ObjectRequest) {
        match request {
            ObjectRequest::SetFinalizer { key, uid, change } => {
                let write = |server: &mut Server| server.set_finalizer(&key, uid.as_deref(), &change);
                let (at, end) = self.request(READ, Err("no answer".to_owned()), write);
                self.may_recreate(&key.name);
                self.due.push((at, Input::Finalizer { key, uid, end }));
            }
            ObjectRequest::ReadLock(key) => {
                let sent = self.now;
                let failed = LockReadEnd::Failed("no answer".to_owned());
                let (at, end) = self.request(READ, failed, |server| server.read_lock(&key));
                self.due.push((at, Input::LockRead { key, sent, end }));
            }
            ObjectRequest::WriteCoordinator(write) => {
                let lost = CoordinatorWriteEnd::Failed {
                    forbidden: false,
                    reason: "no answer".to_owned(),
                };
                let (at, end) = self.request(COORDINATES, lost, |server| server.write_coordinator(&write));
                self.due.push((at, Input::CoordinatorWritten(end)));
            }
            ObjectRequest::SetQuorumFinalizers {
                name,
                version,
                finalizers,
                ..
            } => {
                let lost = Guarded::Failed("no answer".to_owned());
                let (at, end) = self.request(READ, lost, |server| {
                    server.set_quorum_finalizers(&name, version.as_deref(), finalizers)
                });
                self.due.push((at, Input::QuorumFinalizers(name, end)));
            }
            ObjectRequest::Abstain {
                key,
                object,
                abstention,
                failover,
            } => {
                let text = serde_json::to_string(&abstention).unwrap();
                let lost = Err("no answer".to_owned());
                let (at, mut end) =
                    self.request(ABSTAINS, lost, |server| server.abstain(&object, Some(text)));
                if self.focus == Focus::Drains && !self.calm && self.random.u8(..3) == 0 {
                    end = Err("the answer is lost".to_owned());
                }
                self.due.push((at, Input::Abstains(key, failover, end)));
            }
            ObjectRequest::EndAbstention { object, .. } => {
                let lost = Err(String::new());
                // Its end is not awaited.
                let _ = self.request(ABSTAINS, lost, |server| server.abstain(&object, None));
            }
            ObjectRequest::AnswerHandOver { key, .. } => {
                self.server.annotate(&key.name, REQUEST, None);
                self.answer(Input::HandOverAnswered(key));
            }
            // No object of this simulation is unreadable.
            ObjectRequest::ReadDeleted { .. } => {}
        }
    }

    fn ask_siblings(&mut self, request: SiblingRequest) {
        match request {
            SiblingRequest::AskAll(asked) => {
                let round = self.round(asked);
                self.answer(Input::SiblingsAnswered(round));
            }
            SiblingRequest::AskUses(name, asked) => {
                let round = self.round(asked);
                self.answer(Input::Uses(name, Some(round)));
            }
        }
    }

    fn ask_masters(&mut self, request: MastersRequest) {
        match request {
            // The masters of this simulation are initialised.
            MastersRequest::BeginInitialization(_) | MastersRequest::Initialize(_) => {}
            MastersRequest::ForgetEnded(_) => self.answer(Input::Nothing),
            MastersRequest::AskClusters(name) => {
                let other = self.other_lives.then(|| OTHER.parse().unwrap());
                let clusters = other.into_iter().collect();
                self.answer(Input::Clusters(
                    name,
                    Reporters {
                        clusters,
                        complete: 3,
                    },
                ));
            }
            MastersRequest::AskWilling { quorum, questions } => {
                let sees = self.quorums.get(&quorum).is_some_and(|quorum| quorum.voting >= 2);
                let takes_part = match (sees, self.other_takes_part) {
                    (false, _) => TakesPart::Unknown,
                    (true, true) => TakesPart::Willing,
                    (true, false) if self.random.bool() => TakesPart::NotShown,
                    (true, false) => TakesPart::Declining,
                };
                let answers = questions.into_iter().map(|question| {
                    let taken = question.clusters.iter().map(|_| takes_part).collect();
                    (question, taken)
                });
                self.answer(Input::Willing(quorum, answers.collect()));
            }
            MastersRequest::RetireUrl(retired, _) => self.retire(retired),
            MastersRequest::AskCounter(written) => {
                let quorum = self.quorums.get(&written.quorum);
                let largest = quorum.map(|_| FencingToken(u64::MAX / 2));
                self.answer(Input::Counter(written, largest));
            }
        }
    }

    fn change_quorum(&mut self, change: QuorumChange) -> Vec<Input> {
        match change {
            // Nothing outside depends on them.
            QuorumChange::Adjust { .. }
            | QuorumChange::RememberToken { .. }
            | QuorumChange::ForgetMetrics(_)
            | QuorumChange::ReportGone(_) => {}
            QuorumChange::ReplaceUrl(retired) => return self.replace_url(retired),
            QuorumChange::Open { plan, .. } => return self.open(*plan),
            QuorumChange::Close { name, .. } => {
                self.forget_connections(&name);
                self.answer(Input::QuorumClosed(name));
            }
        }
        Vec::new()
    }

    fn change_elector(&mut self, change: ElectorChange) {
        match change {
            ElectorChange::ActivateLock(plan) => {
                let contends = plan.state == LockState::Enabled;
                self.put(&plan.quorum, plan.lock_name.clone(), contends, plan.abstains);
            }
            ElectorChange::PutInternal { quorum, lock, terms } => {
                let contends = terms.participation == Participation::Contend;
                self.put(&quorum, lock, contends, false);
            }
            ElectorChange::RemoveLock { quorum, lock, .. }
            | ElectorChange::RemoveInternal { quorum, lock } => {
                if let Some(stand) = self.quorums.get_mut(&quorum).and_then(|q| q.locks.get_mut(&lock)) {
                    stand.contends = None;
                    stand.owner = stand.owner.filter(|(owner, ..)| *owner != Owner::Me);
                }
            }
            ElectorChange::HandOver { quorum, lock, .. } => self.hand_overs.push((quorum, lock)),
        }
    }

    fn change_watch(&mut self, change: WatchChange) {
        match change {
            // Templates and Secrets are seen at once.
            WatchChange::HurryTemplate(..) | WatchChange::FollowSecrets(_) => {}
            WatchChange::FollowNodeGuards => self.follows_guards = true,
            WatchChange::FollowTemplate(key, reference) => {
                self.templates.insert((key, reference));
            }
            WatchChange::UnfollowTemplate(key, reference) => {
                self.templates.remove(&(key, reference));
            }
        }
    }

    fn change_target_task(&mut self, change: TargetTaskChange) {
        match change {
            TargetTaskChange::Start(start) => {
                self.end_task(&start.key);
                let task = Task {
                    plan: start.plan,
                    hands: start.hands,
                    stops: Stops::default(),
                    last: None,
                    won: None,
                    broken: false,
                };
                self.tasks.insert(start.key, task);
            }
            TargetTaskChange::Update { key, plan, hands } => {
                if let Some(task) = self.tasks.get_mut(&key) {
                    (task.plan, task.hands) = (plan, hands);
                }
            }
            TargetTaskChange::Stop { key, halt, after } => self.stop_targets(&key, halt, after),
            TargetTaskChange::Resume(key) => {
                if let Some(task) = self.tasks.get_mut(&key) {
                    task.stops.lift();
                }
            }
            TargetTaskChange::CancelDeparture(key) => {
                if let Some(task) = self.tasks.get_mut(&key) {
                    task.stops.cancel();
                }
            }
            TargetTaskChange::End(key) => self.end_task(&key),
            // The simulated tasks ask the index.
            TargetTaskChange::PublishCoordinator(_) => {}
        }
    }
}
