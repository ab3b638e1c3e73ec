//! The core's part in a hand-over that somebody asks for.

use super::{
    Core, Job,
    drain::{Drained, Purpose},
    targets::paused,
};
use crate::{
    api::hand_over::HandOverAnswer,
    clock,
    controller::{
        hand_over::{acceptance, answer, decide, refusal, request},
        object::ObjectKey,
        target_task::Command,
    },
};

impl Core {
    /// Answers a request to pass a lock on, if this replica holds it; else it is for the one that does.
    pub(super) fn answer_hand_over(&mut self, key: &ObjectKey) {
        let Some(entry) = self.locks.get(key) else { return };
        let text = request(&entry.object.metadata).cloned();
        if let Some(draining) = &entry.draining {
            if let (Purpose::Asked(asked), Some(warden)) = (draining, &entry.warden)
                && text.as_ref() != Some(asked)
            {
                // It was withdrawn. Another one is looked at when this is over.
                warden.send(Command::Resume);
            }
            return;
        }
        let Some(text) = text else { return };
        if self.answering.get(key) == Some(&text) {
            return;
        }
        let put = entry.put.as_ref();
        let Some((plan, quorum)) = put.and_then(|plan| Some((plan, self.fleet.get(&plan.quorum)?))) else {
            return;
        };
        let standing = quorum.elector.watch(&plan.lock_name);
        let authority = standing.and_then(|standing| standing.borrow().authority_at(clock::now()));
        let Some(authority) = authority else { return };
        let asked = (plan.as_ref(), paused(&entry.object));
        let decision = decide(&text, authority.token, asked, &self.cluster, clock::unix_time());
        let (to, reason) = (decision.to, decision.answer.message.clone());
        tracing::info!(object = %format!("LeaderLock {key}"), to = to.as_ref().map(ToString::to_string), reason,
            "hand-over asked for");
        match to {
            Some(to) if plan.switches() => {
                let purpose = Purpose::Asked(text);
                return self.drain(key, authority.token, to, purpose, decision.patience);
            }
            Some(to) => quorum
                .elector
                .hand_over_lease(plan.lock_name.clone(), authority.token, to),
            None => {}
        }
        self.reply(key, text, decision.answer);
    }

    /// What ran was stopped, and the lease is passed on by now; or it was not, and runs on.
    pub(super) fn on_asked_drained(&mut self, key: &ObjectKey, text: String, drained: &Drained) {
        let Some(entry) = self.locks.get(key) else { return };
        if drained.stopped {
            let answer = acceptance(&text, drained.token, &drained.to);
            return self.reply(key, text, answer);
        }
        if request(&entry.object.metadata) != Some(&text) {
            return;
        }
        let holds = self.holds_lease(key, drained.token);
        let trouble = entry.warden.as_ref().and_then(|warden| warden.last.as_ref());
        let trouble = trouble.and_then(|report| report.trouble.as_ref());
        let message = match trouble {
            _ if !holds => format!("the lease with token {} ended meanwhile", drained.token.0),
            Some(trouble) => format!(
                "its targets could not be stopped, and run again: {}",
                trouble.message
            ),
            None => format!(
                "its targets were not stopped within {} s, and run again",
                drained.bound.as_secs()
            ),
        };
        let answer = refusal(&text, message);
        self.reply(key, text, answer);
    }

    fn reply(&mut self, key: &ObjectKey, text: String, reply: HandOverAnswer) {
        self.answering.insert(key.clone(), text.clone());
        let (client, key) = (self.clients.urgent.clone(), key.clone());
        self.jobs.start(Job::Answered(key.clone()), async move {
            answer(client, key.clone(), text, reply).await;
            Job::Answered(key)
        });
    }

    pub(super) fn on_answered(&mut self, key: &ObjectKey) {
        self.answering.remove(key);
    }
}
