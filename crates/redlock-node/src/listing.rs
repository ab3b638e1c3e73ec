//! Lists the fenced pods of a node from its state directory, for an administrator, even if neither the agent
//! nor an API server answers.

use std::{
    io,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

use redlock_client::clock;
use redlock_core::BootInstant;
use serde::Serialize;

use crate::{
    agent::Vacant,
    cgroup::pod,
    kubelet::{self, Published},
    table::{Entry, EntryState, Found, PodName, Table, TableError, Waiting},
};

/// The time to wait for a read. Thousands of volumes are read within it; a longer read shows that the disk
/// hangs.
const READ_WITHIN: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub struct Options {
    /// The directory of the table that agent and guardian share.
    pub state_dir: PathBuf,
    /// The directory of the kubelet, which shows the pods that wait; with `None`, only the pods of the table
    /// are shown.
    pub kubelet_dir: Option<PathBuf>,
}

/// The fenced pods of a node, and their guards.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Listing {
    /// Whether an agent acts; `None` if that cannot be determined.
    pub agent_acts: Option<bool>,
    /// `None` if no guardian has reported since the machine booted.
    pub guardian: Option<Guardian>,
    pub pods: Vec<PodRow>,
    /// The reason why the pods that wait are unknown, if they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Guardian {
    pub reported_seconds_ago: f64,
    pub runs: bool,
    /// The reasons why the guardian is degraded.
    pub degraded: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum PodState {
    /// The pod has not started, and has no permit.
    Waiting,
    Running,
    Frozen,
    Killed,
    /// The pod runs without a permit, by order of an administrator.
    Released,
    /// The record of the pod cannot be read: the pod is frozen.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRow {
    pub namespace: String,
    pub pod: String,
    pub uid: String,
    /// `namespace/name` of the LeaderLock.
    pub lock: String,
    pub state: PodState,
    /// The time from now until the end of the permit; negative once the permit has ended.
    pub permit_ends_in_seconds: Option<f64>,
    /// Whether the guardian has acknowledged the record.
    pub guarded: bool,
    /// The reason why the pod does not run by a permit.
    pub reason: String,
}

/// The requested state of the cgroup of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cgroup {
    Frozen,
    Thawed,
    Gone,
    Unknown,
}

impl PodState {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Frozen => "frozen",
            Self::Killed => "killed",
            Self::Released => "released",
            Self::Unknown => "unknown",
        }
    }
}

/// Reads the table, and the volumes of the kubelet.
///
/// # Errors
/// Returns an error if there is no table, or if it cannot be read.
pub fn read(options: &Options) -> Result<Listing, TableError> {
    let table = Table::existing(&options.state_dir)?;
    let now = clock::now();
    let mut pods = Vec::new();
    let mut known = Vec::new();
    for (uid, found) in table.load()? {
        match found {
            Found::Entry { entry, bytes } => {
                let guarded = table.is_acknowledged(&uid, &bytes);
                pods.extend(of_entry(&entry, guarded, cgroup(&entry), now));
            }
            Found::Unreadable { reason } => pods.push(unknown(&uid, reason)),
            Found::Missing => continue,
        }
        known.push(uid);
    }
    let agent_acts = acts(Vacant::take(&options.state_dir));
    let mut shown = table.waiting();
    let published = options.kubelet_dir.as_deref().map(published).transpose();
    let (published, incomplete) = match published {
        Ok(published) => (published.unwrap_or_default(), None),
        Err(reason) => (Vec::new(), Some(reason)),
    };
    for volume in published {
        if !known.contains(&volume.uid) {
            pods.push(without_entry(&volume.uid, shown.remove(&volume.uid).as_ref()));
            known.push(volume.uid);
        }
    }
    // The kubelet removes the directory of a refused volume until its next call. The observations of an agent
    // that has ended are outdated.
    if agent_acts != Some(false) {
        shown.retain(|uid, _| !known.contains(uid));
        pods.extend(
            shown
                .iter()
                .map(|(uid, waiting)| without_entry(uid, Some(waiting))),
        );
    }
    pods.sort_by(|a, b| (&a.namespace, &a.pod, &a.uid).cmp(&(&b.namespace, &b.pod, &b.uid)));
    Ok(Listing {
        agent_acts,
        guardian: table.heartbeat().map(|heartbeat| Guardian {
            reported_seconds_ago: heartbeat.age(now).as_secs_f64(),
            runs: heartbeat.runs(now),
            degraded: heartbeat.degraded,
        }),
        pods,
        incomplete,
    })
}

