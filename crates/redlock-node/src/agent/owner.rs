//! Runs the task that owns all records: gives them inputs, and carries out their effects.

mod calls;
mod effects;
mod ending;
mod freezes;
mod kubelet_volumes;
mod placements;
mod releases;
mod ticks;
mod waiting;

pub(super) use self::{kubelet_volumes::KubeletVolumes, waiting::WaitingPods};

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use redlock_client::clock;
use redlock_core::{
    BootInstant,
    fence::{Finding, Input, Pace, REPEAT_EVERY},
};
use tokio::{
    sync::{broadcast, mpsc, oneshot, watch},
    task::JoinSet,
};

use super::{
    AgentError, Change, Options, PublishError, PublishRequest, Report, UnpublishError,
    freezer::{Freezer, FreezerReport},
    pod::{self, Pod},
    quorum::{Quorum, Round},
    report::Latency,
    turn::{Turn, Turns},
    volumes::Volumes,
};
use crate::{
    cgroup,
    guardian::chain,
    resolver::{ContainersShown, ObjectShown, Resolver},
    spec::{LockSpec, QuorumSpec},
    table::Table,
};

/// The interval of checks while a record waits for its acknowledgement. The guardian acknowledges within a
/// millisecond.
const SOON: Duration = Duration::from_millis(5);
/// The interval of tries to take the turn. The older agent sees a claim within a second.
const NEXT_TRY: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) enum Command {
    Publish(Box<PublishRequest>, oneshot::Sender<Result<(), PublishError>>),
    Unpublish(String, PathBuf, oneshot::Sender<Result<(), UnpublishError>>),
    Report(oneshot::Sender<Report>),
    ShutDown,
}

/// The state that outlives the turn of an agent.
pub(super) struct Shared {
    pub(super) options: Options,
    pub(super) table: Table,
    pub(super) turns: Turns,
    pub(super) resolver: Arc<dyn Resolver>,
    pub(super) ready: watch::Sender<bool>,
    pub(super) changes: broadcast::Sender<Change>,
}

/// The result of a read of the object of a pod.
pub(super) struct Confirmed {
    pub(super) uid: String,
    pub(super) shown: ObjectShown,
    /// The time at which the read began.
    pub(super) asked: BootInstant,
}

/// The result of a read of the status of a pod.
pub(super) struct ContainersRead {
    pub(super) uid: String,
    pub(super) shown: ContainersShown,
}

/// The reason why a turn ended.
enum End {
    ShutDown,
    /// A newer agent takes over.
    Claimed,
}

/// One turn of the agent.
pub(super) struct Owner<'a> {
    pub(super) shared: &'a Shared,
    /// Fields are dropped in this order: the thread carries out its last command before another agent acts.
    pub(super) freezer: Freezer,
    pub(super) turn: Turn,
    pub(super) freezer_reports: mpsc::UnboundedReceiver<FreezerReport>,
    pub(super) pods: BTreeMap<String, Pod>,
    pub(super) quorums: BTreeMap<QuorumSpec, Quorum>,
    /// Entries that have ended, until the guardian has acknowledged that.
    pub(super) ended: BTreeMap<String, Vec<u8>>,
    pub(super) rounds: JoinSet<Round>,
    pub(super) closing: JoinSet<()>,
    /// Reads of the objects of pods that are about to start.
    pub(super) confirming: JoinSet<Confirmed>,
    /// Reads of the status of pods with an empty cgroup.
    pub(super) placing: JoinSet<ContainersRead>,
    pub(super) volumes: Volumes,
    pub(super) kubelet: KubeletVolumes,
    pub(super) waiting: WaitingPods,
    pub(super) latency: Latency,
    /// The reason why this agent can freeze no pod of the node, if it cannot.
    pub(super) cannot_freeze: Option<String>,
    /// The time at which the process was asked to end.
    pub(super) ending: Option<BootInstant>,
    pub(super) tick_at: BootInstant,
    pub(super) ticks: u64,
}

impl Shared {
    /// Acts whenever it is the turn of this agent.
    pub(super) async fn run(
        mut self,
        mut commands: mpsc::UnboundedReceiver<Command>,
    ) -> Result<(), AgentError> {
        while let Some(turn) = self.wait(&mut commands).await? {
            match Owner::start(&self, turn)?.run(&mut commands).await? {
                End::ShutDown => break,
                End::Claimed => tracing::info!("a newer agent takes over"),
            }
        }
        Ok(())
    }

