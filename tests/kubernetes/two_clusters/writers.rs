//! The containers of a node, as a kubelet runs them: each is a process in the cgroup of its pod that records when it ran,
//! on the boot-time clock of this machine.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::iter;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use nix::sys::signal::Signal;
use nix::unistd::getppid;
use redlock::clock;
use redlock::lease::BootInstant;
use redlock_testkit::ChildGuard;
use tokio::task::block_in_place;
use tokio::time::sleep;

use super::cluster::NAMESPACE;
use crate::common::sandbox::start_container;
use crate::fixture::kubelet::{Declared, PodProcess, Recorder, Run, Runtime, State, grace, simulated};
use crate::node::{Node, NodePod};

/// The variable with the file of a writer.
const LOG: &str = "REDLOCK_WRITER_LOG";
/// The interval at which a writer records the time.
const EACH: Duration = Duration::from_micros(200);
/// A writer that did not run for this long begins another interval. A busy machine causes shorter pauses.
const GAP: Duration = Duration::from_millis(50);
/// A writer that has not run for this long does not run.
const STILL: Duration = Duration::from_millis(500);
/// The interval at which the processes and cgroups are checked.
const TICK: Duration = Duration::from_millis(20);
/// The pauses of a kubelet between the calls for a volume: the first pause, and the longest.
const PUBLISH_AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(122));
/// The pauses before a container is started again, after the first time. Those of a kubelet are 10 s to 300
/// s: shorter ones start more containers in cgroups that are frozen.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Frozen,
    Thawed,
    /// The process was killed without a signal of the kubelet.
    Killed,
}

/// The period in which a process of a pod ran, without a pause that is longer than [`GAP`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval {
    pub start: BootInstant,
    pub end: BootInstant,
}

pub struct Writers {
    cluster: &'static str,
    node: Arc<Node>,
    folder: tempfile::TempDir,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    logs: Vec<Log>,
    /// The number of pods whose containers run, stand still or are started again.
    running: usize,
    changes: Vec<(BootInstant, Change)>,
}

#[derive(Clone)]
struct Log {
    path: PathBuf,
    pod: NodePod,
}

impl Log {
    fn intervals(&self) -> Vec<Interval> {
        let bytes = fs::read(&self.path).unwrap_or_default();
        let at = |bytes: &[u8]| BootInstant::from_nanos(u64::from_le_bytes(bytes.try_into().unwrap()));
        let pairs = bytes.chunks_exact(16);
        let interval = |pair: &[u8]| Interval {
            start: at(&pair[..8]),
            end: at(&pair[8..]),
        };
        pairs.map(interval).collect()
    }
}

