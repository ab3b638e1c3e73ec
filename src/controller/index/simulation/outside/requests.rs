//! What becomes of the effects: requests are answered later, fail, or get lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{OpenQuorum, Outside, Owner, SIBLING, Task, tasks::stopped};
use crate::{
    api::{hand_over::REQUEST, leader_lock::LockState},
    controller::{
        index::{Effect, Guarded, Input, simulation::server::Server},
        sibling_answers::{Asked, Round},
        writer::{Item, Written},
    },
    lease::{BootInstant, FencingToken, LockName, Participation},
    masters::Reporters,
    operator::sibling::{Answer, LeaseAnswer, LockAnswer, QuorumAnswer},
};

/// The longest that a status is waited for, and anything else.
const WRITE: Duration = Duration::from_secs(10);
const READ: Duration = Duration::from_secs(150);

impl Outside {
    /// How long an answer takes.
    pub(super) fn delay(&mut self) -> BootInstant {
        let milliseconds = if self.calm { 1 } else { self.random.u64(..2_000) };
        self.now + Duration::from_millis(milliseconds)
    }

    pub(super) fn answer(&mut self, input: Input) {
        let at = self.delay();
        self.due.push((at, input));
    }

    /// A request to the API server fails at once, or has no answer within its time, and may have been carried out.
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

    /// Carries one effect out. Returns what ends at once.
    pub(in crate::controller::index::simulation) fn execute(&mut self, effect: Effect) -> Vec<Input> {
        self.executed += 1;
        match effect {
            Effect::WriteLock { key, version, status } => {
                let lost = Written::Failed("no answer in time".into());
                let write = |server: &mut Server| server.write_lock(&key, &version, &status);
                let (at, end) = self.request(WRITE, lost, write);
                self.due.push((at, Input::Written(Item::Lock(key), end)));
            }
            Effect::WriteQuorum {
                name,
                version,
                status,
            } => {
                let lost = Written::Failed("no answer in time".into());
                let write = |server: &mut Server| server.write_quorum(&name, &version, &status);
                let (at, end) = self.request(WRITE, lost, write);
                self.due.push((at, Input::Written(Item::Quorum(name), end)));
            }
            Effect::SetFinalizer { key, uid, present } => {
                let write = |server: &mut Server| server.set_finalizer(&key, uid.as_deref(), present);
                let (at, end) = self.request(READ, Err("no answer".to_owned()), write);
                self.due.push((at, Input::Finalizer(key, end)));
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
            Effect::Abstain { key, failover, .. } => {
                self.answer(Input::Abstains(key, failover, Err("a conflict".into())));
            }
            Effect::AnswerHandOver { key, .. } => {
                self.server.annotate(&key.name, REQUEST, None);
                self.answer(Input::HandOverAnswered(key));
            }
            Effect::AskSiblings(asked) => {
                let round = self.round(asked);
                self.answer(Input::Said(round));
            }
            Effect::AskUses(name, asked) => {
                let round = self.round(asked);
                self.answer(Input::Uses(name, Some(round)));
            }
            Effect::AskClusters(name) => self.answer(Input::Clusters(name, Reporters::default())),
            Effect::AskCounter { key, quorum, written } => {
                let largest = self.quorums.get(&quorum).map(|_| FencingToken(u64::MAX / 2));
                self.answer(Input::Counter(key, written, largest));
            }
            effect => self.execute_here(effect),
        }
        Vec::new()
    }

    /// Returns when a request ends, and how.
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

    /// What concerns this process alone.
    pub(super) fn execute_here(&mut self, effect: Effect) {
        match effect {
            Effect::OpenQuorum { plan, .. } => {
                let voting = if self.calm { 3 } else { self.random.usize(..4) };
                let locks = BTreeMap::new();
                self.quorums.insert(plan.name, OpenQuorum { voting, locks });
            }
            Effect::CloseQuorum { name, .. } => {
                self.quorums.remove(&name);
                self.answer(Input::QuorumClosed(name));
            }
            Effect::ActivateLock(plan) => {
                let contends = plan.state == LockState::Enabled;
                self.put(&plan.quorum, plan.lock_name.clone(), contends);
            }
            Effect::PutInternal { quorum, lock, terms } => {
                let contends = terms.participation == Participation::Contend;
                self.put(&quorum, lock, contends);
            }
            Effect::RemoveLock { quorum, lock, .. } => {
                if let Some(stand) = self.quorums.get_mut(&quorum).and_then(|q| q.locks.get_mut(&lock)) {
                    stand.contends = None;
                    stand.owner = stand.owner.filter(|(owner, ..)| *owner != Owner::Me);
                }
            }
            Effect::HandOver { quorum, lock, .. } => self.hand_overs.push((quorum, lock)),
            Effect::StartTargetTask(start) => {
                let task = Task {
                    plan: start.plan,
                    hands: start.hands,
                    stop: None,
                    last: None,
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
                if let Some((_, after)) = self.take_stop(&key) {
                    self.answer(stopped(&key, after, false));
                }
            }
            Effect::EndTargetTask(key) => {
                if let Some(Task {
                    stop: Some((_, after)),
                    ..
                }) = self.tasks.remove(&key)
                {
                    self.answer(stopped(&key, after, false));
                }
            }
            _ => {}
        }
    }

    /// What the sibling answers.
    pub(super) fn round(&self, asked: Asked) -> Round {
        let identity = (self.cluster.uid(), "me");
        if !self.sibling_answers {
            return Round::new(self.now, Vec::new(), identity.0, identity.1).about(asked, true);
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
