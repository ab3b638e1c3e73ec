//! Requests are answered later, fail, or get lost.

use std::{collections::BTreeSet, time::Duration};

use super::{OpenQuorum, Outside, Owner, SIBLING};
use crate::{
    api::plan::QuorumPlan,
    controller::{
        index::{Input, simulation::server::Server, urls::RetiredUrl},
        sibling_answers::{Asked, Round},
        writer::Written,
    },
    lease::{BootInstant, LockName},
    masters::{RetireOutcome, Unknown},
    operator::sibling::{Answer, LeaseAnswer, LockAnswer, QuorumAnswer},
};

/// The timeout of a status write, and of any other request.
pub(super) const WRITE: Duration = Duration::from_secs(10);
pub(super) const READ: Duration = Duration::from_secs(150);
pub(super) const COORDINATES: Duration = Duration::from_secs(2);
pub(super) const ABSTAINS: Duration = Duration::from_secs(5);

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

    /// Returns a random failure of a status write.
    pub(super) fn lost(&mut self) -> Written {
        match self.random.u8(..4) {
            0 if !self.server.down => Written::Conflict,
            1 if !self.server.down => Written::Refused("a test".into()),
            _ => Written::Failed("no answer in time".into()),
        }
    }

    /// Returns the end of a request and its result.
    pub(super) fn request<T>(
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
    pub(super) fn open(&mut self, plan: QuorumPlan) -> Vec<Input> {
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

    pub(super) fn retire(&mut self, retired: RetiredUrl) {
        let outcome = if self.faults.keeps_votes {
            let reason = Unknown::Silent;
            RetireOutcome::OldUnreachable { reason }
        } else {
            self.retired.insert(retired.clone());
            RetireOutcome::Retired
        };
        self.answer(Input::Retired(retired, Ok(outcome)));
    }

    pub(super) fn replace_url(&mut self, retired: RetiredUrl) -> Vec<Input> {
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
            of_asker: owner == Owner::Me,
            fencing_token: token,
            valid_for_milliseconds: u64::try_from(until.left(self.now).as_millis()).unwrap(),
        });
        LockAnswer {
            contends: true,
            lease,
        }
    }
}
