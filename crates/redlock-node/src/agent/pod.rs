//! Holds one pod of the agent: its record, its entry in the table, and the calls that wait for it.

use std::{collections::BTreeSet, path::PathBuf};

use redlock_core::{
    BootInstant, FencingToken,
    fence::{Finding, Lineage, Record, Refusal, Run, State, Withheld},
};
use tokio::sync::oneshot;

use super::{ChangeKind, PodReport, PublishError, volumes::Volumes};
use crate::{
    spec::LockSpec,
    table::{Entry, PodName},
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
}

/// The entry that was written last.
#[derive(Debug)]
pub(super) struct StoredEntry {
    pub(super) entry: Entry,
    pub(super) bytes: Vec<u8>,
    pub(super) acknowledged: bool,
}

impl Pod {
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

    pub(super) const fn is_storing(&self) -> bool {
        matches!(self.record.state(), State::Storing { .. })
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
                Some(finding) => found(finding),
            },
        }
    }

    /// Reports whether a killed pod still waits for an empty cgroup, after which it starts afresh.
    pub(super) fn waits_for_empty(&self) -> bool {
        matches!(self.record.state(), State::Killed { populated, .. } if *populated != Some(false))
    }

    /// Reports whether the pod was found without an entry, and no entry was written since.
    pub(super) const fn is_lost(&self) -> bool {
        let state = self.record.state();
        self.stored.is_none() && matches!(state, State::Frozen { .. } | State::Killed { .. })
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
            state: name(self.record.state()),
            permit: self.record.permitted_until().map(|until| until.left(now)),
            guarded: self.is_guarded(),
        }
    }

    /// Reports whether the pod is guarded. A pod that never had a permit needs no guard.
    pub(super) fn is_guarded(&self) -> bool {
        self.stored.as_ref().is_none_or(|stored| stored.acknowledged)
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

/// Explains a refusal. `holder` is the holder of the lock, if the last round has shown one.
pub(super) fn explained(refusal: &Refusal, holder: Option<&str>) -> String {
    let reason = match refusal {
        Refusal::PodGone => {
            return "the pod was deleted: the API server shows no pod object with its UID".to_owned();
        }
        Refusal::PodUnknown => {
            return "the API server did not show whether the pod object still exists; check that the node reaches it"
                .to_owned();
        }
        Refusal::Lost => {
            return "the record of the pod is lost while its processes run: the pod is frozen, and killed after 30 s"
                .to_owned();
        }
        Refusal::NoRound => "the masters have not been read since the call".to_owned(),
        Refusal::Closed => "its holder is stopping its targets, and allows no start".to_owned(),
        Refusal::NotStored => {
            "the guardian did not acknowledge the record; check that the node guardian runs on this node"
                .to_owned()
        }
        Refusal::Finding(finding) => found(finding),
    };
    match (holder, refusal) {
        (Some(holder), _) => format!("{reason}; it is held by {holder}"),
        (None, Refusal::Finding(Finding::Unheld | Finding::Withheld(_))) => {
            format!("{reason}; the masters that answered show no holder")
        }
        (None, _) => reason,
    }
}

fn found(finding: &Finding) -> String {
    match finding {
        Finding::Permit(_) => "the permit is about to end".to_owned(),
        Finding::Foreign { cluster_uid, .. } => format!("another cluster (UID {cluster_uid}) has marked it"),
        Finding::Unheld => "this cluster does not hold it, or has not marked its lease".to_owned(),
        Finding::ClockStoodStill => "the clock of this node stood still".to_owned(),
        Finding::Withheld(withheld) => match withheld {
            Withheld::NoMajority => "fewer than a majority of the masters answered".to_owned(),
            Withheld::MarkIsOlder { mark, held } => {
                format!("its holder has not marked its lease (mark {mark}, held {held})")
            }
            Withheld::MarkOnMinority => {
                "the mark of its holder is on fewer than a majority of the masters".to_owned()
            }
            Withheld::MarkIsSplit => "the masters show different marks".to_owned(),
            Withheld::Overtaken => "the round was overtaken by later evidence".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_holder_unless_another_reason_is_known() {
        let foreign = Refusal::Finding(Finding::Foreign {
            cluster_uid: "uid-there".into(),
            token: FencingToken(9),
        });
        let marked = "another cluster (UID uid-there) has marked it";
        assert_eq!(explained(&foreign, None), marked);
        let held = explained(&foreign, Some("there"));
        assert_eq!(held, format!("{marked}; it is held by there"));
        let unheld = explained(&Refusal::Finding(Finding::Unheld), None);
        assert!(
            unheld.ends_with("the masters that answered show no holder"),
            "{unheld}"
        );
        for refusal in [Refusal::NoRound, Refusal::Closed, Refusal::PodGone] {
            let text = explained(&refusal, None);
            assert!(!text.contains("no holder"), "{text}");
        }
    }
}