    /// Waits for the turn of this agent; `None` if the agent ends before its turn.
    async fn wait(
        &mut self,
        commands: &mut mpsc::UnboundedReceiver<Command>,
    ) -> Result<Option<Turn>, AgentError> {
        loop {
            if let Some(turn) = self.turns.take(clock::now()).map_err(AgentError::Turn)? {
                return Ok(Some(turn));
            }
            tokio::select! {
                command = commands.recv() => match command {
                    Some(Command::Publish(_, answer)) => _ = answer.send(Err(PublishError::Stopped)),
                    Some(Command::Unpublish(_, _, answer)) => _ = answer.send(Err(UnpublishError::Stopped)),
                    Some(Command::Report(answer)) => _ = answer.send(self.no_report()),
                    Some(Command::ShutDown) | None => return Ok(None),
                },
                () = tokio::time::sleep(NEXT_TRY) => {}
            }
        }
    }

    fn no_report(&self) -> Report {
        Report {
            pods: Vec::new(),
            quorums: Vec::new(),
            guardian: self.table.heartbeat(),
            cgroup2: cgroup::pod::is_version_2(&self.options.cgroup_root).ok(),
            cannot_freeze: cannot_freeze(&self.options),
            latency: Latency::default(),
        }
    }
}

/// Returns the reason why an agent with these options can freeze no pod, if it cannot.
pub(super) fn cannot_freeze(options: &Options) -> Option<String> {
    let node = cgroup::ability::check_node(&options.cgroup_root);
    node.err().map(|error| chain(&error))
}

