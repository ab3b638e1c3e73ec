//! Simulates the end of a process and the start of the next one.

use std::collections::{HashMap, HashSet};

use super::{Outside, Owner};
use crate::{
    controller::{
        index::{FinalizerChange, FinalizerEnd},
        object::ObjectKey,
    },
    lease::{HolderIdentity, LockName},
};

impl Outside {
    /// Reports whether the target task of this lock can receive an order to stop, and carry it out.
    pub(super) fn stops_in_time(&self, key: &ObjectKey) -> bool {
        let works = self.tasks.get(key).is_some_and(|task| !task.broken);
        works && !self.server.down
    }

    pub(in crate::controller::index::simulation) fn stop_at_end(&mut self, key: &ObjectKey) -> bool {
        let stops = self.stops_in_time(key) && self.random.u8(..4) > 0;
        if stops {
            self.running.remove(key);
        }
        stops
    }

    pub(in crate::controller::index::simulation) fn set_finalizer_at_end(
        &mut self,
        key: &ObjectKey,
        uid: Option<&str>,
        change: &FinalizerChange,
    ) -> Result<FinalizerEnd, String> {
        if self.server.down {
            return Err("no answer".to_owned());
        }
        self.server.set_finalizer(key, uid, change)
    }

    /// Gives up every lease: the leases of these locks to this cluster, and all others to any cluster.
    pub(in crate::controller::index::simulation) fn end(
        &mut self,
        reserve: &HashMap<String, HashSet<LockName>>,
    ) {
        for (name, quorum) in &mut self.quorums {
            let sees = quorum.voting >= 2;
            for (lock, stand) in &mut quorum.locks {
                let kept = reserve.get(name).is_some_and(|locks| locks.contains(lock));
                stand.owner = match stand.owner {
                    Some((Owner::Me, ..)) if sees && !kept => None,
                    Some((Owner::Me, token, until)) => Some((Owner::Sibling, token, until)),
                    owner => owner,
                };
            }
        }
    }

    /// Starts the next process: only the written data of the previous one is left.
    pub(in crate::controller::index::simulation) fn start(&mut self) {
        self.processes += 1;
        self.identity = HolderIdentity::parse(&format!("me-{}", self.processes)).unwrap();
        let names: Vec<String> = self.quorums.keys().cloned().collect();
        names.iter().for_each(|name| self.forget_connections(name));
        self.tasks.clear();
        self.templates.clear();
        self.follows_guards = false;
        self.due.clear();
        self.hand_overs.clear();
        self.server.watch_anew(self.now);
    }

    /// Closes the connections to a quorum, whose masters remember the holders.
    pub(super) fn forget_connections(&mut self, name: &str) {
        let Some(mut quorum) = self.quorums.remove(name) else {
            return;
        };
        for stand in quorum.locks.values_mut() {
            (stand.contends, stand.seen, stand.last) = (None, None, None);
            stand.owner = stand.owner.filter(|(owner, ..)| *owner != Owner::Me);
        }
        self.past.insert(name.to_owned(), quorum.locks);
    }
}
