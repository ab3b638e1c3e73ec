//! Checks the invariants of the end of a process.

use super::Rules;
use crate::controller::{
    index::{
        Handed, Index,
        simulation::outside::{Outside, Owner},
    },
    sibling_answers::Round,
};

impl Rules {
    /// Checks that a stop has a deadline, and that no target is stopped whose lock a sibling takes over.
    pub(in crate::controller::index::simulation) fn may_end(
        &self,
        handed: &Handed,
        successors: &Round,
        index: &Index,
        outside: &Outside,
    ) -> Result<(), String> {
        for stop in &handed.stops {
            let (key, plan) = (&stop.key, &stop.plan);
            let bound = outside.now + plan.stop_bound();
            if stop.halt.by > bound {
                return Err(format!("{key}: stops until {:?} at the end", stop.halt.by));
            }
            if index.locks.get(key).is_none() {
                return Err(format!("{key}: stopped at the end without an object"));
            }
            if successors.has_successor(&plan.quorum, &plan.lock_name, true) {
                return Err(format!("{key}: stopped at the end, and a sibling takes it over"));
            }
        }
        Ok(())
    }

    /// Checks that a lock is released to other clusters only after its targets were stopped.
    pub(in crate::controller::index::simulation) fn may_release(
        &self,
        handed: &Handed,
        outside: &Outside,
    ) -> Result<(), String> {
        for (key, task) in &outside.tasks {
            let plan = &task.plan;
            let quorum = outside.quorums.get(&plan.quorum);
            let stand = quorum.and_then(|quorum| quorum.locks.get(&plan.lock_name));
            let owner = stand.and_then(|stand| stand.owner);
            let held = owner.is_some_and(|(owner, _, until)| owner == Owner::Me && until > outside.now);
            let kept = handed.reserve.get(&plan.quorum);
            let kept = kept.is_some_and(|locks| locks.contains(&plan.lock_name));
            if held && !kept && plan.switches() && outside.running.contains(key) {
                return Err(format!("{key}: released at the end while its targets run"));
            }
        }
        Ok(())
    }
}
