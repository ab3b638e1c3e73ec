//! Holds one pod of the agent: its record, its entry in the table, and the calls that wait for it.

use std::{collections::BTreeSet, path::PathBuf};

use redlock_core::{
    BootInstant, FencingToken,
    fence::{Finding, Lineage, Origin, Record, Refusal, Run, State},
};
use tokio::sync::oneshot;

use super::{
    Change, ChangeKind, PodReport, PublishError, ReportedState,
    explanations::{explained, finding_explained},
    freeze_watch::FreezeWatch,
    placement::Placement,
    volumes::Volumes,
};
use crate::{
    spec::LockSpec,
    table::{Entry, EntryState, PodName},
    volume::Contents,
};

/// A call to publish a volume.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) target: PathBuf,
    pub(super) answer: oneshot::Sender<Result<(), PublishError>>,
}

#[derive(Debug)]
pub(super) struct Pod {
    pub(super) name: PodName,
    /// `None` if the pod was found without an entry and has no cgroup yet.
    pub(super) cgroup: Option<PathBuf>,
    pub(super) targets: BTreeSet<PathBuf>,
    /// `namespace/name` of the declared lock; empty if unknown.
    pub(super) declared: String,
    /// `None` until the lock of a pod without an entry is resolved again.
    pub(super) lock: Option<LockSpec>,
    pub(super) record: Record,
    pub(super) callers: Vec<Caller>,
    pub(super) stored: Option<StoredEntry>,
    /// The finding of the last round.
    pub(super) shown: Option<Finding>,
    /// The reason of the last release.
    pub(super) release: String,
    pub(super) trial: FreezeTrial,
    pub(super) placement: Placement,
    /// The reason why the agent or the guardian cannot freeze the pod.
    pub(super) unable: Option<String>,
    pub(super) freeze: FreezeWatch,
    /// The reason why the last freeze could not be written.
    pub(super) failed_write: Option<String>,
    /// The freeze or kill that is reported once no process of the pod runs.
    pub(super) unreported: Option<Change>,
}

/// Whether this agent has frozen the empty cgroup of a pod that is about to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FreezeTrial {
    NotBegun,
    Begun,
    Passed,
}

/// The entry that was written last.
#[derive(Debug)]
pub(super) struct StoredEntry {
    pub(super) entry: Entry,
    pub(super) bytes: Vec<u8>,
    pub(super) acknowledged: bool,
}

impl Pod {
    pub(super) fn new(name: PodName, cgroup: Option<PathBuf>, record: Record) -> Self {
        Self {
            name,
            cgroup,
            targets: BTreeSet::new(),
            declared: String::new(),
            lock: None,
            record,
            callers: Vec::new(),
            stored: None,
            shown: None,
            release: String::new(),
            trial: FreezeTrial::NotBegun,
            placement: Placement::default(),
            unable: None,
            freeze: FreezeWatch::default(),
            failed_write: None,
            unreported: None,
        }
    }

    /// Returns the values that the pod reads in its volume.
    pub(super) fn contents(&self) -> Contents {
        let run = match self.record.state() {
            State::Running(run) | State::Storing { run, .. } => *run,
            State::Frozen { lineage, .. } => ended(lineage.unwrap_or(NO_LINEAGE)),
            // The pod can read that no permit guarantees the lock.
            State::Released(release) => ended(release.lineage.unwrap_or(NO_LINEAGE)),
            State::Waiting { .. } | State::Confirming { .. } | State::Killed { .. } | State::Refused => {
                ended(NO_LINEAGE)
            }
        };
        let cluster = self.lock.as_ref().map(|lock| lock.cluster.name.clone());
        Contents {
            lock: self.declared.clone(),
            token: run.lineage.token,
            cluster: cluster.unwrap_or_default(),
            until: run.until,
        }
    }

    pub(super) const fn is_running(&self) -> bool {
        matches!(self.record.state(), State::Running(_))
    }

    /// Reports whether reads of the status of the pod decide where its processes are. The status of a killed pod is late,
    /// so it counts only for the end of a pod that was found elsewhere.
    pub(super) const fn is_placed_by_status(&self) -> bool {
        match self.record.state() {
            State::Running(_) | State::Frozen { .. } => true,
            State::Killed { .. } | State::Confirming { .. } | State::Storing { .. } => {
                self.placement.is_elsewhere()
            }
            State::Waiting { .. } | State::Released(_) | State::Refused => false,
        }
    }

