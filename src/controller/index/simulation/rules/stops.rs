//! Checks the orders to stop targets.

use super::{Rules, sees, sibling_has};
use crate::{
    api::leader_lock::Candidates,
    controller::{
        index::{AfterStop, Index, drain::Purpose, has_finalizer, simulation::outside::Outside},
        object::ObjectKey,
        target_task::StopRequest,
    },
};

impl Rules {
    /// Checks an order to stop targets, in this batch and outside of it.
    pub(super) fn check_stop(
        &self,
        key: &ObjectKey,
        halt: StopRequest,
        after: &AfterStop,
        index: &Index,
        outside: &Outside,
    ) -> Result<(), String> {
        if matches!(after, AfterStop::Drained(Purpose::Unready, _)) && self.abstains.as_ref() != Some(key) {
            return Err(format!("{key}: stopped for a failover that is not in its object"));
        }
        if outside.tasks.get(key).is_some_and(|task| task.broken) {
            return Err(format!(
                "{key}: its target task has panicked, and is ordered to stop"
            ));
        }
        if let AfterStop::Drained(purpose, drained) = after {
            let unready = drained.plan.failover_after_unready.is_some();
            let asked = matches!(purpose, Purpose::Asked(_));
            if asked && self.willing.declines(key, &drained.to, unready, outside.now) {
                return Err(format!("{key}: stopped for a cluster that does not take part"));
            }
            if self.given_up.as_ref() == Some(&drained.plan.lock_name) {
                return Ok(());
            }
        }
        if self.gives_up(key, index) {
            return Err(format!(
                "{key}: stopped under the lease that the same batch gives up"
            ));
        }
        may_stop(key, halt, after, index, outside)
    }
}

/// Checks that a stop has a deadline, that a stop for a hand-over is ordered under the lease, and that a stop for a
/// deletion is not ordered by another replica than the holder while a sibling is responsible.
fn may_stop(
    key: &ObjectKey,
    halt: StopRequest,
    after: &AfterStop,
    index: &Index,
    outside: &Outside,
) -> Result<(), String> {
    let entry = index
        .locks
        .get(key)
        .ok_or("targets without an object are stopped")?;
    let plan = entry.phase.plan().ok_or("what is not put is stopped")?;
    let bound = outside.now + plan.stop_bound();
    if halt.by > bound {
        return Err(format!("{key}: stops until {:?}, not until {bound:?}", halt.by));
    }
    let at = super::super::world(outside);
    match after {
        AfterStop::TakenAway(until) if *until > bound => {
            Err(format!("{key}: is kept until {until:?}, not until {bound:?}"))
        }
        AfterStop::TakenAway(_) => {
            let deleted = entry.object.metadata.deletion_timestamp.is_some();
            // The holder carries out a departure, also while it has lost the majority.
            if deleted && !index.holds(key, &at) && sibling_has(key, index, outside) {
                return Err(format!("{key}: stopped, and a sibling has it in hand"));
            }
            let operator = plan.candidates == Candidates::Operator;
            let blind = !sees(entry, outside);
            let coordinated = operator && blind && index.is_coordinated_elsewhere(&plan.quorum, &at);
            if coordinated && has_finalizer(&entry.object) && !index.holds(key, &at) {
                return Err(format!("{key}: stopped, and another replica coordinates"));
            }
            Ok(())
        }
        AfterStop::Drained(_, drained) if index.holds_lease(key, drained.token, &at) => Ok(()),
        AfterStop::Drained(..) => Err(format!("{key}: stopped for a hand-over, without its lease")),
    }
}