/// Reads the volumes on a thread, which is not joined: a read from a disk that hangs cannot be ended.
fn published(kubelet: &Path) -> Result<Vec<Published>, String> {
    let (read, awaited) = mpsc::channel();
    let directory = kubelet.to_owned();
    thread::spawn(move || {
        let published = kubelet::published(&directory);
        let _ = read.send(published.map_err(|error| crate::guardian::chain(&error)));
    });
    awaited.recv_timeout(READ_WITHIN).unwrap_or_else(|_| {
        Err(format!(
            "the volumes below {} could not be read within {} s: the disk may hang",
            kubelet.display(),
            READ_WITHIN.as_secs()
        ))
    })
}

fn acts(vacant: io::Result<Option<Vacant>>) -> Option<bool> {
    vacant.ok().map(|vacant| vacant.is_none())
}

fn cgroup(entry: &Entry) -> Cgroup {
    match pod::is_freeze_requested(&entry.cgroup) {
        Ok(Some(true)) => Cgroup::Frozen,
        Ok(Some(false)) => Cgroup::Thawed,
        Ok(None) => Cgroup::Gone,
        Err(_) => Cgroup::Unknown,
    }
}

/// Returns the row of an entry; `None` for a pod that has ended.
fn of_entry(entry: &Entry, guarded: bool, cgroup: Cgroup, now: BootInstant) -> Option<PodRow> {
    let (state, until) = match &entry.state {
        EntryState::Starting(run) => (PodState::Waiting, Some(run.run().until)),
        EntryState::Permitted(run) if now < run.run().freeze_at() => {
            (PodState::Running, Some(run.run().until))
        }
        EntryState::Permitted(run) => (PodState::Frozen, Some(run.run().until)),
        EntryState::Killed { start, .. } => (PodState::Killed, start.map(|run| run.run().until)),
        EntryState::Released(_) => (PodState::Released, None),
        EntryState::Ended => return None,
    };
    let mut reason = match &entry.state {
        EntryState::Released(run) => format!("released by hand: {}", run.reason),
        EntryState::Starting(_) => {
            "the node guardian has not acknowledged that it can freeze the pod".to_owned()
        }
        _ if state == PodState::Running => String::new(),
        _ if entry.why.is_empty() => "the permit ended, and the node agent stored no reason".to_owned(),
        _ => entry.why.clone(),
    };
    let note = match (state, cgroup) {
        (PodState::Frozen | PodState::Killed, Cgroup::Thawed) => {
            "its cgroup is not frozen: its processes may run"
        }
        (PodState::Running | PodState::Released, Cgroup::Frozen) => "its cgroup is frozen",
        (_, Cgroup::Gone) => "its cgroup is gone",
        (_, Cgroup::Unknown) => "whether its cgroup is frozen cannot be read",
        _ => "",
    };
    if !note.is_empty() {
        let separator = if reason.is_empty() { "" } else { "; " };
        reason = format!("{reason}{separator}{note}");
    }
    Some(PodRow {
        state,
        permit_ends_in_seconds: until.map(|until| from_now(until, now)),
        guarded,
        ..row(&entry.pod, &entry.declared, reason)
    })
}

fn unknown(uid: &str, reason: String) -> PodRow {
    let pod = PodName {
        uid: uid.to_owned(),
        namespace: String::new(),
        name: String::new(),
    };
    PodRow {
        state: PodState::Unknown,
        ..row(&pod, "", reason)
    }
}

/// Returns the row of a pod that has a volume of the kubelet, or that an agent has seen.
fn without_entry(uid: &str, waiting: Option<&Waiting>) -> PodRow {
    match waiting {
        Some(waiting) => row(&waiting.pod, &waiting.declared, waiting.why.clone()),
        None => PodRow {
            state: PodState::Waiting,
            ..unknown(
                uid,
                "the kubelet has not called the node agent, or the record of the pod is lost".to_owned(),
            )
        },
    }
}

fn row(pod: &PodName, lock: &str, reason: String) -> PodRow {
    PodRow {
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        uid: pod.uid.clone(),
        lock: lock.to_owned(),
        state: PodState::Waiting,
        permit_ends_in_seconds: None,
        guarded: false,
        reason,
    }
}

fn from_now(until: BootInstant, now: BootInstant) -> f64 {
    if until >= now {
        until.since(now).as_secs_f64()
    } else {
        -now.since(until).as_secs_f64()
    }
}

#[cfg(test)]
mod tests;