    /// Reports whether an empty cgroup shows that no process of the pod runs. Only a frozen pod may have processes
    /// that were never known: a pod that starts has none, and the processes of a killed one were known before.
    pub(super) const fn ends_with_cgroup(&self) -> bool {
        match self.record.state() {
            State::Frozen { .. } => self.placement.ends_with_cgroup(),
            State::Waiting { .. }
            | State::Confirming { .. }
            | State::Storing { .. }
            | State::Running(_)
            | State::Killed { .. }
            | State::Released(_)
            | State::Refused => true,
        }
    }

    pub(super) const fn is_storing(&self) -> bool {
        matches!(self.record.state(), State::Storing { .. })
    }

    /// Reports whether the pod has not started yet: a call to publish its volume waits for an answer.
    pub(super) const fn is_starting(&self) -> bool {
        match self.record.state() {
            State::Waiting { .. }
            | State::Confirming {
                origin: Origin::Publish { .. },
                ..
            }
            | State::Storing {
                origin: Origin::Publish { .. },
                ..
            } => true,
            State::Confirming { .. }
            | State::Storing { .. }
            | State::Running(_)
            | State::Frozen { .. }
            | State::Killed { .. }
            | State::Released(_)
            | State::Refused => false,
        }
    }

    /// Reports whether this agent was able to freeze the pod. An acknowledgement of the guardian starts no pod without
    /// that (P-104).
    pub(super) fn has_shown_freeze(&self) -> bool {
        let shown = match self.record.state() {
            State::Storing {
                origin: Origin::Publish { .. },
                ..
            } => self.trial == FreezeTrial::Passed,
            State::Storing {
                origin: Origin::Kill { .. },
                ..
            } => self.freeze.is_shown() && self.failed_write.is_none(),
            State::Waiting { .. }
            | State::Confirming { .. }
            | State::Running(_)
            | State::Frozen { .. }
            | State::Killed { .. }
            | State::Released(_)
            | State::Refused => true,
        };
        shown && self.unable.is_none()
    }

    pub(super) const fn is_confirming(&self) -> bool {
        matches!(self.record.state(), State::Confirming { .. })
    }

    pub(super) const fn is_released(&self) -> bool {
        matches!(self.record.state(), State::Released(_))
    }

    pub(super) const fn is_refused(&self) -> bool {
        matches!(self.record.state(), State::Refused)
    }

    /// Reports whether a finding of a round counts for the pod. A pod that no freeze reaches gets no further permit;
    /// evidence against its permit counts for every pod.
    pub(super) const fn accepts(&self, finding: &Finding) -> bool {
        match finding {
            Finding::Permit(_) => !self.placement.is_elsewhere(),
            Finding::Foreign { .. } | Finding::Unheld | Finding::ClockStoodStill | Finding::Withheld(_) => {
                true
            }
        }
    }

    pub(super) fn change_of(&self, kind: ChangeKind, why: String) -> Change {
        Change {
            pod: self.name.clone(),
            lock: self.declared.clone(),
            kind,
            why,
        }
    }

    /// Notes a change of the state of the record, and returns it if it is reported at once. A freeze or a kill is
    /// reported once no process of the pod runs.
    pub(super) fn on_change(&mut self, kind: ChangeKind) -> Option<Change> {
        match kind {
            // The processes of a pod that is killed after its freeze no longer run.
            ChangeKind::Killed if self.freeze.is_shown() => Some(self.change_of(kind, self.why(None))),
            ChangeKind::Fenced | ChangeKind::Killed => {
                self.unreported = Some(self.change_of(kind, self.why(None)));
                None
            }
            ChangeKind::Started | ChangeKind::Thawed => {
                self.unreported = None;
                Some(self.change_of(kind, String::new()))
            }
            ChangeKind::Released => {
                self.unreported = None;
                Some(self.change_of(kind, self.release.clone()))
            }
            ChangeKind::NotFrozen | ChangeKind::NotFenced => {
                Some(self.change_of(kind, self.freeze.reason().to_owned()))
            }
        }
    }

    /// Returns the reason why the pod does not run; empty if it runs. `holder` is the holder of the lock.
    pub(super) fn why(&self, holder: Option<&str>) -> String {
        match self.record.state() {
            State::Running(_) | State::Released(_) => String::new(),
            State::Waiting { refusal, .. } => explained(refusal, holder),
            State::Confirming { .. } => {
                "the API server is asked whether the pod object still exists".to_owned()
            }
            _ => match &self.shown {
                None => "the masters have not been read yet".to_owned(),
                Some(Finding::Permit(_)) => "no later round has given a permit".to_owned(),
                Some(finding) => finding_explained(finding),
            },
        }
    }

