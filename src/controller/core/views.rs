//! Gives the index read-only views of the handles.

use super::Executor;
use crate::{
    api::plan::QuorumPlan,
    controller::{
        index::{LockSnapshot, Unready, Views},
        object::ObjectKey,
        secrets::Found,
        target_task::Handle,
    },
    lease::{BootInstant, LockName},
    masters::{MasterStatus, QuorumId},
};

impl Views for Executor {
    fn lock(&self, quorum: &str, lock: &LockName, now: BootInstant) -> Option<LockSnapshot> {
        let snapshot = self.quorums.get(quorum)?.elector.watch(lock)?;
        let snapshot = snapshot.borrow();
        Some(LockSnapshot::of(&snapshot, now))
    }

    fn masters(&self, quorum: &str) -> Option<Vec<MasterStatus>> {
        Some(self.quorums.get(quorum)?.masters.status())
    }

    fn has_majority(&self, quorum: &str) -> bool {
        let running = self.quorums.get(quorum);
        running.is_some_and(|running| running.masters.majority_grants())
    }

    fn quorum_id(&self, quorum: &str) -> Option<QuorumId> {
        self.quorums.get(quorum)?.masters.quorum_id()
    }

    fn is_api_server_lost(&self) -> bool {
        *self.kubernetes.clients.lost.borrow()
    }

    fn unready(&self) -> Option<Unready> {
        if self.state.was_ready() {
            return None;
        }
        let readiness = self.state.readiness();
        (!readiness.ready).then_some(Unready {
            message: readiness.message,
            unseen: readiness.unseen,
        })
    }

    fn target_task_ended(&self, key: &ObjectKey) -> bool {
        self.tasks.targets.get(key).is_some_and(Handle::is_broken)
    }

    fn access(&self, plan: &QuorumPlan) -> Found {
        self.secrets.access(plan)
    }
}
