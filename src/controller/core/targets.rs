//! The core's work on locks with targets: their wardens, and the finalizer that keeps an object until what runs is
//! stopped.

use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{
    Core, Job, Seen,
    happened::{Off, happened},
    unreadable::drop_finalizer,
};
use crate::{
    api::{FINALIZER, LeaderLock, leader_lock::Enforcement, plan::LockPlan},
    clock,
    controller::{
        backoff,
        object::ObjectKey,
        target_task::{self, Command, Config, Handle, Permissions, TargetReport},
        writer::Item,
    },
    elector::Elector,
    lease::{Holder, Moment},
    targets::deepest,
};

const MANAGER: &str = "redlock-operator-finalizer";
/// The annotation that takes the operator's hands off a lock's targets.
const PAUSED: &str = "redlock.dev/paused";

impl Core {
    /// Starts, changes or dismisses the warden of a lock that is contended for.
    pub(super) fn apply_targets(&mut self, key: &ObjectKey) {
        let unreadable = self.locks.unreadable.contains_key(key);
        let Some(entry) = self.locks.get_mut(key) else {
            return;
        };
        // The warden of a lock whose last target was taken out of its spec stays until that is stopped.
        let runs = |warden: &Handle| warden.last.as_ref().is_none_or(|report| report.runs);
        let runs = entry.warden.as_ref().is_some_and(runs);
        let plan = entry.put.clone().or_else(|| entry.remains.clone());
        let plan = plan.filter(|plan| runs || !plan.targets.is_empty());
        let Some(plan) = plan else {
            entry.warden = None;
            return;
        };
        let permissions = Permissions {
            unreadable,
            ..permissions(&entry.object, &plan)
        };
        if let Some(warden) = entry.warden.as_ref().filter(|warden| !warden.is_broken()) {
            warden.send(Command::Plan(plan, permissions));
            return;
        }
        let detached = entry.put.is_none();
        let (elector, masters, standing, unknown) = if detached {
            let (elector, unknown) = Elector::detached();
            (elector, None, unknown.subscribe(), Some(unknown))
        } else {
            let Some(quorum) = self.fleet.get(&plan.quorum) else {
                return;
            };
            let Some(standing) = quorum.elector.watch(&plan.lock_name) else {
                // Put a moment ago; the elector shows it with the next look.
                self.wardens_due.insert(key.clone());
                return;
            };
            (
                quorum.elector.clone(),
                Some(quorum.masters.clone()),
                standing,
                None,
            )
        };
        let post = Config {
            key: key.clone(),
            plan,
            permissions,
            cluster: self.cluster.clone(),
            client: self.clients.urgent.clone(),
            shared: self.shared.clone(),
            pace: self.pace.clone(),
            elector,
            telemetry: self.state.telemetry.clone(),
            standing,
            masters,
            said: self.asking.said.subscribe(),
            lost: self.clients.lost.clone(),
            own_tokens: entry.own_tokens.clone(),
        };
        let mut warden = target_task::start(post, self.inbox.clone(), Seen::Report);
        warden.detached = unknown;
        entry.warden = Some(warden);
    }

    /// How the targets of a lock are now.
    pub(super) fn on_report(&mut self, mut report: TargetReport) {
        let key = report.key.clone();
        let now = clock::now();
        let held = self.held_by_us(&key, now);
        let Some(entry) = self.locks.get_mut(&key) else {
            return;
        };
        let Some(warden) = &mut entry.warden else { return };
        let reporter = self.quorums.get(&entry.object.spec.quorum_ref.name);
        let reporter = reporter.and_then(|quorum| quorum.reporter.as_ref());
        let unwritten = !held && reporter.is_some_and(|reporter| reporter.locks_unreported(now).is_some());
        if let Some(trouble) = &report.trouble
            && warden
                .last
                .as_ref()
                .is_none_or(|last| last.trouble != report.trouble)
        {
            tracing::warn!(object = %format!("LeaderLock {key}"), reason = trouble.reason.name(), text = trouble.message, "targets are not as they should be");
        }
        let off = off(&entry.object, entry.put.as_deref());
        let mut happened = happened(warden.last.as_ref(), &report, off);
        if unwritten && off.is_none() {
            happened.extend(entry.settled.stopped_unwritten(&report));
        }
        // Each note is emitted once: the report is kept, and looked at again, without them.
        happened.extend(
            std::mem::take(&mut report.notes)
                .into_iter()
                .map(|note| (note.reason, note.text)),
        );
        if warden.last.as_ref().is_none_or(|last| last.has != report.has) {
            // Others may wait for what it has no more.
            self.touched_locks.insert(key.clone());
        }
        warden.last = Some(report);
        self.events.emit_all(&entry.object, happened);
        self.adjust_finalizer(&key, held);
        self.writer.push(Item::Lock(key));
    }

