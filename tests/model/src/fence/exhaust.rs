//! Explores everything within each of the bounds, with the rules unchanged.

use std::time::Instant;

use stateright::{Checker, Model};

use super::{
    GOAL, PROMISE,
    actions::{Goal, World},
    bounds::{self, Bounds, Bug},
};

/// Explores until this many states were generated.
fn explore(name: &str, bounds: Bounds, most: usize) -> bool {
    let began = Instant::now();
    let world = World {
        bounds,
        bug: Bug::Nothing,
        goal: None,
    };
    let checker = world
        .checker()
        .threads(1)
        .target_state_count(most)
        .spawn_bfs()
        .join();
    let (steps, states) = (checker.state_count(), checker.unique_state_count());
    let (depth, took) = (checker.max_depth(), began.elapsed().as_secs_f64());
    let all = steps < most;
    println!(
        "fence: {name}: {states} distinct states by {steps} steps, {depth} deep, all: {all}, {took:.1} s"
    );
    if let Some(path) = checker.discovery(PROMISE) {
        println!("{:#?}", path.last_state());
        panic!("{name}: {:#?}", path.into_actions());
    }
    all
}

macro_rules! exhausts {
    ($($name:ident: $bounds:ident;)+) => {$(
        #[test]
        fn $name() {
            assert!(explore(stringify!($bounds), bounds::$bounds, usize::MAX));
        }
    )+};
}

exhausts! {
    no_pod_overlaps_when_holders_stop_and_release: ENDS;
    no_pod_overlaps_when_replies_are_lost: LOST_REPLIES;
    no_pod_overlaps_when_pods_are_deleted_by_force: FORCED;
    no_pod_overlaps_when_the_lock_comes_back: RETURN;
    no_pod_overlaps_beside_a_cluster_that_does_not_fence: PLAIN;
    no_pod_without_the_volume_overlaps: UNFENCED;
    no_pod_overlaps_after_a_total_loss: TOTAL_LOSS;
    no_pod_overlaps_when_renewals_are_late: RENEWALS;
    no_pod_overlaps_when_the_lock_is_passed_on: RESERVES;
    no_pod_overlaps_when_a_sibling_leaves: SIBLING;
    no_pod_overlaps_when_a_master_is_emptied: WIPE;
    no_pod_overlaps_on_two_attempts_of_one_cluster: TWO_ATTEMPTS;
    no_pod_overlaps_when_all_of_a_dies: DEATH;
    no_pod_overlaps_when_the_lock_is_broken_and_the_agent_starts_anew: BREAK;
    evidence_ends_a_permit_before_b_starts: MISBEHAVES;
    no_pod_is_frozen_while_holders_renew: BENIGN;
}

fn reaches(goal: Goal, bounds: Bounds) {
    let world = World {
        bounds,
        bug: Bug::Nothing,
        goal: Some(goal),
    };
    let checker = world.checker().threads(1).spawn_bfs().join();
    let states = checker.unique_state_count();
    let path = checker.discovery(GOAL);
    let path = path.unwrap_or_else(|| panic!("{goal:?} was not reached in {states} states"));
    println!("fence: {goal:?} after {states} states: {:?}", path.into_actions());
}

#[test]
fn a_sibling_adopts_a_running_pod() {
    reaches(Goal::Adoption, bounds::BENIGN);
}

/// Explores wider bounds than `make test` has time for.
#[test]
#[ignore = "takes minutes: make model"]
fn deep() {
    let most = std::env::var("MODEL_STEPS")
        .ok()
        .and_then(|text| text.parse().ok());
    for (name, bounds) in bounds::DEEP {
        explore(name, bounds, most.unwrap_or(usize::MAX));
    }
}

#[test]
fn b_starts_after_the_death_of_all_of_a() {
    reaches(Goal::TakeOver, bounds::DEATH);
}

#[test]
fn a_runs_again_after_the_clean_end_of_b() {
    reaches(Goal::Return, bounds::BACK);
}
