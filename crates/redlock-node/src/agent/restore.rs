//! Starts the agent, and restores the pods from the table and the kubelet's volumes.

use std::collections::BTreeMap;

use redlock_client::clock;
use redlock_core::{
    BootInstant,
    fence::{Record, Run, Stored},
};
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    AgentError,
    freezer::Freezer,
    owner::{KubeletVolumes, Owner, Shared, WaitingPods},
    pod::{Pod, StoredEntry},
    report::Latency,
    turn::Turn,
    volumes::Volumes,
};
use crate::{
    cgroup,
    guardian::chain,
    table::{Entry, EntryState, Found, PodName},
};

impl<'a> Owner<'a> {
    /// Reads the table, and begins to read the volumes. Every pod that is not known to run by a permit is
    /// frozen at the first turn of the task.
    pub(super) fn start(shared: &'a Shared, turn: Turn) -> Result<Self, AgentError> {
        let (reports, freezer_reports) = mpsc::unbounded_channel();
        let freezer = Freezer::start(reports).map_err(AgentError::Freezer)?;
        let mut owner = Self {
            shared,
            freezer,
            turn,
            freezer_reports,
            pods: BTreeMap::new(),
            quorums: BTreeMap::new(),
            ended: BTreeMap::new(),
            rounds: JoinSet::new(),
            closing: JoinSet::new(),
            confirming: JoinSet::new(),
            placing: JoinSet::new(),
            volumes: Volumes::start(),
            kubelet: KubeletVolumes::read(shared.options.kubelet_dir.clone()),
            waiting: WaitingPods::default(),
            latency: Latency::default(),
            cannot_freeze: None,
            ending: None,
            tick_at: BootInstant::default(),
            ticks: 0,
        };
        owner.restore()?;
        Ok(owner)
    }

    fn restore(&mut self) -> Result<(), AgentError> {
        let now = clock::now();
        for (uid, found) in self.shared.table.load()? {
            match found {
                Found::Entry { entry, bytes } if entry.state == EntryState::Ended => {
                    self.ended.insert(uid, bytes);
                }
                Found::Entry { entry, bytes } => self.restore_entry(*entry, bytes, now),
                Found::Unreadable { reason } => self.restore_unknown(&uid, &reason, now),
                Found::Missing => {}
            }
        }
        Ok(())
    }

    fn restore_entry(&mut self, entry: Entry, bytes: Vec<u8>, now: BootInstant) {
        // If the pod is frozen under a permit that still holds, evidence ended the permit, and the agent
        // ended before that was stored.
        let frozen = !matches!(cgroup::pod::is_freeze_requested(&entry.cgroup), Ok(Some(false)));
        let stored = match entry.stored() {
            Stored::Run(run) if frozen => Stored::Run(Run {
                until: run.until.min(now),
                ..run
            }),
            stored => stored,
        };
        let uid = entry.pod.uid.clone();
        let record = Record::restored(stored, now);
        let (until, release) = match &entry.state {
            EntryState::Released(run) => (Some(BootInstant::NEVER), run.reason.clone()),
            _ => (record.permitted_until(), String::new()),
        };
        if let Some(until) = until {
            self.freezer.until(&uid, &entry.cgroup, until);
        }
        tracing::info!(
            pod = uid,
            state = super::pod::name(record.state()),
            "pod restored"
        );
        let mut pod = Pod::new(entry.pod.clone(), Some(entry.cgroup.clone()), record);
        pod.targets.clone_from(&entry.targets);
        pod.declared.clone_from(&entry.declared);
        pod.lock = Some(entry.lock.clone());
        pod.release = release;
        pod.stored = Some(StoredEntry {
            entry,
            bytes,
            acknowledged: false,
        });
        self.pods.insert(uid, pod);
    }

    pub(super) fn restore_unknown(&mut self, uid: &str, reason: &str, now: BootInstant) {
        tracing::warn!(pod = uid, reason, "nothing is known of the pod: it is frozen");
        let cgroup = cgroup::pod::find(&self.shared.options.cgroup_root, uid);
        let cgroup = cgroup
            .inspect_err(|error| tracing::warn!(pod = uid, error = %chain(error), "no cgroup to freeze"))
            .ok();
        let name = PodName {
            uid: uid.to_owned(),
            namespace: String::new(),
            name: String::new(),
        };
        let pod = Pod::new(name, cgroup, Record::restored(Stored::Unknown, now));
        self.pods.insert(uid.to_owned(), pod);
    }
}
