//! Asks the other replicas about locks, while this replica cannot see the masters, and when this replica
//! ends.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Effect, Index, Planted, SiblingRequest, World, targets::has_finalizer};
use crate::{
    controller::{
        index::{lock_store::LockEntry, quorum_store::QuorumEntry},
        object::ObjectKey,
        sibling_answers::{Asked, CombinedAnswer, Round, Witness},
        writer::Item,
    },
    lease::{BootInstant, FencingToken, LockName},
    telemetry::SiblingContact,
};

/// Interval between questions to a sibling, while they are needed.
const EVERY: Duration = Duration::from_millis(400);
/// Interval between questions to a sibling at rest: a connection that is lost is reported before it is needed.
const AT_REST: Duration = Duration::from_secs(30);
/// Interval between questions of a replica that is cut off from the API server.
const CUT_OFF: Duration = Duration::from_secs(2);
/// The time after which a sibling that did not answer is asked again.
const CONFIRMED: Duration = Duration::from_secs(3);
/// Timeout of an answer.
pub(in crate::controller) const PATIENCE: Duration = Duration::from_millis(500);
/// Timeout of the answers to the last question. Targets that no sibling takes over are stopped.
pub(in crate::controller) const LAST_PATIENCE: Duration = Duration::from_secs(1);
/// The validity of an answer that contains no time.
const FRESH: Duration = Duration::from_secs(2);
/// The maximum number of locks without targets in one question: more than the statuses that are written until
/// the next question.
const AT_ONCE: usize = 512;

/// The rounds of questions.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// The last completed round.
    pub(super) round: Round,
    under_way: bool,
    /// Locks whose statuses this replica may have to write once the siblings have answered.
    waiting: BTreeMap<ObjectKey, (String, LockName)>,
    /// The time at which the last round began.
    at: Option<BootInstant>,
    /// The time at which a replica that is cut off asks again.
    cut_off_at: BootInstant,
    /// Whether the reason why this replica is not ready was reported, or the replica was ready.
    pub(super) reported_not_ready: bool,
    /// The connections that the last round has shown, and since when; and those that are reported: a second round
    /// confirms a loss.
    contact: Option<(SiblingContact, BootInstant)>,
    pub(super) reported: Option<SiblingContact>,
}

impl Index {
    /// Asks about the locks whose holder this replica cannot see.
    pub(super) fn ask_siblings(&mut self, at: &World<'_>) {
        let now = at.now;
        if self.asking.under_way || self.asking.at.is_some_and(|asked| now < asked + EVERY) {
            return;
        }
        let mut quorums = self.unseen(at);
        if self.is_cut_off(at) && now >= self.asking.cut_off_at {
            self.asking.cut_off_at = now + CUT_OFF;
            // The answers show whether a sibling can take over.
            for (quorum, locks) in self.last_question() {
                quorums.entry(quorum).or_default().extend(locks);
            }
        }
        if quorums.is_empty() && !self.checks_connections(now) {
            return;
        }
        (self.asking.under_way, self.asking.at) = (true, Some(now));
        self.effects
            .push(Effect::Siblings(SiblingRequest::AskAll(quorums)));
    }

    /// Reports whether the connections to the siblings are checked now, which no decision needs.
    fn checks_connections(&self, now: BootInstant) -> bool {
        let last = self.asking.contact.as_ref().map(|(contact, _)| contact);
        let confirmed = last == self.asking.reported.as_ref();
        let every = if confirmed { AT_REST } else { CONFIRMED };
        self.me.follows_siblings && self.asking.at.is_none_or(|asked| now >= asked + every)
    }

    /// Reports the connections to the siblings once a second round has confirmed them.
    fn report_contact(&mut self, contact: &SiblingContact, sent: BootInstant) {
        let since = match &self.asking.contact {
            Some((known, since)) if known.unanswered == contact.unanswered => *since,
            Some(_) | None => sent,
        };
        self.asking.contact = Some((contact.clone(), since));
        if !contact.unanswered.is_empty() && sent < since + CONFIRMED {
            return;
        }
        let reported = self.asking.reported.replace(contact.clone()).unwrap_or_default();
        for pod in contact.unanswered.difference(&reported.unanswered) {
            tracing::warn!(
                pod,
                "the other replica is ready and does not answer: a replica that loses the masters cannot ask it; check the \
                 NetworkPolicies for the port that the pod calls http"
            );
        }
        for pod in reported.unanswered.difference(&contact.unanswered) {
            tracing::info!(pod, "the other replica answers again, or is gone");
        }
        if reported != *contact {
            for quorum in self.quorums.names() {
                self.writer.push(Item::Quorum(quorum));
            }
            self.publish(false);
        }
    }

    pub(super) fn on_siblings_answered(&mut self, round: Round, at: &World<'_>) {
        self.asking.under_way = false;
        self.end_if_cut_off(&round, at);
        if let Some(sent) = round.sent {
            self.report_contact(&round.contact(), sent);
        }
        if round.is_heartbeat() {
            return;
        }
        let before = std::mem::replace(&mut self.asking.round, round);
        let seen = self.asking.round.seen_by_siblings();
        for quorum in before.seen_by_siblings().difference(&seen) {
            // This replica may have to write the statuses that a sibling has written so far.
            self.write_locks_of(quorum);
            self.writer.push(Item::Quorum(quorum.clone()));
        }
        let waiting = std::mem::take(&mut self.asking.waiting);
        for (key, name) in waiting {
            if self.asking.round.asked_about(&name.0, &name.1) {
                self.writer.push(Item::Lock(key));
            } else {
                self.asking.waiting.insert(key, name);
            }
        }
    }

