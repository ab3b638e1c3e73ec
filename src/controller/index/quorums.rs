//! Applies RedisQuorum objects: opens, changes and closes their quorums.

use std::collections::BTreeSet;

use super::{Effect, ElectorChange, Index, Planted, QuorumChange, WatchChange, World, name_clash::clash};
use crate::{
    api::{RedisQuorum, plan::QuorumPlan, vocabulary::ConditionType},
    controller::{
        index::reporter::{Reporter, ReporterTerms},
        object::ObjectKey,
        observe::Observation,
        problem::{Problem, Reason},
        secrets::Found,
        writer::Item,
    },
    masters::QuorumId,
    operator::{access::Access, quorum::check},
    targets::Origin,
};

impl Index {
    pub(super) fn on_quorum(&mut self, observation: Observation<RedisQuorum>, at: &World<'_>) {
        match observation {
            Observation::Seen(object, origin) => self.see_quorum(*object, origin, at),
            Observation::Malformed(metadata, error) => {
                let name = metadata.name.unwrap_or_default();
                if self.quorums.unreadable.get(&name) != Some(&error) {
                    let in_force = self.quorums.get(&name).is_some();
                    tracing::warn!(object = %format!("RedisQuorum {name}"), reason = error, last_valid_stays = in_force,
                        "object cannot be read by this version");
                    self.quorums.unreadable.insert(name.clone(), error);
                    self.due.quorums.insert(name);
                }
            }
            Observation::Gone(key) => self.forget_quorum(&key.name),
            Observation::Synced => {
                self.quorums.synced = true;
                self.due.quorums.extend(self.quorums.names());
            }
            Observation::Failed(_) => {}
        }
    }

    /// Handles a version of an object.
    pub(super) fn see_quorum(&mut self, object: RedisQuorum, origin: Origin, at: &World<'_>) {
        let name = object.metadata.name.clone().unwrap_or_default();
        let generation = |object: &RedisQuorum| {
            (
                object.metadata.uid.clone(),
                object.metadata.generation,
                object.metadata.annotations.clone(),
            )
        };
        let before = self.quorums.get(&name).map(|entry| generation(&entry.object));
        let anew = before != Some(generation(&object));
        self.quorums
            .see(&name, object, origin, (&self.me.cluster, at.now));
        if anew {
            self.open.forget_failure(&name);
            self.due.quorums.insert(name.clone());
        }
        self.writer.push(Item::Quorum(name));
    }

    fn forget_quorum(&mut self, name: &str) {
        self.quorums.forget(name);
        self.open.forget_failure(name);
        self.touch_locks_of(name);
        self.effects
            .push(Effect::Quorum(QuorumChange::ReportGone(name.to_owned())));
    }

    pub(super) fn touch_locks_of(&mut self, quorum: &str) {
        let keys: Vec<ObjectKey> = self.locks.of_quorum(quorum).cloned().collect();
        self.due.locks.extend(keys);
    }

    pub(super) fn write_locks_of(&mut self, quorum: &str) {
        let keys: Vec<ObjectKey> = self.locks.of_quorum(quorum).cloned().collect();
        for key in keys {
            self.writer.push(Item::Lock(key));
        }
    }

    /// Opens a quorum, or changes the running one, as its object declares.
    pub(super) fn apply_quorum(&mut self, name: &str, at: &World<'_>) {
        let Some(wanted) = self.quorums.wanted(name) else {
            return;
        };
        let before = self.use_of(name);
        let outcome = wanted.and_then(|plan| self.use_plan(name, plan, at));
        if let Some(entry) = self.quorums.get_mut(name) {
            match outcome {
                Ok(plan) => {
                    let other = entry.reporting.reporter().and_then(Reporter::clash);
                    let clash = other.map(|other| clash(&self.me.cluster, other));
                    match plan {
                        Some(plan) => entry.phase.open(plan, entry.object.spec.clone(), clash),
                        None => entry.phase.close(clash),
                    }
                }
                Err(problem) => entry.phase.refuse(problem),
            }
        }
        let after = self.use_of(name);
        if before != after {
            if let Some((Some(problem), _)) = &after
                && problem.reason != Reason::Opening
            {
                tracing::warn!(object = %format!("RedisQuorum {name}"), reason = problem.reason.name(),
                    problem.message, "object cannot be used");
            }
            self.touch_locks_of(name);
        }
        self.writer.push(Item::Quorum(name.to_owned()));
    }

    fn use_of(&self, name: &str) -> Option<(Option<Problem>, Option<QuorumPlan>)> {
        let phase = &self.quorums.get(name)?.phase;
        Some((phase.problem().cloned(), phase.plan().cloned()))
    }