    /// Adds or removes the finalizer, as the last report on the targets of a lock asks.
    fn adjust_finalizer(&mut self, key: &ObjectKey, held: bool) {
        let Some(entry) = self.locks.get(key) else { return };
        let Some(report) = entry.warden.as_ref().and_then(|warden| warden.last.as_ref()) else {
            return;
        };
        let guarded = has_finalizer(&entry.object);
        let none = entry.put.as_ref().is_some_and(|plan| plan.targets.is_empty());
        if entry.object.metadata.deletion_timestamp.is_some() {
            return;
        }
        if report.wants_guard && !guarded {
            self.set_finalizer(key, true);
        } else if guarded
            && !report.runs
            && (!held || none)
            && !self.sibling_is_responsible(key, clock::now())
        {
            // Else the sibling that sees who holds the lock may be about to start it.
            self.set_finalizer(key, false);
        }
    }

    /// This replica holds the lock.
    pub(super) fn holds(&self, key: &ObjectKey, now: Moment) -> bool {
        let standing = self.standing(key);
        standing.is_some_and(|standing| standing.borrow().authority_at(now).is_some())
    }

    /// A replica of this cluster holds the lock, as far as this one sees, or a sibling proves.
    pub(super) fn held_by_us(&self, key: &ObjectKey, now: Moment) -> bool {
        let seen = self.standing(key).is_some_and(|standing| {
            let standing = standing.borrow();
            let own = |holder: &Holder| holder.cluster.uid() == self.cluster.uid();
            standing.authority_at(now).is_some() || standing.holder_at(now).is_some_and(own)
        });
        seen || self.is_proven_held(key, now)
    }

    pub(super) fn set_finalizer(&mut self, key: &ObjectKey, present: bool) {
        let Some(entry) = self.locks.get_mut(key) else {
            return;
        };
        if entry.changing_finalizer || !entry.guard_backoff.is_over(clock::now()) {
            // What is wanted then is looked at again.
            return;
        }
        entry.changing_finalizer = true;
        let api = kube::Api::<LeaderLock>::namespaced(self.clients.urgent.clone(), &key.namespace);
        let key = key.clone();
        let finalizers = if present { json!([FINALIZER]) } else { json!([]) };
        let patch = json!({
            "apiVersion": crate::api::API_VERSION,
            "kind": "LeaderLock",
            // Of this object, not of one that was made anew under its name.
            "metadata": { "name": key.name, "uid": entry.object.metadata.uid, "finalizers": finalizers },
        });
        let pace = self.pace.clone();
        let broken = Job::Finalizer(key.clone(), Err("the write broke off".to_owned()));
        self.jobs.start(broken, async move {
            // One is needed before each start. What goes does not wait: the last replica of a cluster takes it along.
            if present {
                pace.sent().await;
            } else {
                pace.count(1, clock::now());
            }
            let parameters = PatchParams::apply(MANAGER).force();
            let mut end = api.patch(&key.name, &parameters, &Patch::Apply(&patch)).await;
            if let Ok(object) = &end
                && !present
                && has_finalizer(object)
            {
                // Somebody else owns it as well, such as whoever restored a backup: it would keep the object for ever.
                end = api
                    .patch(
                        &key.name,
                        &PatchParams::default(),
                        &Patch::Merge(&without(object)),
                    )
                    .await;
            }
            let end = match end {
                Ok(object) => Ok(Some(Box::new(object))),
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
                // It was written, and this version cannot read what it is a part of.
                Err(kube::Error::SerdeError(_)) if !present => {
                    drop_finalizer(&api, &key.name).await.map(|()| None)
                }
                Err(error) => Err(deepest(&error)),
            };
            Job::Finalizer(key, end)
        });
    }

