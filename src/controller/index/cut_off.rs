//! Ends a replica that is cut off from the API server, while a sibling is not.
//!
//! Such a replica renews its leases, and can neither repair the targets nor follow the objects. Its locks, and its seat as
//! reporter, go to the sibling: the process ends as on SIGTERM, and the kubelet starts the next one.

use super::{Index, Planted, World, shutdown::has_successor};
use crate::api::plan::LockPlan;
use crate::controller::{
    index::quorum_store::QuorumEntry,
    planted::{WorldMistake, plants},
    sibling_answers::Round,
    target_task::has_room,
};

impl Index {
    /// Reports whether the API server does not answer this replica, which has answered before.
    pub(super) fn is_cut_off(&self, at: &World<'_>) -> bool {
        self.ready.is_some() && at.views.is_api_server_lost() && !plants(WorldMistake::KeepsLocksCutOff)
    }

    /// Ends the process if siblings that reach the API server can take over everything that this replica has.
    pub(super) fn end_if_cut_off(&mut self, round: &Round, at: &World<'_>) {
        if !self.is_cut_off(at) || self.ends || round.is_heartbeat() || !self.can_be_replaced(round, at) {
            return;
        }
        tracing::warn!(
            "the API server does not answer this replica, and it answers a sibling that can take over all locks: this \
             process ends"
        );
        self.end_process();
    }

    /// Reports whether siblings that reach the API server see every quorum that this replica sees, and decide on every held
    /// lock with targets.
    fn can_be_replaced(&self, round: &Round, at: &World<'_>) -> bool {
        let siblings = match self.plants(Planted::EndsBesideCutOffSibling) {
            true => round.clone(),
            false => round.in_contact(),
        };
        let seen = siblings.seen_by_siblings();
        let mut quorums = self.quorums.names().into_iter();
        let all_seen = quorums.all(|name| {
            seen.contains(&name) || !self.quorums.get(&name).is_some_and(QuorumEntry::has_majority)
        });
        let mut locks = self.with_own_targets(at);
        all_seen && !seen.is_empty() && locks.all(|(_, plan)| has_replacement(&siblings, plan))
    }

    /// Reports whether a sibling decides on a lock in place of this replica, which is cut off.
    pub(super) fn is_replaced(&self, successors: &Round, plan: &LockPlan, at: &World<'_>) -> bool {
        self.is_cut_off(at) && has_replacement(&successors.in_contact(), plan)
    }
}

/// Reports whether one of these siblings, which reach the API server, takes the lock over, or knows why no replica may: the
/// object may have been deleted or stepped down since this replica saw it.
fn has_replacement(siblings: &Round, plan: &LockPlan) -> bool {
    let knows = siblings.sibling_is_responsible(&plan.quorum, &plan.lock_name);
    // A sibling that only observes stops the targets between the end of the lease and the start of another cluster.
    let leaves_time = plan.is_fenced() || has_room(plan.takeover_delay, plan.longest_stop());
    has_successor(siblings, plan) || (knows && leaves_time && !plants(WorldMistake::WaitsForContender))
}
