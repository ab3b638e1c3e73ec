//! Finds pods whose containers run outside their cgroup.

use std::time::Duration;

use redlock_client::clock;
use tokio::time::timeout;

use super::{ContainersRead, Owner};
use crate::{
    agent::{ChangeKind, pod::Pod},
    cgroup::{self, CgroupError, pod::Events},
    resolver::ContainersShown,
};

/// The timeout of a read of the status of a pod.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// The reason why a pod whose containers run outside its cgroup is not guarded.
pub(super) const ELSEWHERE: &str = "a container of the pod runs, and no process is in the cgroup of the pod, so no freeze reaches \
    it: use the same cgroup driver for the kubelet and the container runtime, and a runtime that runs containers as \
    processes of the node";

impl Owner<'_> {
    /// Reads the status of each pod that may run and has an empty cgroup, outside the task that owns the records.
    pub(super) fn read_containers(&mut self) {
        if !self.placing.is_empty() {
            return;
        }
        let running = self.pods.iter().filter(|(_, pod)| pod.is_running());
        for (uid, pod) in running.filter(|(_, pod)| has_process(pod) == Some(false)) {
            let (uid, read) = (uid.clone(), self.shared.resolver.containers(&pod.name));
            self.placing.spawn(async move {
                let shown = timeout(READ_WITHIN, read).await;
                let shown = shown.unwrap_or(ContainersShown::Unknown);
                ContainersRead { uid, shown }
            });
        }
    }

    /// Judges a read. A pod that runs elsewhere gets no further permit, and is no longer guarded.
    pub(super) fn on_containers(&mut self, read: &ContainersRead) {
        let Some(pod) = self.pods.get_mut(&read.uid).filter(|pod| pod.is_running()) else {
            return;
        };
        let Some(populated) = has_process(pod) else {
            return;
        };
        if !pod.placement.observe(populated, read.shown, clock::now()) {
            return;
        }
        tracing::error!(pod = read.uid, reason = ELSEWHERE, "the pod is not fenced");
        pod.unable = Some(ELSEWHERE.to_owned());
        let change = pod.change_of(ChangeKind::NotFenced, ELSEWHERE.to_owned());
        self.send_change(change);
    }

    /// Notes that the cgroup of a pod has a process.
    pub(super) fn note_process(&mut self, uid: &str, events: &Result<Option<Events>, CgroupError>) {
        if let Ok(Some(Events { populated: true, .. })) = events
            && let Some(pod) = self.pods.get_mut(uid)
        {
            pod.placement.note_process();
        }
    }
}

/// Reports whether the cgroup of a pod has a process; `None` if that cannot be read.
fn has_process(pod: &Pod) -> Option<bool> {
    let events = cgroup::pod::events(pod.cgroup.as_ref()?).ok()?;
    Some(events.is_some_and(|events| events.populated))
}