    pub(super) fn on_finalizer(&mut self, key: &ObjectKey, end: Result<Option<Box<LeaderLock>>, String>) {
        let now = clock::now();
        if let Some(entry) = self.locks.get_mut(key) {
            entry.changing_finalizer = false;
            match &end {
                Ok(_) => entry.guard_backoff.reset(),
                Err(_) => {
                    entry.guard_backoff.fail(backoff::LONGEST, now, fastrand::f64());
                }
            }
        }
        match end {
            Ok(Some(mut object)) => {
                crate::controller::object::trim(&mut object.metadata);
                self.see_answer(object, now);
                // What was wanted meanwhile had to wait.
                self.finalizers_due.insert(key.clone());
            }
            Ok(None) => {}
            Err(reason) => {
                tracing::warn!(object = %format!("LeaderLock {key}"), reason, "finalizer could not be changed; retried");
                self.finalizers_due.insert(key.clone());
            }
        }
    }

    /// What could not be done before.
    pub(super) fn look_at_targets(&mut self) {
        self.touched_locks.append(&mut self.wardens_due);
        // For the end of it.
        self.touched_locks.append(&mut self.abstaining);
        self.look_at_unready();
        let broken = self
            .locks
            .with_targets()
            .filter(|(_, _, warden)| warden.is_broken());
        let broken: Vec<ObjectKey> = broken.map(|(key, ..)| key.clone()).collect();
        for key in broken {
            tracing::error!(object = %format!("LeaderLock {key}"), "what switches the targets broke; started anew");
            self.touched_locks.insert(key);
        }
        self.look_at_finalizers();
    }
}

impl Core {
    /// Tries again what failed, once its back-off is over, and does what was wanted while a write was under way.
    fn look_at_finalizers(&mut self) {
        let now = clock::now();
        for key in std::mem::take(&mut self.finalizers_due) {
            let Some(entry) = self.locks.get(&key) else {
                continue;
            };
            if !entry.guard_backoff.is_over(now) {
                self.finalizers_due.insert(key);
            } else if entry
                .leaving
                .is_some_and(|leaving| leaving.stopped || leaving.until <= now)
            {
                if has_finalizer(&entry.object) {
                    self.set_finalizer(&key, false);
                }
            } else {
                let held = self.held_by_us(&key, now);
                self.adjust_finalizer(&key, held);
            }
        }
    }
}

/// What the paused annotation says.
pub(super) fn paused(object: &LeaderLock) -> Option<&str> {
    let annotations = object.metadata.annotations.as_ref()?;
    annotations.get(PAUSED).map(String::as_str)
}

/// Why nothing of it is switched, if so.
pub(super) fn off(object: &LeaderLock, plan: Option<&LockPlan>) -> Option<Off> {
    if paused(object).is_some() {
        return Some(Off::Paused);
    }
    plan.is_some_and(|plan| plan.enforcement == Enforcement::Observe)
        .then_some(Off::Observed)
}

/// The same object, as it was looked at, without the finalizer.
fn without(object: &LeaderLock) -> serde_json::Value {
    let finalizers = object.metadata.finalizers.iter().flatten();
    let rest: Vec<&String> = finalizers.filter(|one| *one != FINALIZER).collect();
    json!({ "metadata": { "resourceVersion": object.metadata.resource_version, "finalizers": rest } })
}

pub(super) fn has_finalizer(object: &LeaderLock) -> bool {
    let finalizers = object.metadata.finalizers.as_ref();
    finalizers.is_some_and(|all| all.iter().any(|one| one == FINALIZER))
}

fn permissions(object: &LeaderLock, plan: &LockPlan) -> Permissions {
    Permissions {
        off: off(object, Some(plan)).is_some(),
        guarded: has_finalizer(object),
        unreadable: false,
    }
}