impl Writers {
    pub fn new(cluster: &'static str, node: Arc<Node>) -> Arc<Self> {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        Arc::new(Self {
            cluster,
            node,
            folder,
            seen: Mutex::default(),
        })
    }

    /// Runs the pods of the lock. No process runs for the pods of other namespaces.
    pub fn runtime(self: &Arc<Self>) -> Runtime {
        let (writers, others) = (Arc::clone(self), simulated(self.cluster, &Recorder::default()));
        Arc::new(move |pod| {
            let namespace = pod.declared.borrow().as_deref().and_then(ResourceExt::namespace);
            if namespace.as_deref() == Some(NAMESPACE) {
                Box::pin(Arc::clone(&writers).run(pod))
            } else {
                others(pod)
            }
        })
    }

    /// Returns each process from its first record to its last one: a process that continues after another
    /// cluster has begun overlaps it, even if it stood still in between.
    pub fn runs(&self) -> Vec<Run> {
        let logs = self.seen().logs.clone();
        let run = |log: &Log| {
            let intervals = log.intervals();
            let (first, last) = (intervals.first()?, intervals.last()?);
            Some(Run {
                cluster: self.cluster.to_owned(),
                namespace: log.pod.namespace.clone(),
                name: log.pod.name.clone(),
                uid: log.pod.sandbox.uid.clone(),
                owner: log.path.file_name().unwrap().to_string_lossy().into_owned(),
                start: first.start,
                // A process that was seen only once has run, too.
                end: Some(last.end + Duration::from_nanos(1)),
            })
        };
        logs.iter().filter_map(run).collect()
    }

    pub fn intervals(&self) -> Vec<Interval> {
        let logs = self.seen().logs.clone();
        logs.iter().flat_map(Log::intervals).collect()
    }

    pub fn changes(&self) -> Vec<(BootInstant, Change)> {
        self.seen().changes.clone()
    }

    /// Reports whether a writer runs that is not frozen.
    pub fn is_writing(&self) -> bool {
        let now = clock::now();
        let logs = self.seen().logs.clone();
        let writes = |log: &Log| {
            let last = log.intervals().pop();
            last.is_some_and(|last| now.since(last.end) < STILL) && !is_frozen(&log.pod.sandbox.cgroup)
        };
        // Only the last writers can run.
        logs.iter().rev().take(4).any(writes)
    }

    /// Reports whether no container of the lock is left on the node. A pod may still wait for its volume.
    pub fn is_empty(&self) -> bool {
        self.seen().running == 0
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // No change is ever half made.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(self: Arc<Self>, mut pod: PodProcess) {
        let Some(declared) = pod.wait_for_start().await else {
            pod.states.send_replace(State::Stopped);
            return;
        };
        let on_node = self.node.pod(
            &declared.namespace().unwrap_or_default(),
            &declared.name_any(),
            &declared.uid().unwrap_or_default(),
        );
        let lock = lock(&declared);
        let starts = match &lock {
            Some(lock) => self.publish(&mut pod, &on_node, lock).await,
            None => true,
        };
        if starts {
            self.seen().running += 1;
            self.run_containers(&mut pod, &on_node).await;
            self.seen().running -= 1;
        }
        pod.states.send_replace(State::Unmounting);
        while lock.is_some() && self.node.unpublish(&on_node).await.is_err() {
            sleep(PUBLISH_AGAIN.0).await;
        }
        block_in_place(|| on_node.sandbox.remove());
        pod.states.send_replace(State::Stopped);
    }

    /// Reports whether the containers may start.
    async fn publish(&self, pod: &mut PodProcess, on_node: &NodePod, lock: &str) -> bool {
        let mut pause = PUBLISH_AGAIN.0;
        loop {
            let mut call = tokio::spawn(self.node.publish(on_node, lock));
            tokio::select! {
                answer = &mut call => if answer.unwrap().is_ok() {
                    return grace(pod.declared.borrow().as_deref()).is_none();
                },
                () = deleted(&mut pod.declared) => {
                    // No container runs. The volume is unpublished only after the call.
                    pod.states.send_replace(State::Unmounting);
                    let _ = call.await;
                    return false;
                }
            }
            tokio::select! {
                () = sleep(pause) => {}
                () = deleted(&mut pod.declared) => return false,
            }
            pause = (pause * 2).min(PUBLISH_AGAIN.1);
        }
    }

    /// Runs a container, and starts it again when it has ended, until the pod is deleted.
    async fn run_containers(&self, pod: &mut PodProcess, on_node: &NodePod) {
        let mut pause = Duration::ZERO;
        for number in 0.. {
            let (log, mut writer) = self.start(on_node, number);
            pod.states.send_replace(State::Running);
            if self.follow(pod, &log, &mut writer).await {
                return;
            }
            pod.states.send_replace(State::BackOff);
            tokio::select! {
                () = sleep(pause) => {}
                () = deleted(&mut pod.declared) => return,
            }
            pause = (pause * 2).clamp(BACK_OFF.0, BACK_OFF.1);
        }
    }

    /// Starts a container. The process joins the cgroup before the program of the container begins.
    fn start(&self, on_node: &NodePod, number: usize) -> (Log, ChildGuard) {
        let sandbox = &on_node.sandbox;
        let log = Log {
            path: self.folder.path().join(format!("{}-{number}", sandbox.uid)),
            pod: on_node.clone(),
        };
        let (variable, program) = (
            format!("{LOG}={}", log.path.display()),
            std::env::current_exe().unwrap(),
        );
        let test = "two_clusters::writers::writer";
        let arguments = [
            &*variable,
            program.to_str().unwrap(),
            test,
            "--exact",
            "--ignored",
            "--nocapture",
        ];
        let command: Vec<&OsStr> = iter::once("env").chain(arguments).map(OsStr::new).collect();
        let writer = start_container(&sandbox.cgroup, &format!("container-{number}"), &command);
        self.seen().logs.push(log.clone());
        (log, writer)
    }

    /// Follows a container until it has ended. Returns whether the kubelet ended it, because the pod was deleted.
    async fn follow(&self, pod: &PodProcess, log: &Log, writer: &mut ChildGuard) -> bool {
        let mut frozen = None;
        let mut killed: Option<BootInstant> = None;
        loop {
            let now = clock::now();
            if writer.ended().is_some() {
                // A container that was killed before its program began never ran.
                if killed.is_none() && !log.intervals().is_empty() {
                    self.seen().changes.push((now, Change::Killed));
                }
                return killed.is_some();
            }
            self.see_freeze(log, &mut frozen, now);
            if let Some(grace) = grace(pod.declared.borrow().as_deref()) {
                if killed.is_none() {
                    writer.signal(Signal::SIGTERM);
                }
                killed = Some(killed.unwrap_or(BootInstant::NEVER).min(now + grace));
            }
            if killed.is_some_and(|killed| killed <= now) {
                block_in_place(|| writer.kill());
                return true;
            }
            sleep(TICK).await;
        }
    }

    /// A container is thawed once its program has run again: the processes of a frozen cgroup that is killed are thawed, too.
    fn see_freeze(&self, log: &Log, frozen: &mut Option<BootInstant>, now: BootInstant) {
        match *frozen {
            None if is_frozen(&log.pod.sandbox.cgroup) && !log.intervals().is_empty() => {
                *frozen = Some(now);
                self.seen().changes.push((now, Change::Frozen));
            }
            Some(since) if log.intervals().last().is_some_and(|last| last.end > since) => {
                *frozen = None;
                self.seen().changes.push((now, Change::Thawed));
            }
            _ => {}
        }
    }
}

