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

/// The reason why an empty cgroup does not show that the pod stands still.
pub(super) const NOT_PLACED: &str = "the cgroup of the pod has never shown a process, and the API server has not shown that no \
    container of the pod runs";

impl Owner<'_> {
    /// Reads the status of each pod that may run and has an empty cgroup, outside the task that owns the records. A pod
    /// that was found by its UID alone has no name to read.
    pub(super) fn read_containers(&mut self) {
        if !self.placing.is_empty() {
            return;
        }
        let named = self.pods.iter().filter(|(_, pod)| !pod.name.name.is_empty());
        let judged = named.filter(|(_, pod)| pod.is_placed_by_status());
        for (uid, pod) in judged.filter(|(_, pod)| has_process(pod) == Some(false)) {
            let (uid, read) = (uid.clone(), self.shared.resolver.containers(&pod.name));
            self.placing.spawn(async move {
                let shown = timeout(READ_WITHIN, read).await;
                let shown = shown.unwrap_or(ContainersShown::Unknown);
                ContainersRead { uid, shown }
            });
        }
    }

    /// Judges a read. A pod that runs elsewhere gets no further permit, and is no longer guarded. A freeze that waits for
    /// the read is judged again.
    pub(super) fn on_containers(&mut self, read: &ContainersRead) {
        self.place(read);
        if self.pods.get(&read.uid).is_some_and(|pod| !pod.lets_run()) {
            self.check_cgroup(&read.uid);
        }
    }

    fn place(&mut self, read: &ContainersRead) {
        let found = self.pods.get_mut(&read.uid);
        let Some(pod) = found.filter(|pod| pod.is_placed_by_status()) else {
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
