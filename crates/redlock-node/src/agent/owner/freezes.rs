//! Follows each freeze until the cgroup shows it, and checks that the pods of the node can be frozen.

use redlock_client::clock;
use redlock_core::{
    BootInstant,
    fence::{Input, Origin, State},
};

use super::{
    Owner, cannot_freeze,
    placements::{ELSEWHERE, NOT_PLACED},
};
use crate::{
    agent::{
        Change, ChangeKind, PublishError,
        freeze_watch::{FreezeVerdict, ProcessesShown, StoppedBy},
        freezer::FreezerReport,
        pod::{FreezeTrial, Pod},
    },
    cgroup::{
        self, CgroupError, ability,
        pod::{Events, PodCgroupError},
    },
    guardian::chain,
    table::Heartbeat,
};

impl Owner<'_> {
    pub(super) fn freeze(&mut self, uid: &str) {
        let now = clock::now();
        let Some(pod) = self.pods.get_mut(uid) else {
            return;
        };
        pod.freeze.begin(now);
        if pod.cgroup.is_none() {
            match cgroup::pod::find(&self.shared.options.cgroup_root, uid) {
                Ok(path) => pod.cgroup = Some(path),
                // A pod without a cgroup has no process.
                Err(PodCgroupError::Missing { .. }) => self.on_processes(uid, ProcessesShown::Stopped, now),
                Err(error) => {
                    let reason = chain(&error);
                    tracing::warn!(pod = uid, error = reason, "no cgroup to freeze");
                    pod.failed_write = Some(reason.clone());
                    self.on_processes(uid, ProcessesShown::Unreadable { reason }, now);
                }
            }
        }
        if let Some(path) = self.pods.get(uid).and_then(|pod| pod.cgroup.as_ref()) {
            self.freezer.freeze(uid, path);
        }
    }

    pub(super) fn on_freezer_report(&mut self, report: FreezerReport) {
        match report {
            FreezerReport::Wrote { uid, late } => {
                if let Some(late) = late {
                    self.latency.add(late);
                }
                if let Some(pod) = self.pods.get_mut(&uid) {
                    pod.failed_write = None;
                }
                self.check_cgroup(&uid);
            }
            FreezerReport::WriteFailed { uid, reason } => {
                if let Some(pod) = self.pods.get_mut(&uid) {
                    pod.failed_write = Some(reason);
                }
                self.check_cgroup(&uid);
            }
            FreezerReport::Tried { uid, took, result } => match result {
                Ok(()) => {
                    self.latency.add(took);
                    if let Some(pod) = self.pods.get_mut(&uid) {
                        pod.trial = FreezeTrial::Passed;
                    }
                }
                Err(error) => self.refuse_start(&uid, of_agent(&error)),
            },
        }
    }

    /// Reports the state of the cgroup to the record. If the file cannot be read, the state is unknown and
    /// changes nothing.
    pub(super) fn check_cgroup(&mut self, uid: &str) {
        let Some(path) = self.pods.get(uid).and_then(|pod| pod.cgroup.as_ref()) else {
            return;
        };
        let events = cgroup::pod::events(path);
        self.note_process(uid, &events);
        if let Some(shown) = self.pods.get(uid).map(|pod| processes(&events, pod)) {
            self.on_processes(uid, shown, clock::now());
        }
        match events {
            Ok(events) => {
                // A cgroup that is gone has no process.
                let (populated, frozen) =
                    events.map_or((false, false), |found| (found.populated, found.frozen));
                self.input(uid, Input::Cgroup { populated, frozen });
            }
            Err(error) => {
                tracing::warn!(pod = uid, error = %chain(&error), "the state of the cgroup is unknown");
            }
        }
    }

    /// Compares the processes of a pod with its record, and reports the freeze or its failure.
    fn on_processes(&mut self, uid: &str, shown: ProcessesShown, now: BootInstant) {
        let Some(pod) = self.pods.get_mut(uid) else {
            return;
        };
        let change = match pod
            .freeze
            .observe(shown, pod.failed_write.as_deref(), stopped_by(pod), now)
        {
            None => None,
            Some(FreezeVerdict::Stopped) => pod.unreported.take(),
            Some(FreezeVerdict::NotStopped) => {
                let why = pod.freeze.reason().to_owned();
                tracing::error!(
                    pod = uid,
                    reason = why,
                    "the pod has no permit, and is not known to stand still"
                );
                Some(pod.change_of(ChangeKind::NotFrozen, why))
            }
        };
        if let Some(change) = change {
            self.send_change(change);
        }
    }

    pub(super) fn send_change(&self, change: Change) {
        tracing::info!(
            pod = change.pod.uid,
            namespace = change.pod.namespace,
            name = change.pod.name,
            lock = change.lock,
            kind = ?change.kind,
            why = change.why,
            "pod"
        );
        let _ = self.shared.changes.send(change);
    }

    /// Reads the freezes again that are not shown yet, at each turn of the task.
    pub(super) fn poll_freezes(&mut self) {
        let pending = self.pods.iter().filter(|(_, pod)| pod.freeze.is_pending());
        let pending: Vec<String> = pending.map(|(uid, _)| uid.clone()).collect();
        for uid in pending {
            self.check_cgroup(&uid);
        }
    }

    /// Checks that agent and guardian can freeze the pods. A pod that is about to start is refused otherwise.
    pub(super) fn check_abilities(&mut self, now: BootInstant) {
        self.cannot_freeze = cannot_freeze(&self.shared.options);
        let guardian = self.shared.table.heartbeat();
        let guardian = guardian.filter(|guardian| guardian.runs(now));
        let mut refused = Vec::new();
        for (uid, pod) in &mut self.pods {
            let unable = inability(uid, pod, guardian.as_ref());
            // Two reasons may alternate.
            if let (Some(reason), None) = (&unable, &pod.unable) {
                tracing::error!(pod = uid, reason, "the pod cannot be frozen");
            }
            pod.unable.clone_from(&unable);
            if pod.is_starting()
                && let Some(reason) = unable
            {
                refused.push((uid.clone(), reason));
            }
        }
        for (uid, reason) in refused {
            self.refuse_start(&uid, reason);
        }
    }

    /// Refuses the calls for a pod that has not started. The kubelet calls again.
    pub(super) fn refuse_start(&mut self, uid: &str, reason: String) {
        let Some(pod) = self.pods.get_mut(uid).filter(|pod| pod.is_starting()) else {
            return;
        };
        tracing::error!(pod = uid, reason, "the pod does not start");
        for caller in pod.callers.drain(..) {
            let reason = reason.clone();
            let _ = caller.answer.send(Err(PublishError::CannotFreeze { reason }));
        }
        self.note_waiting(uid, reason);
        self.end(uid);
    }
}

