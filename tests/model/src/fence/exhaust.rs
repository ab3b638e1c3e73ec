//! Explores everything within each of the bounds, with the rules as they are.

use std::time::Instant;

use stateright::{Checker, Model};

use super::{
    PROMISE,
    actions::World,
    bounds::{Bounds, Bug},
    state::{Cluster, LEASES, Phase, PodState, State},
};

fn exhaust(name: &str, bounds: Bounds) -> usize {
    let began = Instant::now();
    let world = World {
        bounds,
        bug: Bug::Nothing,
    };
    let checker = world
        .checker()
        .threads(1)
        .target_state_count(number("MODEL_STATES"))
        .spawn_bfs()
        .join();
    let generated = checker.state_count();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    let took = began.elapsed().as_secs_f64();
    println!("fence: {name}|{states}|{depth}|{took:.1} s, {generated}");
    if let Some(path) = checker.discovery(PROMISE) {
        println!("{:#?}", path.last_state());
        panic!("{name}: {:#?}", path.into_actions());
    }
    states
}

macro_rules! exhausts {
    ($($name:ident: $bounds:ident;)+) => {$(
        #[test]
        fn $name() {
            exhaust(stringify!($bounds), super::bounds::$bounds);
        }
    )+};
}

exhausts! {
    ends: ENDS;
    lost_replies: LOST_REPLIES;
    forced: FORCED;
    returns: RETURN;
    plain: PLAIN;
    unfenced: UNFENCED;
    total_loss: TOTAL_LOSS;
    renewals: RENEWALS;
    reserves: RESERVES;
    sibling: SIBLING;
    wipe: WIPE;
    misbehaves: MISBEHAVES;
    two_attempts: TWO_ATTEMPTS;
    benign: BENIGN;
}

fn number(name: &str) -> usize {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(usize::MAX)
}
