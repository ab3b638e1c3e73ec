//! The core's work on quorums.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::Resource;

use super::{Core, Job, Seen};
use crate::{
    api::{RedisQuorum, plan::LockPlan, plan::QuorumPlan, quorum_status::ReporterStatus},
    controller::{
        events::{Happening, What, timestamp},
        object::ObjectKey,
        observe::Observation,
        problem::{Problem, Reason},
        quorums::Initializing,
        reporter::Reporter,
        secrets::Found,
        status::{Health, QuorumFacts, quorum_status},
        writer::{self, Item},
    },
    lease::{ClusterId, Moment},
    masters::{ConfigError, Reporters},
    operator::config::command_timeout,
};

/// The only write in the steady state.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// The walk through the keys of a master: some hundred thousand of them.
const WALK: Duration = Duration::from_secs(2);
/// A cluster that was not heard of for so long is not listed any more.
const FORGOTTEN: i64 = 600;
/// One heartbeat missed, and half of the next.
const HEARTBEAT_MISSED: i64 = 45;
/// As long as an election of the reporter takes at most, where one can be elected.
const ELECTION: Duration = Duration::from_secs(1);

impl Core {
    pub(super) fn on_quorum(&mut self, observation: Observation<RedisQuorum>) {
        let known: Vec<ObjectKey> = match observation {
            Observation::Synced => self.quorums.known().map(|name| quorum_key(name)).collect(),
            _ => Vec::new(),
        };
        for key in self.quorums.roll.call(&observation, known.iter()) {
            self.forget_quorum(&key.name);
        }
        let key = observation.key();
        match (observation, key) {
            (Observation::Seen(object), Some(ObjectKey { name, .. })) => {
                let generation = |object: &RedisQuorum| {
                    (
                        object.metadata.uid.clone(),
                        object.metadata.generation,
                        object.metadata.annotations.clone(),
                    )
                };
                let before = self.quorums.get(&name).map(|entry| generation(&entry.object));
                let anew = before != Some(generation(&object));
                self.quorums.see(&name, *object);
                if anew {
                    self.touched_quorums.insert(name.clone());
                }
                self.writer.push(Item::Quorum(name));
            }
            (Observation::Malformed(_, error), Some(ObjectKey { name, .. })) => {
                if self.quorums.unreadable.get(&name) != Some(&error) {
                    let in_force = self.quorums.get(&name).is_some();
                    tracing::warn!(object = %format!("RedisQuorum {name}"), reason = error, last_valid_stays = in_force,
                        "object cannot be read by this version");
                    self.quorums.unreadable.insert(name.clone(), error);
                    self.touched_quorums.insert(name);
                }
            }
            (Observation::Synced, _) => self.touched_quorums.extend(self.quorums.names()),
            (Observation::Failed(trouble), _) => {
                tracing::warn!(
                    reason = trouble.text,
                    "RedisQuorums cannot be followed now; what is known stays in force"
                );
            }
            _ => {}
        }
    }

    fn forget_quorum(&mut self, name: &str) {
        self.quorums.forget(name);
        self.touch_locks_of(name);
    }

    fn touch_locks_of(&mut self, quorum: &str) {
        let keys: Vec<ObjectKey> = self.locks.of_quorum(quorum).cloned().collect();
        self.touched_locks.extend(keys);
    }

    fn write_locks_of(&mut self, quorum: &str) {
        let keys: Vec<ObjectKey> = self.locks.of_quorum(quorum).cloned().collect();
        for key in keys {
            self.writer.push(Item::Lock(key));
        }
    }