fn of_agent(error: &dyn std::error::Error) -> String {
    format!("the node agent cannot freeze the pod: {}", chain(error))
}

/// Returns the reason why the agent or the guardian cannot freeze a pod.
fn inability(uid: &str, pod: &Pod, guardian: Option<&Heartbeat>) -> Option<String> {
    let path = pod.cgroup.as_ref()?;
    if pod.placement.is_elsewhere() {
        return Some(ELSEWHERE.to_owned());
    }
    if let Err(error) = ability::check_writable(path) {
        return Some(of_agent(&error));
    }
    // An earlier report may be that of an earlier start of the pod.
    let entry = &pod.stored.as_ref()?.entry;
    let guardian = guardian.filter(|guardian| guardian.is_later_than(entry))?;
    let reason = guardian.unable.get(uid)?;
    Some(format!("the node guardian cannot freeze the pod: {reason}"))
}

/// Returns the state of the processes of a pod, as its cgroup and its placement show. The kubelet removes the cgroup of a
/// pod after its last process has ended.
fn processes(events: &Result<Option<Events>, CgroupError>, pod: &Pod) -> ProcessesShown {
    let unknown = |reason: &str| ProcessesShown::Unreadable {
        reason: reason.to_owned(),
    };
    match events {
        _ if pod.placement.is_elsewhere() => unknown(ELSEWHERE),
        Err(error) => unknown(&chain(error)),
        Ok(None) => ProcessesShown::Stopped,
        Ok(Some(events)) if events.populated && events.frozen => ProcessesShown::Stopped,
        Ok(Some(events)) if events.populated => ProcessesShown::NotFrozen,
        Ok(Some(_)) if pod.ends_with_cgroup() => ProcessesShown::Stopped,
        Ok(Some(_)) => unknown(NOT_PLACED),
    }
}

/// Returns the last write that stops the pod. A pod that starts afresh was killed before.
const fn stopped_by(pod: &Pod) -> StoppedBy {
    match pod.record.state() {
        State::Killed { .. }
        | State::Confirming {
            origin: Origin::Kill { .. },
            ..
        }
        | State::Storing {
            origin: Origin::Kill { .. },
            ..
        } => StoppedBy::Kill,
        State::Waiting { .. }
        | State::Confirming { .. }
        | State::Storing { .. }
        | State::Running(_)
        | State::Frozen { .. }
        | State::Released(_)
        | State::Refused => StoppedBy::Freeze,
    }
}