/// Returns the lock of the volume of the pod.
fn lock(pod: &Pod) -> Option<String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let mut volumes = volumes.filter_map(|volume| volume.csi.as_ref());
    Some(volumes.next()?.volume_attributes.as_ref()?.get("lock")?.clone())
}

fn is_frozen(cgroup: &Path) -> bool {
    let events = fs::read_to_string(cgroup.join("cgroup.events"));
    events.is_ok_and(|events| events.contains("frozen 1"))
}

async fn deleted(declared: &mut Declared) {
    // If this fails, the test has ended, too.
    let _ = declared.wait_for(|pod| grace(pod.as_deref()).is_some()).await;
}

/// The program of a container. Ends with the process that started it.
#[test]
#[ignore = "the program of the pods of a soak"]
fn writer() {
    let Some(path) = std::env::var_os(LOG) else {
        return;
    };
    let (file, parent) = (File::create(path).unwrap(), getppid());
    let (mut offset, mut last) = (0, None);
    while getppid() == parent {
        let now = clock::now();
        let bytes = now.as_nanos().to_le_bytes();
        if last.is_some_and(|last| now.since(last) < GAP) {
            file.write_all_at(&bytes, offset + 8).unwrap();
        } else {
            offset = last.map_or(0, |_| offset + 16);
            file.write_all_at(&[bytes, bytes].concat(), offset).unwrap();
        }
        last = Some(now);
        std::thread::sleep(EACH);
    }
}