    /// Follows the Secrets of all quorums, including those that are not applied now: they form one list.
    pub(super) fn follow_secrets(&mut self) {
        let names = self.quorums.names();
        let plans: Vec<QuorumPlan> = names
            .iter()
            .filter_map(|name| match self.quorums.wanted(name)? {
                Ok(plan) => Some(plan),
                Err(_) => self.quorums.get(name)?.phase.plan().cloned(),
            })
            .collect();
        self.effects
            .push(Effect::Watch(WatchChange::FollowSecrets(plans)));
    }

    /// Uses a plan. Returns the plan in use; `None` while the quorum is being opened.
    fn use_plan(
        &mut self,
        name: &str,
        plan: QuorumPlan,
        at: &World<'_>,
    ) -> Result<Option<QuorumPlan>, Problem> {
        let access = match at.views.access(&plan) {
            Found::Awaited => {
                let entry = self.quorums.get(name);
                return Ok(entry.and_then(|entry| entry.phase.plan().cloned()));
            }
            Found::Missing(problem) => return Err(problem),
            Found::Here(access) => access,
        };
        let open = self.open.get(name);
        if open.is_some_and(|open| is_another(&open.plan, &plan)) {
            self.await_other(name);
            return Ok(None);
        }
        let in_use = self.with_urls_in_use(name, &plan);
        if let Some(entry) = self.quorums.get_mut(name) {
            entry.phase.other_is_closed();
        }
        if self.open.get(name).is_none() && self.open.is_closing(name) {
            return Ok(None);
        }
        check(&in_use, &access, &self.me.cluster)
            .map_err(|error| Problem::new(Reason::InvalidSpec, error.to_string()))?;
        let Some(open) = self.open.get_mut(name) else {
            if let Some(problem) = self.open.refusal(name, at.now) {
                return Err(problem.clone());
            }
            self.open_quorum(&in_use, *access, at);
            if in_use != plan {
                self.due.quorums.insert(name.to_owned());
            }
            return Ok(Some(in_use));
        };
        open.plan = in_use.clone();
        self.effects.push(Effect::Quorum(QuorumChange::Adjust {
            plan: Box::new(in_use),
            access,
        }));
        self.start_reporter(&plan, at);
        self.change_urls(name, &plan, at).map_or(Ok(Some(plan)), Err)
    }

    /// Waits for the predecessor of this object: another quorum of the same name is still open.
    fn await_other(&mut self, name: &str) {
        let entry = self.quorums.get_mut(name);
        if entry.is_some_and(|entry| entry.phase.await_other()) {
            self.touch_locks_of(name);
        }
        if !self.locks.any_active(name) {
            self.close_quorum(name, "the RedisQuorum was created again with other masters");
        }
        self.due.later.insert(name.to_owned());
    }

    fn open_quorum(&mut self, plan: &QuorumPlan, access: Access, at: &World<'_>) {
        let entry = self.quorums.get(&plan.name);
        let status = entry.and_then(|entry| entry.object.status.as_ref());
        let stored = status.and_then(|status| QuorumId::parse(status.quorum_id.as_deref()?));
        self.open.open(plan.clone());
        self.effects.push(Effect::Quorum(QuorumChange::Open {
            plan: Box::new(plan.clone()),
            access: Box::new(access),
            stored,
        }));
        self.start_reporter(plan, at);
        let objects = self
            .locks
            .of_quorum(&plan.name)
            .filter_map(|key| self.locks.get(key));
        let objects: Vec<_> = objects.map(|entry| entry.object.clone()).collect();
        for object in &objects {
            self.remember_token(object);
        }
    }

    /// Starts the reporter, also for a quorum that is already running: its object may have been created again.
    fn start_reporter(&mut self, plan: &QuorumPlan, at: &World<'_>) {
        let Some(entry) = self.quorums.get_mut(&plan.name) else {
            return;
        };
        if entry.reporting.reporter().is_some() {
            return;
        }
        let terms = ReporterTerms {
            cluster: &self.me.cluster,
            scope: &self.me.scope,
            command_timeout: plan.command_timeout,
            elects_coordinator: self.me.coordinates,
            longest_lease: plan.longest_lease,
        };
        let reporter = Reporter::new(&terms, at.now).ok();
        let locks = reporter.iter().flat_map(Reporter::first_terms);
        self.effects.extend(locks.map(|(lock, terms)| {
            Effect::Elector(ElectorChange::PutInternal {
                quorum: plan.name.clone(),
                lock,
                terms,
            })
        }));
        entry.reporting.set_reporter(reporter);
    }

