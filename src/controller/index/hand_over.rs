//! Handles requests for a hand-over.

use std::time::Duration;

use super::{
    Effect, ElectorChange, Index, ObjectRequest, TargetTaskChange, World,
    drain::{Drained, Purpose},
    lock_store::LockEntry,
    targets::paused,
};
use crate::{
    api::hand_over::{HandOverAnswer, HandOverRequest, read},
    controller::{
        hand_over::{Held, acceptance, decide, refusal, request},
        object::ObjectKey,
    },
    lease::ClusterId,
    masters::TakesPart,
};

/// The time after which a cluster that does not take part is one that will not: while its operator is rolled out, no replica
/// shows that the cluster takes part.
const REPLACED: Duration = Duration::from_secs(25);

fn declined(to: &ClusterId) -> String {
    format!(
        "cluster {to} would not take the lock: there, the lock is stepped down, frozen or paused, or its targets are in \
         trouble (see its status)"
    )
}

fn unknown(to: &ClusterId) -> String {
    format!(
        "too few masters answered whether cluster {to} takes the lock within {} s: ask again",
        REPLACED.as_secs()
    )
}

fn unwilling(to: &ClusterId) -> String {
    format!(
        "cluster {to} does not take part in the lock: there, the object is missing, stepped down, paused, deleted or without \
         failoverAfterUnreadySeconds, its targets are in trouble (see its status), or its operator is older or does not run"
    )
}

impl LockEntry {
    /// Returns the cluster that the hand-over request of the object names.
    pub(super) fn handed_to(&self) -> Option<ClusterId> {
        let request: HandOverRequest = read(request(&self.object.metadata)?)?;
        request.cluster()
    }
}

impl Index {
    /// Answers a request for a hand-over if this replica holds the lock; otherwise the holder answers it.
    pub(super) fn answer_hand_over(&mut self, key: &ObjectKey, at: &World<'_>) {
        let Some(entry) = self.locks.get(key) else { return };
        let text = request(&entry.object.metadata).cloned();
        if let Some(draining) = entry.phase.draining() {
            if let (Purpose::Asked(asked), Some(_)) = (&draining.purpose, entry.phase.task())
                && text.as_ref() != Some(asked)
            {
                // The request was withdrawn. A new request is handled after this drain.
                self.effects
                    .push(Effect::Targets(TargetTaskChange::Resume(key.clone())));
            }
            return;
        }
        let Some(text) = text else {
            self.in_flight.asked.remove(key);
            return;
        };
        if self.in_flight.answering.get(key) == Some(&text) {
            return;
        }
        let snapshot = self.snapshot(key, at);
        let authority = snapshot.and_then(|snapshot| snapshot.authority);
        let (Some(plan), Some(authority)) = (entry.phase.active_plan().cloned(), authority) else {
            return;
        };
        let held = Held {
            token: authority.token,
            plan: &plan,
            paused: paused(&entry.object),
        };
        let mut decision = decide(&text, held, &self.me.cluster, at.unix);
        if let Some(to) = decision.to.take_if(|_| plan.switches()) {
            // Running targets are not stopped for a cluster that would not take the lock.
            let since = self.in_flight.first_asked(key, &text, at.now);
            let waited = at.now.since(since) >= REPLACED;
            let chosen = plan.failover_after_unready.is_some();
            match self.takes_part(key, &plan, &to, since) {
                TakesPart::Willing | TakesPart::Abstaining => decision.to = Some(to),
                // Only locks that fail over are shown by a cluster that takes part.
                TakesPart::NotShown if !chosen => decision.to = Some(to),
                TakesPart::Declining => decision.answer = refusal(&text, declined(&to)),
                TakesPart::NotShown if waited => decision.answer = refusal(&text, unwilling(&to)),
                TakesPart::Unknown if waited => decision.answer = refusal(&text, unknown(&to)),
                TakesPart::NotShown | TakesPart::Unknown => {
                    self.due.tasks.insert(key.clone());
                    return;
                }
            }
        }
        let (to, reason) = (decision.to, decision.answer.message.clone());
        tracing::info!(object = %format!("LeaderLock {key}"), to = to.as_ref().map(ToString::to_string), reason,
            "hand-over requested");
        match to {
            Some(to) if plan.switches() => {
                let purpose = Purpose::Asked(text);
                return self.drain(key, authority.token, to, purpose, decision.patience, at);
            }
            Some(to) => self.effects.push(Effect::Elector(ElectorChange::HandOver {
                quorum: plan.quorum.clone(),
                lock: plan.lock_name.clone(),
                token: authority.token,
                to,
            })),
            None => {}
        }
        self.reply(key, text, decision.answer);
    }

    /// Answers a request after its drain: the targets were stopped and the lease is handed over, or they keep running.
    pub(super) fn on_asked_drained(
        &mut self,
        key: &ObjectKey,
        text: String,
        drained: &Drained,
        at: &World<'_>,
    ) {
        let Some(entry) = self.locks.get(key) else { return };
        if drained.ends(&Purpose::Asked(text.clone())) {
            let answer = acceptance(&text, drained.token, &drained.to);
            return self.reply(key, text, answer);
        }
        if request(&entry.object.metadata) != Some(&text) {
            return;
        }
        let holds = self.holds_lease(key, drained.token, at);
        let report = entry.phase.report();
        let trouble = report.and_then(|report| report.trouble.as_ref());
        let message = match trouble {
            _ if drained.stopped => format!(
                "its pods were stopped, and it is not known whether all of them are gone, as event EndNotConfirmed \
                 explains: the lease with token {} has to run out. Set state: SteppedDown in this cluster: another \
                 cluster acquires the lock after that",
                drained.token.0
            ),
            _ if !holds => format!("the lease with token {} ended meanwhile", drained.token.0),
            Some(trouble) => format!(
                "the targets could not be stopped, and were started again: {}",
                trouble.message
            ),
            None => format!(
                "the targets were not stopped within {} s, and were started again",
                drained.bound.as_secs()
            ),
        };
        let answer = refusal(&text, message);
        self.reply(key, text, answer);
    }

    fn reply(&mut self, key: &ObjectKey, text: String, answer: HandOverAnswer) {
        self.in_flight.answering.insert(key.clone(), text.clone());
        self.effects.push(Effect::Object(ObjectRequest::AnswerHandOver {
            key: key.clone(),
            request: text,
            answer,
        }));
    }

    pub(super) fn on_answered(&mut self, key: &ObjectKey) {
        self.in_flight.answering.remove(key);
        self.in_flight.asked.remove(key);
    }
}
