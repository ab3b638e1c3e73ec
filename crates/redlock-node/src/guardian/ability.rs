//! Checks that the guardian can freeze each pod, and keeps the reasons for its heartbeat.

use std::path::PathBuf;

use super::{Cgroup, Guardian, chain};
use crate::{
    cgroup::ability,
    table::{FoundGuarded, GuardedPod},
};

impl Guardian {
    /// Reports whether the guardian can freeze the pod of an entry. The cgroup of a pod that is about to start is empty,
    /// so the guardian freezes it; the agent thaws it after the acknowledgement.
    fn is_able(&mut self, uid: &str, pod: &GuardedPod) -> bool {
        if pod.until.is_none() {
            return true;
        }
        let result = if pod.starts {
            ability::try_freeze(&pod.cgroup).map_err(|error| chain(&error))
        } else {
            ability::check_writable(&pod.cgroup).map_err(|error| chain(&error))
        };
        let able = result.is_ok();
        self.note_ability(uid, result);
        able
    }

    /// Reports whether the entry of a pod may be acknowledged. A guardian that ends leaves each start to its successor: its
    /// trial would freeze the pod again after the agent has thawed it by the acknowledgement of the successor.
    pub(super) fn may_acknowledge(&mut self, uid: &str, pod: &GuardedPod) -> bool {
        if pod.starts && self.ending.is_some() {
            return false;
        }
        self.is_able(uid, pod)
    }

    /// Checks that the pods that run can still be frozen.
    pub(super) fn check_known(&mut self) {
        let known = self.cgroups.iter().filter_map(|(uid, cgroup)| match cgroup {
            Cgroup::At(path) | Cgroup::Deleted(path) => Some((uid.clone(), path.clone())),
            Cgroup::Unknown => None,
        });
        let known: Vec<(String, PathBuf)> = known.collect();
        for (uid, path) in known {
            let result = ability::check_writable(&path).map_err(|error| chain(&error));
            // A trial that failed for another reason is repeated with the entry.
            if result.is_err() || !self.awaits_trial(&uid) {
                self.note_ability(&uid, result);
            }
        }
    }

    pub(super) fn awaits_trial(&self, uid: &str) -> bool {
        matches!(self.table.read_guarded(uid), FoundGuarded::Pod(pod)
            if pod.starts && !self.table.is_acknowledged(uid, &pod.bytes))
    }

    /// Keeps the last reason. Only a change of the ability is logged: the checks and the freezes of a pod fail for different
    /// reasons in turn.
    pub(super) fn note_ability(&mut self, uid: &str, result: Result<(), String>) {
        match result {
            Ok(()) => {
                if self.unable.remove(uid).is_some() {
                    tracing::info!(pod = uid, "the guardian can freeze the pod again");
                }
            }
            Err(reason) => {
                let before = self.unable.insert(uid.to_owned(), reason.clone());
                if before.is_none() {
                    tracing::error!(pod = uid, reason, "the guardian cannot freeze the pod");
                }
            }
        }
    }
}
