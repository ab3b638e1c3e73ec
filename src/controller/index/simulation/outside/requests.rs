//! Performs the effects: requests are answered later, fail, or get lost.

use std::{collections::BTreeSet, time::Duration};

use super::{Focus, OpenQuorum, Outside, Owner, SIBLING, Task, stops::Stops};
use crate::{
    api::{hand_over::REQUEST, leader_lock::LockState, plan::QuorumPlan},
    controller::{
        index::{
            CoordinatorWriteEnd, Effect, Guarded, Input, LockReadEnd, simulation::server::Server,
            urls::RetiredUrl,
        },
        sibling_answers::{Asked, Round},
        writer::{Item, Written},
    },
    lease::{BootInstant, FencingToken, LockName, Participation},
    masters::{Reporters, RetireOutcome, TakesPart, Unknown},
    operator::sibling::{Answer, LeaseAnswer, LockAnswer, QuorumAnswer},
};

/// The timeout of a status write, and of any other request.
const WRITE: Duration = Duration::from_secs(10);
const READ: Duration = Duration::from_secs(150);
const COORDINATES: Duration = Duration::from_secs(2);
const ABSTAINS: Duration = Duration::from_secs(5);
const OTHER: &str = "us-1/other";

impl Outside {
    /// Returns when an answer arrives.
    pub(super) fn delay(&mut self) -> BootInstant {
        let milliseconds = if self.calm { 1 } else { self.random.u64(..2_000) };
        self.now + Duration::from_millis(milliseconds)
    }

    pub(super) fn answer(&mut self, input: Input) {
        let at = self.delay();
        self.due.push((at, input));
    }

    /// Returns when a request to the API server fails, and whether it was carried out: it fails at once, or has no
    /// answer within its timeout.
    pub(super) fn fails(&mut self, patience: Duration) -> Option<(BootInstant, bool)> {
        if self.failing > 0 && patience == READ {
            self.failing -= 1;
            return Some((self.now, false));
        }
        if self.calm || (!self.server.down && self.random.u8(..10) > 0) {
            return None;
        }
        let late = self.random.bool();
        let at = if late { self.now + patience } else { self.delay() };
        Some((at, late && !self.server.down))
    }