    /// Opens a quorum, or changes the one that runs, as its object asks.
    pub(super) fn apply_quorum(&mut self, name: &str, now: Moment) {
        self.follow_secrets();
        let Some(wanted) = self.quorums.wanted(name) else {
            return;
        };
        let before = self
            .quorums
            .get(name)
            .map(|entry| (entry.problem.clone(), entry.plan.clone()));
        let outcome = wanted.and_then(|plan| self.use_plan(name, plan, now));
        if let Some(entry) = self.quorums.get_mut(name) {
            match outcome {
                Ok(plan) => {
                    entry.in_force = plan.as_ref().map(|_| entry.object.spec.clone());
                    let clash = entry.reporter.as_ref().and_then(Reporter::clash);
                    entry.problem = clash.map(|other| self::clash(&self.cluster, other));
                    entry.plan = plan;
                }
                Err(problem) => entry.problem = Some(problem),
            }
            if entry.plan.is_none() && entry.problem.is_none() {
                entry.problem = Some(Problem::new(Reason::Opening, "being opened"));
            }
        }
        let after = self
            .quorums
            .get(name)
            .map(|entry| (entry.problem.clone(), entry.plan.clone()));
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

    fn follow_secrets(&mut self) {
        let names = self.quorums.names();
        let plans: Vec<QuorumPlan> = names
            .iter()
            .filter_map(|name| match self.quorums.wanted(name)? {
                Ok(plan) => Some(plan),
                Err(_) => self.quorums.get(name)?.plan.clone(),
            })
            .collect();
        self.secrets
            .follow(plans.iter(), &self.clients.work, &self.inbox, Seen::Secret);
    }

    /// Returns what is in use then; `None` while it is being opened.
    fn use_plan(&mut self, name: &str, plan: QuorumPlan, now: Moment) -> Result<Option<QuorumPlan>, Problem> {
        let access = match self.secrets.access(&plan) {
            Found::Awaited => return Ok(self.quorums.get(name).and_then(|entry| entry.plan.clone())),
            Found::Missing(problem) => return Err(problem),
            Found::Here(access) => access,
        };
        if self
            .fleet
            .get(name)
            .is_some_and(|running| is_another(&running.plan, &plan))
        {
            // Made anew under the name of one that is still being left.
            if let Some(entry) = self.quorums.get_mut(name).filter(|entry| !entry.awaits_other) {
                entry.awaits_other = true;
                self.touch_locks_of(name);
            }
            if !self.locks.any_put(name) {
                self.fleet.close(name, "it was made anew with other masters");
            }
            self.touched_later.insert(name.to_owned());
            return Ok(None);
        }
        let locks: Vec<LockPlan> = self
            .locks
            .of_quorum(name)
            .filter_map(|key| Some((**self.locks.get(key)?.put.as_ref()?).clone()))
            .collect();
        let timeout = command_timeout(&plan, locks.iter());
        let in_use = self.with_urls_in_use(name, &plan);
        if let Some(entry) = self.quorums.get_mut(name) {
            entry.awaits_other = false;
        }
        if let Some(running) = self.fleet.get_mut(name) {
            let refused = |error: ConfigError| Problem::new(Reason::InvalidSpec, error.to_string());
            running.rekey(access).map_err(refused)?;
            running.adjust(&in_use, timeout);
            self.start_reporter(name, &plan, now);
            return match self.change_urls(name, &plan, now) {
                Some(problem) => Err(problem),
                None => Ok(Some(plan)),
            };
        }
        if self.fleet.is_closing(name) {
            return Ok(None);
        }
        self.fleet
            .open(&in_use, timeout, access)
            .map_err(|error| Problem::new(Reason::InvalidSpec, error.to_string()))?;
        self.start_reporter(name, &plan, now);
        for key in self.locks.of_quorum(name) {
            if let Some(entry) = self.locks.get(key) {
                self.remember_token(&entry.object);
            }
        }
        if in_use != plan {
            self.touched_quorums.insert(name.to_owned());
        }
        Ok(Some(in_use))
    }

    /// Also of a quorum that runs already: its object may have been made anew under its name.
    fn start_reporter(&mut self, name: &str, plan: &QuorumPlan, now: Moment) {
        let (Some(running), Some(entry)) = (self.fleet.get(name), self.quorums.get_mut(name)) else {
            return;
        };
        if entry.reporter.is_none() {
            let (timeout, longest) = (plan.command_timeout, plan.longest_lease);
            entry.reporter = Reporter::start(&running.elector, &self.cluster, timeout, longest, now).ok();
        }
    }

    /// What changes with time alone.
    pub(super) fn look_at_quorum(&mut self, name: &str, now: Moment) {
        let (Some(running), Some(entry)) = (self.fleet.get(name), self.quorums.get_mut(name)) else {
            return;
        };
        let health = Health::of(&running.masters.status());
        let Some(reporter) = entry.reporter.as_mut() else {
            return;
        };
        let turn = reporter.look(&running.elector, now);
        let clash = reporter.clash().cloned();
        let mine = reporter.is_mine();
        let before = entry.health.clone();
        let news = before.as_ref() != Some(&health);
        let majority = (
            before.as_ref().is_some_and(Health::has_majority),
            health.has_majority(),
        );
        let quarantined: Vec<String> = health
            .quarantined()
            .filter(|master| {
                !before
                    .as_ref()
                    .is_some_and(|before| before.quarantined().any(|other| other == *master))
            })
            .map(str::to_owned)
            .collect();
        let why = health.no_majority();
        let shown = entry.look(health, now);
        if turn.name {
            self.touched_quorums.insert(name.to_owned());
        }
        let beat = mine && entry.ask_at.is_none_or(|at| at <= now);
        if beat {
            entry.ask_at = Some(now + HEARTBEAT);
        }
        if turn.reporter || (turn.name && clash.is_none()) || shown {
            self.write_locks_of(name);
        }
        if turn.name {
            self.touch_locks_of(name);
        }
        let absent = self
            .quorums
            .get(name)
            .and_then(|entry| entry.reporter.as_ref()?.absent_for(now));
        if news || turn.reporter || turn.name || absent.is_some() {
            self.writer.push(Item::Quorum(name.to_owned()));
        }
        if beat {
            self.ask_for_clusters(name);
        }
        if let Some(absent) = absent {
            self.unreported(name, absent);
        }
        if mine {
            self.tell_quorum(name, majority, why, quarantined);
        }
        self.initialize(name);
        if self
            .quorums
            .get(name)
            .is_some_and(|entry| entry.url_change.is_due(now))
        {
            self.touched_quorums.insert(name.to_owned());
        }
    }

    /// Which clusters are alive belongs to the heartbeat, and is asked for before it.
    fn ask_for_clusters(&mut self, name: &str) {
        let Some(running) = self.fleet.get(name) else {
            return;
        };
        let (masters, name) = (running.masters.clone(), name.to_owned());
        self.jobs.spawn(async move {
            let reporters = masters.clusters(WALK).await;
            Job::Clusters(name, reporters)
        });
    }

    pub(super) fn on_clusters(&mut self, name: &str, reporters: &Reporters) {
        if let Some(entry) = self.quorums.get_mut(name) {
            entry.clusters = reporters.clusters.clone();
            entry.heartbeat_due = true;
            self.writer.push(Item::Quorum(name.to_owned()));
        }
    }

    /// Once, when nobody has reported for so long that nobody can: the locks' statuses must not go on saying Active.
    fn unreported(&mut self, name: &str, absent: Duration) {
        let Some(entry) = self.quorums.get_mut(name) else {
            return;
        };
        let long = entry.reporter.as_ref().map_or(Duration::MAX, Reporter::long);
        let due = absent >= long;
        if due && !entry.told_unknown {
            entry.told_unknown = true;
            self.write_locks_of(name);
        } else if !due {
            entry.told_unknown = false;
        }
    }

    fn tell_quorum(&self, name: &str, majority: (bool, bool), why: Option<String>, quarantined: Vec<String>) {
        let Some(entry) = self.quorums.get(name) else {
            return;
        };
        let tell = |what, note| {
            let object = entry.object.object_ref(&());
            self.events.tell(Happening { what, object, note });
        };
        match majority {
            (true, false) => tell(What::QuorumLost, why.unwrap_or_default()),
            (false, true) => tell(What::QuorumRestored, "a majority of the masters votes".into()),
            _ => {}
        }
        for master in quarantined {
            let note = format!("{master} lost its memory and has no vote until it is sealed again");
            tell(What::MasterQuarantined, note);
        }
    }

    /// By the status, some replica of this cluster reported on a quorum lately.
    pub(super) fn is_reported(&self, name: &str) -> bool {
        let status = self
            .quorums
            .get(name)
            .and_then(|entry| entry.object.status.as_ref());
        let (own, now) = (self.cluster.to_string(), timestamp());
        status.is_some_and(|status| {
            let mut reporters = status.reporters.iter();
            reporters.any(|reporter| reporter.cluster == own && is_recent(reporter, now))
        })
    }

    pub(super) fn quorum_problems(&self) -> Vec<String> {
        let names = self.quorums.names();
        let text = |name: String| {
            let problem = self.quorums.get(&name)?.problem.as_ref()?;
            Some(format!(
                "RedisQuorum {name}: {}: {}",
                problem.reason.name(),
                problem.message
            ))
        };
        names.into_iter().filter_map(text).collect()
    }

    /// Writes the status of a quorum, if it is for this replica to write and something new is to be said.
    pub(super) fn write_quorum(&mut self, name: &str) {
        let now = crate::clock::now();
        let masters = self.fleet.get(name).map(|running| running.masters.status());
        let (cluster, stamp) = (self.cluster.to_string(), timestamp());
        let Some(entry) = self.quorums.get_mut(name) else {
            return;
        };
        let before = entry.object.status.clone().unwrap_or_default();
        if before.initialized_time.is_some() && entry.initializing == Initializing::Remembering {
            // Somebody else was quicker to remember it, and goes on.
            entry.initializing = Initializing::No;
        }
        let mine = entry.reporter.as_ref().is_some_and(Reporter::is_mine);
        let own = before
            .reporters
            .iter()
            .find(|reporter| reporter.cluster == cluster);
        let alive = own.is_some_and(|own| is_recent(own, stamp));
        let absent = entry.reporter.as_ref().map(|reporter| reporter.absent_for(now));
        let may = match absent {
            _ if mine => true,
            // Not opened: it says the same whoever writes it.
            None => true,
            Some(Some(absent)) => absent >= ELECTION && !alive,
            Some(None) => false,
        };
        if !may {
            return;
        }
        let beat = mine && entry.heartbeat_due;
        let reporters = if beat {
            heard(&before.reporters, &entry.clusters, &self.cluster, stamp)
        } else {
            before.reporters.clone()
        };
        let status = quorum_status(&QuorumFacts {
            before: &before,
            generation: entry.object.metadata.generation.unwrap_or_default(),
            problem: entry.problem.as_ref(),
            health: entry.health.as_ref().filter(|_| masters.is_some()),
            masters: masters.as_deref().unwrap_or_default(),
            reporters,
            initialized: entry.initialized.clone(),
            now: stamp,
        });
        let conditions_same = status.conditions == before.conditions
            && status.observed_generation == before.observed_generation
            && status.initialized_time == before.initialized_time;
        // Latencies differ at every look: they travel with the heartbeat.
        if conditions_same && !beat {
            return;
        }
        entry.heartbeat_due &= !beat;
        let version = entry.object.metadata.resource_version.clone().unwrap_or_default();
        let Ok(status) = serde_json::to_value(&status) else {
            return;
        };
        let write = writer::write_quorum(self.clients.urgent.clone(), name.to_owned(), version, status);
        self.writer.start(Item::Quorum(name.to_owned()), write);
    }
}

fn is_recent(reporter: &ReporterStatus, now: Timestamp) -> bool {
    now.as_second() - reporter.last_seen_time.0.as_second() < HEARTBEAT_MISSED
}

/// The clusters of the last heartbeats, and when.
fn heard(
    before: &[ReporterStatus],
    alive: &BTreeSet<ClusterId>,
    own: &ClusterId,
    now: Timestamp,
) -> Vec<ReporterStatus> {
    let seen = |cluster: &ClusterId| ReporterStatus {
        cluster: cluster.to_string(),
        last_seen_time: Time(now),
    };
    let mut reporters: Vec<ReporterStatus> =
        alive.iter().filter(|cluster| *cluster != own).map(seen).collect();
    reporters.push(seen(own));
    let rest = before
        .iter()
        .filter(|reporter| now.as_second() - reporter.last_seen_time.0.as_second() < FORGOTTEN);
    for reporter in rest {
        if !reporters.iter().any(|new| new.cluster == reporter.cluster) {
            reporters.push(reporter.clone());
        }
    }
    reporters.sort_by(|a, b| a.cluster.cmp(&b.cluster));
    reporters
}

/// Whether leases on the one say nothing about the other.
fn is_another(running: &QuorumPlan, plan: &QuorumPlan) -> bool {
    let names =
        |plan: &QuorumPlan| -> BTreeSet<String> { plan.masters.iter().map(|m| m.name.clone()).collect() };
    names(running) != names(plan)
        || running.key_prefix != plan.key_prefix
        || running.longest_lease != plan.longest_lease
}

fn quorum_key(name: &str) -> ObjectKey {
    ObjectKey {
        namespace: String::new(),
        name: name.to_owned(),
    }
}

fn clash(own: &ClusterId, other: &ClusterId) -> Problem {
    Problem::new(
        Reason::ClusterNameNotUnique,
        format!(
            "another cluster is called {:?} too: its UID is {}, ours is {}; give this cluster another --cluster name",
            own.name(),
            other.uid(),
            own.uid()
        ),
    )
}