impl Owner<'_> {
    async fn run(mut self, commands: &mut mpsc::UnboundedReceiver<Command>) -> Result<End, AgentError> {
        let end = loop {
            let now = clock::now();
            self.wake_records(now);
            if now >= self.tick_at {
                self.tick_at = now + REPEAT_EVERY;
                if self.turn.is_claimed() {
                    break if self.ending.is_some() {
                        End::ShutDown
                    } else {
                        End::Claimed
                    };
                }
                self.tick(now);
            }
            self.poll_soon();
            self.poll_freezes();
            if let Some(reason) = self.may_end() {
                tracing::info!(?reason, "the agent ends");
                break End::ShutDown;
            }
            self.begin_rounds(now);
            let wake = self.next_wake(now);
            tokio::select! {
                command = commands.recv() => match command {
                    Some(Command::ShutDown) => self.begin_end(),
                    None => break End::ShutDown,
                    Some(command) => if let Some(command) = self.kubelet.admit(command) {
                        self.on_command(command);
                    },
                },
                Some(round) = self.rounds.join_next() => {
                    let round = round.map_err(|error| AgentError::Task(error.to_string()))?;
                    self.on_round(&round);
                }
                report = self.freezer_reports.recv() => match report {
                    Some(report) => self.on_freezer_report(report),
                    // Without the thread, a pod is neither killed nor thawed. The next process starts the
                    // thread again.
                    None => return Err(AgentError::FreezerEnded),
                },
                Some(read) = self.kubelet.reads.join_next() => {
                    self.on_read(read.map_err(|error| AgentError::Task(error.to_string()))?)?;
                }
                Some(_) = self.closing.join_next() => {}
                Some(confirmed) = self.confirming.join_next() => {
                    let confirmed = confirmed.map_err(|error| AgentError::Task(error.to_string()))?;
                    self.on_confirmed(&confirmed);
                }
                Some(read) = self.placing.join_next() => {
                    let read = read.map_err(|error| AgentError::Task(error.to_string()))?;
                    self.on_containers(&read);
                }
                () = clock::sleep_until(wake) => {}
            }
        };
        self.close().await;
        Ok(end)
    }

    /// Ends the turn. The pods continue to run until their permits end. Another agent acts once this one no
    /// longer writes.
    async fn close(self) {
        self.shared.ready.send_replace(false);
        let Self {
            freezer,
            turn,
            quorums,
            mut rounds,
            mut confirming,
            mut placing,
            closing,
            volumes,
            ..
        } = self;
        drop(freezer);
        rounds.shutdown().await;
        confirming.shutdown().await;
        placing.shutdown().await;
        volumes.close().await;
        drop(turn);
        for quorum in quorums.into_values() {
            quorum.close().await;
        }
        closing.join_all().await;
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Publish(_, answer) if self.ending.is_some() => {
                let _ = answer.send(Err(PublishError::Stopped));
            }
            Command::Publish(request, answer) => self.publish(*request, answer),
            Command::Unpublish(uid, target, answer) => self.unpublish(&uid, target, answer),
            Command::Report(answer) => {
                let _ = answer.send(self.report());
            }
            Command::ShutDown => {}
        }
    }

    fn next_wake(&self, now: BootInstant) -> BootInstant {
        let records = self.pods.values().map(|pod| pod.record.next_wake());
        let rounds = self
            .quorums
            .values()
            .filter(|quorum| !quorum.under_way && self.ending.is_none());
        let rounds = rounds.map(|quorum| quorum.due);
        let wakes = records.chain(rounds).chain([self.tick_at]);
        let awaited = |pod: &Pod| pod.is_storing() || pod.freeze.is_pending();
        let soon = self.pods.values().any(awaited).then(|| now + SOON);
        wakes.chain(soon).min().unwrap_or(self.tick_at)
    }

    fn wake_records(&mut self, now: BootInstant) {
        let due = self.pods.iter().filter(|(_, pod)| pod.record.next_wake() <= now);
        let due: Vec<String> = due.map(|(uid, _)| uid.clone()).collect();
        for uid in due {
            self.input(&uid, Input::Timer);
        }
    }

    /// Begins the rounds that are due. An agent that ends extends no permit, so that it ends with the permits of its pods.
    fn begin_rounds(&mut self, now: BootInstant) {
        if self.ending.is_some() {
            return;
        }
        for (spec, quorum) in &mut self.quorums {
            if !quorum.under_way && quorum.due <= now {
                quorum.under_way = true;
                self.rounds.spawn(quorum.round(spec.clone()));
            }
        }
    }

    fn on_round(&mut self, round: &Round) {
        let now = clock::now();
        let Some(quorum) = self.quorums.get_mut(&round.quorum) else {
            return;
        };
        quorum.under_way = false;
        let findings = quorum.on_round(round, now);
        self.on_findings(findings);
        self.plan_round(&round.quorum, round.sent());
    }

    pub(super) fn on_findings(&mut self, findings: Vec<(LockSpec, Finding)>) {
        for (lock, finding) in findings {
            let counts = |pod: &Pod| pod.lock.as_ref() == Some(&lock) && pod.accepts(&finding);
            let of_lock = self.pods.iter().filter(|(_, pod)| counts(pod));
            let uids: Vec<String> = of_lock.map(|(uid, _)| uid.clone()).collect();
            for uid in uids {
                self.input(&uid, Input::Round(finding.clone()));
            }
        }
    }

    /// Plans the round after this one. A call that arrived in the meantime has asked for a round at once.
    fn plan_round(&mut self, spec: &QuorumSpec, sent: BootInstant) {
        let Some(quorum) = self.quorums.get_mut(spec) else {
            return;
        };
        if quorum.due > sent {
            return;
        }
        let of_quorum = |lock: &&LockSpec| lock.quorum == *spec;
        let locks: BTreeSet<&LockSpec> = self
            .pods
            .values()
            .filter_map(|pod| pod.lock.as_ref())
            .filter(of_quorum)
            .collect();
        let next = |lock: &LockSpec| {
            let pods = self.pods.values().filter(|pod| pod.lock.as_ref() == Some(lock));
            let pace: Pace = lock.pace();
            pace.next(sent, pods.map(|pod| &pod.record))
        };
        let next = locks.into_iter().map(next).min();
        quorum.due = next.map_or(BootInstant::NEVER, |next| next.min(quorum.latest(sent)));
    }

    /// Gives one input to the record of a pod, and carries out its effects.
    pub(super) fn input(&mut self, uid: &str, input: Input) {
        let Some(found) = self.pods.get_mut(uid) else {
            return;
        };
        if let Input::Round(finding) = &input {
            found.shown = Some(finding.clone());
        }
        let before = pod::name(found.record.state());
        let effects = found.record.handle(input, clock::now());
        let after = pod::name(found.record.state());
        if found.lets_run() {
            found.freeze.end();
            found.failed_write = None;
        }
        let change = pod::change(before, after).and_then(|kind| found.on_change(kind));
        if let Some(change) = change {
            self.send_change(change);
        }
        for effect in effects {
            self.effect(uid, effect);
        }
        if after == "refused" {
            // The kubelet calls again, for a new record. The entry of a permit that ended before the pod
            // started also ends.
            self.end(uid);
        }
    }
}

#[cfg(test)]
mod tests;
