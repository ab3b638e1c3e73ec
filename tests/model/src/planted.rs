//! Planted bugs: they prove that the check finds them, within the bounds in which it finds nothing else.

use std::time::Instant;

use stateright::{Checker, Model};

use crate::{
    exhaust::{SLOTS, TOKENS},
    state::Broken,
    world::{Bounds, Bug, PROMISE, World},
};

fn is_found<const N: usize>(bug: Bug, bounds: Bounds, by: &[Broken]) {
    let began = Instant::now();
    let checker = World::<N> { bounds, bug }.checker().threads(2).spawn_bfs().join();
    let states = checker.unique_state_count();
    let path = checker
        .discovery(PROMISE)
        .unwrap_or_else(|| panic!("{bug:?} was not found in {states} states"));
    let broken = path.last_state().broken.unwrap();
    let took = began.elapsed().as_secs_f64();
    println!("planted: {bug:?}|model|{broken:?} after {states} states, {took:.1} s");
    println!("{:?}", path.into_actions());
    assert!(by.contains(&broken), "{bug:?} was found as {broken:?}");
}

macro_rules! found {
    ($($name:ident: $bug:ident in $bounds:ident by $($broken:ident),+;)+) => {$(
        #[test]
        fn $name() {
            is_found::<3>(Bug::$bug, $bounds, &[$(Broken::$broken),+]);
        }
    )+};
}

/// With one master, these mistakes need a loss of its memory alone.
#[test]
fn mistakes_at_one_master_are_found() {
    for bug in [Bug::NoSeal, Bug::FloorNotRestored] {
        is_found::<1>(bug, TOKENS, &[Broken::TokenTwice, Broken::TokenWentBack]);
    }
}

found! {
    a_token_that_is_not_confirmed_is_found: NoConfirm in TOKENS by TokenTwice, TokenWentBack;
    a_confirm_that_does_not_depend_on_the_grant_is_found: ConfirmUnconditional in TOKENS by TokenTwice, TokenWentBack;
    a_vote_without_a_seal_is_found: NoSeal in TOKENS by TokenTwice, TokenWentBack;
    a_delayed_restart_alone_is_found: FloorNotRestored in TOKENS by TokenTwice, TokenWentBack;
    a_floor_without_the_wait_is_found: FloorWithoutWait in TOKENS by TokenTwice, TokenWentBack;
    a_floor_read_before_the_wait_is_found: FloorBeforeWait in TOKENS by TokenTwice, TokenWentBack;
    a_fallback_because_of_silence_is_found: FallbackWhenUnreachable in TOKENS by TokenTwice, TokenWentBack;
    slots_that_are_not_restored_are_found: SlotsNotRestored in SLOTS by SlotTwice;
    a_tie_that_is_given_to_one_is_found: TieToOne in SLOTS by SlotTwice;
}
