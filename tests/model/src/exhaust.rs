//! Explores everything within the bounds.

use stateright::{Checker, Model};

use crate::world::{Bounds, Bug, World};

/// Two attempts that overlap in any way, each of which may be executed in part, late, or after it was given up; and
/// two wipes, which may hit two masters at once (a total loss) or one while it is being sealed again.
pub(crate) const TOKENS: Bounds = Bounds {
    acquires: 2,
    claims: 0,
    slots: 1,
    wipes: 2,
};

/// The same for claims of two jobs, of which one retries.
pub(crate) const SLOTS: Bounds = Bounds {
    acquires: 0,
    claims: 3,
    slots: 2,
    wipes: 2,
};

fn exhaust<const N: usize>(bounds: Bounds) {
    let world = World::<N> {
        bounds,
        bug: Bug::Nothing,
    };
    let checker = world.checker().threads(2).spawn_bfs().join();
    let (distinct, steps) = (checker.unique_state_count(), checker.state_count());
    println!(
        "{N} masters, {bounds:?}: {distinct} distinct states by {steps} steps, at most {} deep",
        checker.max_depth()
    );
    assert!(checker.is_done());
    checker.assert_properties();
}

#[test]
fn tokens_are_unique_and_rise() {
    exhaust::<3>(TOKENS);
}

/// One master has no majority beside it: each loss of its memory is a total loss.
#[test]
fn tokens_of_one_master_are_unique_and_rise() {
    exhaust::<1>(TOKENS);
}

#[test]
fn a_slot_runs_at_most_once() {
    exhaust::<3>(SLOTS);
}

#[test]
fn slot_of_one_master_runs_at_most_once() {
    exhaust::<1>(SLOTS);
}
