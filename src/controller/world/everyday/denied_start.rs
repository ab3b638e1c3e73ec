//! A start that a policy denies, or whose object is missing, with `failoverAfterUnreadySeconds`.

use super::{
    LATE, SOON, denied_stop::deny_switches, has_condition, running_in, unready::lock_that_fails_over,
};
use crate::controller::world::universe::Universe;

/// The first cluster holds the lock and cannot start the work: the lock passes to the other cluster, which can.
pub(super) async fn denied_start(seed: u64) -> Result<(), String> {
    let universe = Universe::start(seed, 2, 2);
    let (first, other) = (&universe.clusters[0], &universe.clusters[1]);
    if seed.is_multiple_of(2) {
        first.create_deployment("web", 0);
        deny_switches(first);
    }
    other.create_deployment("web", 0);
    first.create_lock(lock_that_fails_over());
    universe
        .wait("the first cluster holds the lock", SOON, |_| {
            has_condition(first, "web", "Held")
        })
        .await?;
    other.create_lock(lock_that_fails_over());
    universe
        .wait("the other cluster runs the work", LATE, |universe| {
            running_in(universe, "web") == [other.name.clone()]
        })
        .await?;
    universe
        .keep("the work stays there", SOON, |universe| {
            running_in(universe, "web") == [other.name.clone()]
        })
        .await
}