    /// Reports whether the record lets processes of the pod run, so that its cgroup is not watched for a freeze.
    pub(super) const fn lets_run(&self) -> bool {
        match self.record.state() {
            State::Frozen { .. }
            | State::Killed { .. }
            | State::Confirming {
                origin: Origin::Kill { .. },
                ..
            }
            | State::Storing {
                origin: Origin::Kill { .. },
                ..
            } => false,
            State::Waiting { .. }
            | State::Confirming { .. }
            | State::Storing { .. }
            | State::Running(_)
            | State::Released(_)
            | State::Refused => true,
        }
    }

    /// Reports whether a killed pod still waits for an empty cgroup, after which it starts afresh.
    pub(super) fn waits_for_empty(&self) -> bool {
        matches!(self.record.state(), State::Killed { populated, .. } if *populated != Some(false))
    }

    /// Reports whether the pod was found without an entry or with that of a start that was interrupted, and no entry was
    /// written since.
    pub(super) const fn is_lost(&self) -> bool {
        let state = self.record.state();
        let started = match &self.stored {
            Some(stored) => !matches!(stored.entry.state, EntryState::Starting(_)),
            None => false,
        };
        !started && matches!(state, State::Frozen { .. } | State::Killed { .. })
    }

    pub(super) fn answer(&mut self, answer: &Result<(), Refusal>, holder: Option<&str>, volumes: &Volumes) {
        let contents = self.contents();
        for caller in self.callers.drain(..) {
            match answer {
                Ok(()) => volumes.publish(caller, contents.clone()),
                Err(refusal) => {
                    let refused = PublishError::NoPermit {
                        lock: self.declared.clone(),
                        reason: explained(refusal, holder),
                    };
                    let _ = caller.answer.send(Err(refused));
                }
            }
        }
    }

    pub(super) fn report(&self, now: BootInstant) -> PodReport {
        PodReport {
            pod: self.name.clone(),
            lock: self.declared.clone(),
            state: self.reported_state(),
            permit: self.record.permitted_until().map(|until| until.left(now)),
            guarded: self.is_guarded(),
        }
    }

    /// Returns the state that the cgroup shows, where the record requires a freeze.
    fn reported_state(&self) -> ReportedState {
        let decided = match self.record.state() {
            State::Frozen { .. } => ReportedState::Frozen,
            State::Killed { .. } => ReportedState::Killed,
            State::Waiting { .. } => return ReportedState::Waiting,
            State::Confirming { .. } => return ReportedState::Confirming,
            State::Storing { .. } => return ReportedState::Storing,
            State::Running(_) => return ReportedState::Running,
            State::Released(_) => return ReportedState::Released,
            State::Refused => return ReportedState::Refused,
        };
        match (&self.freeze, decided) {
            (FreezeWatch::Failed { .. }, _) => ReportedState::NotFrozen,
            (FreezeWatch::Unconfirmed { .. }, _) => ReportedState::Unconfirmed,
            (FreezeWatch::NotDue | FreezeWatch::Pending { .. }, ReportedState::Frozen) => {
                ReportedState::Running
            }
            (FreezeWatch::NotDue | FreezeWatch::Pending { .. } | FreezeWatch::Shown, decided) => decided,
        }
    }

    /// Reports whether the pod is guarded: its record is acknowledged, and agent and guardian can freeze it. A pod that
    /// never had a permit needs no guard.
    pub(super) fn is_guarded(&self) -> bool {
        let acknowledged = |stored: &StoredEntry| stored.acknowledged && self.unable.is_none();
        self.stored.as_ref().is_none_or(acknowledged)
    }
}

const NO_LINEAGE: Lineage = Lineage {
    first: FencingToken(0),
    token: FencingToken(0),
};

fn ended(lineage: Lineage) -> Run {
    Run {
        lineage,
        until: BootInstant::default(),
    }
}

/// Returns the change from one state to the next, if it must be reported.
pub(super) fn change(before: &'static str, after: &'static str) -> Option<ChangeKind> {
    match (before, after) {
        // A killed pod that was about to start afresh.
        ("killed" | "confirming" | "storing", "killed") => None,
        (before, "released") if before != "released" => Some(ChangeKind::Released),
        (_, "killed") => Some(ChangeKind::Killed),
        ("running", "frozen") => Some(ChangeKind::Fenced),
        ("frozen" | "released", "running") => Some(ChangeKind::Thawed),
        ("storing", "running") => Some(ChangeKind::Started),
        _ => None,
    }
}

pub(super) const fn name(state: &State) -> &'static str {
    match state {
        State::Waiting { .. } => "waiting",
        State::Confirming { .. } => "confirming",
        State::Storing { .. } => "storing",
        State::Running(_) => "running",
        State::Frozen { .. } => "frozen",
        State::Killed { .. } => "killed",
        State::Released(_) => "released",
        State::Refused => "refused",
    }
}