    /// Performs one effect. Returns the results that are available at once.
    pub(in crate::controller::index::simulation) fn execute(&mut self, effect: Effect) -> Vec<Input> {
        self.executed += 1;
        match effect {
            Effect::WriteLock { key, version, status } => {
                let lost = self.lost();
                let write = |server: &mut Server| server.write_lock(&key, &version, &status);
                let (at, end) = self.request(WRITE, lost, write);
                self.due.push((at, Input::Written(Item::Lock(key), end)));
            }
            Effect::WriteQuorum {
                name,
                version,
                status,
            } => {
                let lost = self.lost();
                let write = |server: &mut Server| server.write_quorum(&name, &version, &status);
                let (at, end) = self.request(WRITE, lost, write);
                self.due.push((at, Input::Written(Item::Quorum(name), end)));
            }
            Effect::SetFinalizer { key, uid, change } => {
                let write = |server: &mut Server| server.set_finalizer(&key, uid.as_deref(), &change);
                let (at, end) = self.request(READ, Err("no answer".to_owned()), write);
                self.may_recreate(&key.name);
                self.due.push((at, Input::Finalizer { key, uid, end }));
            }
            Effect::ReadLock(key) => {
                let sent = self.now;
                let failed = LockReadEnd::Failed("no answer".to_owned());
                let (at, end) = self.request(READ, failed, |server| server.read_lock(&key));
                self.due.push((at, Input::LockRead { key, sent, end }));
            }
            Effect::WriteCoordinator(write) => {
                let lost = CoordinatorWriteEnd::Failed {
                    forbidden: false,
                    reason: "no answer".to_owned(),
                };
                let (at, end) = self.request(COORDINATES, lost, |server| server.write_coordinator(&write));
                self.due.push((at, Input::CoordinatorWritten(end)));
            }
            Effect::SetQuorumFinalizers {
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
            Effect::Abstain {
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
            Effect::EndAbstention { object, .. } => {
                let lost = Err(String::new());
                // Its end is not awaited.
                let _ = self.request(ABSTAINS, lost, |server| server.abstain(&object, None));
            }
            Effect::AnswerHandOver { key, .. } => {
                self.server.annotate(&key.name, REQUEST, None);
                self.answer(Input::HandOverAnswered(key));
            }
            Effect::AskSiblings(asked) => {
                let round = self.round(asked);
                self.answer(Input::SiblingsAnswered(round));
            }
            Effect::AskUses(name, asked) => {
                let round = self.round(asked);
                self.answer(Input::Uses(name, Some(round)));
            }
            Effect::ForgetEnded(_) => self.answer(Input::Nothing),
            Effect::AskClusters(name) => {
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
            Effect::AskWilling { quorum, questions } => {
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
            Effect::RetireUrl(retired, _) => self.retire(retired),
            Effect::ReplaceUrl(retired) => return self.replace_url(retired),
            Effect::OpenQuorum { plan, .. } => return self.open(plan),
            Effect::AskCounter(written) => {
                let quorum = self.quorums.get(&written.quorum);
                let largest = quorum.map(|_| FencingToken(u64::MAX / 2));
                self.answer(Input::Counter(written, largest));
            }
            effect => self.execute_here(effect),
        }
        Vec::new()
    }

    /// Returns a random failure of a status write.
    fn lost(&mut self) -> Written {
        match self.random.u8(..4) {
            0 if !self.server.down => Written::Conflict,
            1 if !self.server.down => Written::Refused("a test".into()),
            _ => Written::Failed("no answer in time".into()),
        }
    }

    /// Returns the end of a request and its result.
    fn request<T>(
        &mut self,
        patience: Duration,
        lost: T,
        act: impl FnOnce(&mut Server) -> T,
    ) -> (BootInstant, T) {
        let Some((at, carried_out)) = self.fails(patience) else {
            let end = act(&mut self.server);
            return (self.delay(), end);
        };
        if carried_out {
            act(&mut self.server);
        }
        (at, lost)
    }

    /// Connects to the masters, or fails.
    fn open(&mut self, plan: QuorumPlan) -> Vec<Input> {
        if self.faults.refuses {
            return vec![Input::NotOpened(plan.name, "a test".to_owned())];
        }
        let voting = match (self.calm, self.blind) {
            (_, true) => 1,
            (true, _) => 3,
            (false, _) => self.random.usize(1..4),
        };
        let masters = plan.masters.into_iter().map(|master| (master.name, master.url));
        let masters = masters.collect();
        let locks = self.past.remove(&plan.name).unwrap_or_default();
        let open = OpenQuorum {
            voting,
            masters,
            locks,
        };
        self.quorums.insert(plan.name, open);
        Vec::new()
    }

    fn retire(&mut self, retired: RetiredUrl) {
        let outcome = if self.faults.keeps_votes {
            let reason = Unknown::Silent;
            RetireOutcome::OldUnreachable { reason }
        } else {
            self.retired.insert(retired.clone());
            RetireOutcome::Retired
        };
        self.answer(Input::Retired(retired, Ok(outcome)));
    }

    fn replace_url(&mut self, retired: RetiredUrl) -> Vec<Input> {
        if self.faults.refuses {
            return vec![Input::NotReplaced(retired, "a test".to_owned())];
        }
        let quorum = self.quorums.get_mut(&retired.quorum);
        let masters = quorum.into_iter().flat_map(|quorum| &mut quorum.masters);
        for (_, url) in masters.filter(|(name, _)| *name == retired.master) {
            url.clone_from(&retired.new);
        }
        Vec::new()
    }

    /// Performs the effects that concern this process alone.
    pub(super) fn execute_here(&mut self, effect: Effect) {
        match effect {
            Effect::CloseQuorum { name, .. } => {
                self.forget_connections(&name);
                self.answer(Input::QuorumClosed(name));
            }
            Effect::ActivateLock(plan) => {
                let contends = plan.state == LockState::Enabled;
                self.put(&plan.quorum, plan.lock_name.clone(), contends, plan.abstains);
            }
            Effect::PutInternal { quorum, lock, terms } => {
                let contends = terms.participation == Participation::Contend;
                self.put(&quorum, lock, contends, false);
            }
            Effect::RemoveLock { quorum, lock, .. } | Effect::RemoveInternal { quorum, lock } => {
                if let Some(stand) = self.quorums.get_mut(&quorum).and_then(|q| q.locks.get_mut(&lock)) {
                    stand.contends = None;
                    stand.owner = stand.owner.filter(|(owner, ..)| *owner != Owner::Me);
                }
            }
            Effect::FollowNodeGuards => self.follows_guards = true,
            Effect::FollowTemplate(key, reference) => {
                self.templates.insert((key, reference));
            }
            Effect::UnfollowTemplate(key, reference) => {
                self.templates.remove(&(key, reference));
            }
            Effect::HandOver { quorum, lock, .. } => self.hand_overs.push((quorum, lock)),
            Effect::StartTargetTask(start) => {
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
            Effect::UpdateTargetTask { key, plan, hands } => {
                if let Some(task) = self.tasks.get_mut(&key) {
                    (task.plan, task.hands) = (plan, hands);
                }
            }
            Effect::StopTargets { key, halt, after } => self.stop_targets(&key, halt, after),
            Effect::ResumeTargets(key) => {
                if let Some(task) = self.tasks.get_mut(&key) {
                    task.stops.lift();
                }
            }
            Effect::CancelDeparture(key) => {
                if let Some(task) = self.tasks.get_mut(&key) {
                    task.stops.cancel();
                }
            }
            Effect::EndTargetTask(key) => self.end_task(&key),
            _ => {}
        }
    }

    /// Returns the answer of the sibling.
    pub(in crate::controller::index::simulation) fn round(&self, asked: Asked) -> Round {
        let identity = (self.cluster.uid(), "me");
        if !self.sibling_answers {
            let unanswered = BTreeSet::from([SIBLING.to_owned()]);
            return Round::new(self.now, Vec::new(), identity.0, identity.1)
                .about(asked, true)
                .without(unanswered);
        }
        let declared = |name: &str| self.server.quorums.contains_key(name);
        let asked_here = asked.iter().filter(|(name, _)| declared(name));
        let quorums = asked_here.map(|(name, locks)| {
            let answers = locks
                .iter()
                .map(|lock| (lock.clone(), self.answer_of(name, lock)));
            let answer = QuorumAnswer {
                majority: self.sibling_sees,
                locks: answers.collect(),
            };
            (name.clone(), answer)
        });
        let answer = Answer {
            cluster: self.cluster.uid().to_owned(),
            identity: SIBLING.to_owned(),
            finalizer: "redlock.dev/in-use-all".to_owned(),
            uses: BTreeSet::new(),
            api_contact_age_milliseconds: self.sibling_reaches_api.then_some(0),
            stopping: false,
            quorums: quorums.collect(),
        };
        Round::new(self.now, vec![answer], identity.0, identity.1).about(asked, false)
    }

    pub(super) fn answer_of(&self, quorum: &str, lock: &str) -> LockAnswer {
        let stand = LockName::any(lock).ok();
        let stand = stand.and_then(|lock| self.quorums.get(quorum)?.locks.get(&lock));
        let owner = stand
            .and_then(|stand| stand.owner)
            .filter(|(owner, _, until)| *until > self.now && (self.sibling_sees || *owner == Owner::Sibling));
        let lease = owner.map(|(owner, token, until)| LeaseAnswer {
            own: owner == Owner::Sibling,
            own_cluster: owner != Owner::Elsewhere,
            fencing_token: token,
            valid_for_milliseconds: u64::try_from(until.left(self.now).as_millis()).unwrap(),
        });
        LockAnswer {
            contends: true,
            lease,
        }
    }
}