    /// Returns which sibling can write the status of a quorum, or of a lock whose holder this replica cannot see, from
    /// the answers to questions sent after `since`.
    pub(super) fn witness(
        &self,
        quorum: &str,
        lock: Option<&LockName>,
        former: Option<FencingToken>,
        since: BootInstant,
        at: &World<'_>,
    ) -> Witness {
        let now = at.now;
        let round = &self.asking.round;
        let fresh = round.sent.is_some_and(|sent| sent >= since && now < sent + FRESH);
        if fresh {
            round.witness(quorum, lock, former)
        } else {
            Witness::Awaited
        }
    }

    /// Schedules another check of the status of this lock for when the siblings have answered about it.
    pub(super) fn await_siblings(&mut self, key: &ObjectKey, quorum: &str, lock: &LockName) {
        let name = (quorum.to_owned(), lock.clone());
        self.asking.waiting.insert(key.clone(), name);
    }

    /// Returns the last question to the siblings: every quorum, and the locks with targets.
    pub(in crate::controller) fn last_question(&self) -> Asked {
        let all = self.quorums.names().into_iter();
        let mut quorums: Asked = all.map(|name| (name, BTreeSet::new())).collect();
        let plans = self
            .locks
            .with_targets()
            .filter_map(|(_, entry, _)| entry.phase.active_plan());
        for plan in plans {
            let locks = quorums.entry(plan.quorum.clone()).or_default();
            locks.insert(plan.lock_name.to_string());
        }
        quorums
    }

    fn unseen(&self, at: &World<'_>) -> Asked {
        let mut quorums: Asked = BTreeMap::new();
        for entry in self.locks.known().filter_map(|key| self.locks.get(key)) {
            if (entry.phase.task().is_some() || has_finalizer(&entry.object))
                && !self.is_seen(entry, at)
                && let Some((quorum, lock)) = name(entry)
            {
                quorums.entry(quorum).or_default().insert(lock.to_string());
            }
        }
        for name in self.quorums.names() {
            let seen = self.quorums.get(&name).is_some_and(QuorumEntry::has_majority);
            if !seen {
                quorums.entry(name).or_default();
            }
        }
        for (quorum, lock) in self.asking.waiting.values().take(AT_ONCE) {
            quorums
                .entry(quorum.clone())
                .or_default()
                .insert(lock.to_string());
        }
        quorums
    }

    /// Reports whether this replica sees for itself which process holds the lock.
    fn is_seen(&self, entry: &LockEntry, at: &World<'_>) -> bool {
        let plan = entry.phase.active_plan();
        plan.is_some_and(|plan| self.open.get(&plan.quorum).is_some() && at.views.has_majority(&plan.quorum))
    }

    /// Evaluates the last round for a lock that this replica cannot see.
    fn evaluate_last_round<T>(
        &self,
        key: &ObjectKey,
        of: impl FnOnce(&Round, &str, &LockName) -> T,
        at: &World<'_>,
    ) -> Option<T> {
        let entry = self.locks.get(key).filter(|entry| !self.is_seen(entry, at))?;
        let (quorum, lock) = name(entry)?;
        Some(of(&self.asking.round, &quorum, &lock))
    }

    /// Reports whether a sibling with a majority is responsible for the lock, which this replica cannot see.
    pub(super) fn sibling_is_responsible(&self, key: &ObjectKey, at: &World<'_>) -> bool {
        let now = at.now;
        let fresh = |round: &Round| round.sent.is_some_and(|sent| now < sent + FRESH);
        self.evaluate_last_round(
            key,
            |round, quorum, lock| fresh(round) && round.sibling_is_responsible(quorum, lock),
            at,
        )
        .unwrap_or(false)
    }

    /// Reports whether this replica knows if a sibling is responsible for the lock: it sees the masters
    /// itself, or has a fresh answer of every ready sibling.
    pub(super) fn responsibility_is_known(&self, key: &ObjectKey, at: &World<'_>) -> bool {
        let now = at.now;
        let fresh = |round: &Round| round.sent.is_some_and(|sent| now < sent + FRESH);
        let complete = |round: &Round| !round.is_silent() || self.plants(Planted::UnguardsBesideSilence);
        self.evaluate_last_round(
            key,
            |round, quorum, lock| fresh(round) && complete(round) && round.asked_about(quorum, lock),
            at,
        )
        .unwrap_or(true)
    }

    /// Reports whether a sibling proves that this cluster holds the lock, which this replica cannot see.
    pub(super) fn is_proven_held(&self, key: &ObjectKey, at: &World<'_>) -> bool {
        let now = at.now;
        let answer = self
            .evaluate_last_round(key, |round, quorum, lock| round.combined_answer(quorum, lock), at)
            .flatten();
        matches!(answer, Some(CombinedAnswer::Held(until, _)) if now < until)
    }

    /// Reports whether the siblings have had time to answer since this time.
    pub(super) fn asked_since(&self, since: BootInstant, at: &World<'_>) -> bool {
        let now = at.now;
        let sent = self.asking.round.sent;
        sent.is_some_and(|sent| sent >= since) || now.since(since) >= FRESH
    }
}

/// Returns the quorum of a lock and its name on the masters.
pub(super) fn name(entry: &LockEntry) -> Option<(String, LockName)> {
    if let Some(plan) = entry.phase.plan() {
        return Some((plan.quorum.clone(), plan.lock_name.clone()));
    }
    let plan = entry.leftover_plan()?;
    Some((plan.quorum, plan.lock_name))
}
