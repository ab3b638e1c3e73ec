//! The core's part in a hand-over that somebody asks for.

use super::{Core, Job};
use crate::{
    clock,
    controller::{
        hand_over::{answer, decide, request},
        object::ObjectKey,
    },
};

impl Core {
    /// Answers a request to pass a lock on, if this replica holds it; else it is for the one that does.
    pub(super) fn answer_hand_over(&mut self, key: &ObjectKey) {
        let Some(entry) = self.locks.get(key) else { return };
        let Some(text) = request(&entry.object.metadata).cloned() else {
            return;
        };
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
        let decision = decide(&text, authority.token, plan, &self.cluster, clock::unix_time());
        let (to, reason) = (decision.to, decision.answer.message.clone());
        tracing::info!(object = %format!("LeaderLock {key}"), to = to.as_ref().map(ToString::to_string), reason,
            "hand-over asked for");
        if let Some(to) = to {
            let (elector, lock) = (&quorum.elector, plan.lock_name.clone());
            elector.hand_over_lease(lock, authority.token, to);
        }
        self.answering.insert(key.clone(), text.clone());
        let (client, key) = (self.clients.urgent.clone(), key.clone());
        self.jobs.spawn(async move {
            answer(client, key.clone(), text, decision.answer).await;
            Job::Answered(key)
        });
    }

    pub(super) fn on_answered(&mut self, key: &ObjectKey) {
        self.answering.remove(key);
    }
}