    pub(super) fn on_quorum_closed(&mut self, name: String) {
        self.open.closed(&name);
        if self.quorums.get(&name).is_none() {
            self.effects
                .push(Effect::Quorum(QuorumChange::ForgetMetrics(name.clone())));
        }
        self.due.quorums.insert(name);
    }

    /// Handles a failure to open a quorum whose plan had passed the checks: it is reported and retried.
    pub(super) fn on_not_opened(&mut self, name: &str, error: String, at: &World<'_>) {
        let problem = Problem::new(Reason::InvalidSpec, error);
        self.open.fail(name, problem.clone(), at.now, self.random.f64());
        if let Some(entry) = self.quorums.get_mut(name) {
            entry.reporting.set_reporter(None);
            entry.phase.close(Some(problem));
            self.touch_locks_of(name);
        }
        if self.plants(Planted::OpensQuorumOnce) {
            self.open.forget_failure(name);
        }
        self.take_back_locks_of(name);
        // The status written before the failure reports that the quorum is being opened.
        self.writer.push(Item::Quorum(name.to_owned()));
        self.effects
            .push(Effect::Quorum(QuorumChange::ForgetMetrics(name.to_owned())));
    }

    /// Deactivates the locks on a quorum that was not opened: orders to it had no effect.
    fn take_back_locks_of(&mut self, quorum: &str) {
        let keys: Vec<ObjectKey> = self.locks.users_of(quorum).cloned().collect();
        for key in &keys {
            let Some(entry) = self.locks.get_mut(key) else {
                continue;
            };
            let active = entry.phase.active_plan();
            if active.is_some_and(|plan| plan.quorum == quorum) {
                entry.phase.take_back();
            }
        }
        self.due.locks.extend(keys);
    }

    /// Returns the quorums that a lock names and that this replica must be able to use before it replaces
    /// another replica. A problem of the object itself affects every replica, so it does not count, and neither does a
    /// quorum that is away while another one is not: one tenant must not keep the replicas from serving the others.
    pub(super) fn needed_quorums(&self) -> BTreeSet<String> {
        let usable = |name: &String| {
            let problem = self.quorums.get(name).and_then(|entry| entry.phase.problem());
            problem.is_none_or(|problem| !problem.reason.is_of_the_object())
                && self.locks.of_quorum(name).next().is_some()
        };
        let usable: BTreeSet<String> = self.quorums.names().into_iter().filter(usable).collect();
        let away = usable.iter().filter(|name| self.is_away(name)).cloned().collect();
        without_those_away(usable, &away)
    }

    /// Reports whether, according to the statuses, no replica sees a majority of the masters and no lock of the quorum is
    /// held.
    fn is_away(&self, name: &str) -> bool {
        let status = self
            .quorums
            .get(name)
            .and_then(|entry| entry.object.status.as_ref());
        let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
        let unready = conditions
            .any(|condition| condition.type_ == ConditionType::Ready.name() && condition.status != "True");
        let is_held = |key: &ObjectKey| {
            let status = self.locks.get(key).and_then(|entry| entry.object.status.as_ref());
            status.is_some_and(|status| status.holder_identity.is_some())
        };
        unready && !self.locks.of_quorum(name).any(is_held)
    }

    pub(super) fn quorum_problems(&self) -> Vec<String> {
        let names = self.quorums.names();
        let text = |name: String| {
            let problem = self.quorums.get(&name)?.phase.problem()?;
            Some(format!(
                "RedisQuorum {name}: {}: {}",
                problem.reason.name(),
                problem.message
            ))
        };
        names.into_iter().filter_map(text).collect()
    }
}

fn without_those_away(named: BTreeSet<String>, away: &BTreeSet<String>) -> BTreeSet<String> {
    let present: BTreeSet<String> = named.difference(away).cloned().collect();
    if present.is_empty() { named } else { present }
}

/// Reports whether leases on one quorum are no evidence about the other.
fn is_another(running: &QuorumPlan, plan: &QuorumPlan) -> bool {
    let names =
        |plan: &QuorumPlan| -> BTreeSet<String> { plan.masters.iter().map(|m| m.name.clone()).collect() };
    names(running) != names(plan)
        || running.key_prefix != plan.key_prefix
        || running.longest_lease != plan.longest_lease
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quorum_that_is_away_counts_only_where_all_are() {
        let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
        for (named, away, wanted) in [
            (&["a", "b"][..], &[][..], &["a", "b"][..]),
            (&["a", "b"], &["b"], &["a"]),
            (&["a", "b"], &["a", "b"], &["a", "b"]),
            (&["a"], &["a"], &["a"]),
            (&[], &[], &[]),
        ] {
            assert_eq!(
                without_those_away(set(named), &set(away)),
                set(wanted),
                "{named:?} {away:?}"
            );
        }
    }
}
