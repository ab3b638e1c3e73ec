//! Planted faults: they prove that the check finds them, within the bounds in which it finds nothing else.

use std::time::Instant;

use stateright::{Checker, Model};

use super::{
    PROMISE,
    actions::World,
    bounds::{self, Bounds, Bug},
    state::Broken,
};

fn is_found(bug: Bug, bounds: Bounds, by: &[Broken]) {
    let began = Instant::now();
    let checker = World {
        bounds,
        bug,
        goal: None,
    }
    .checker()
    .threads(1)
    .spawn_bfs()
    .join();
    let states = checker.unique_state_count();
    let path = checker
        .discovery(PROMISE)
        .unwrap_or_else(|| panic!("{bug:?} was not found in {states} states"));
    let broken = path.last_state().broken.unwrap();
    let (took, actions) = (began.elapsed().as_secs_f64(), path.into_actions());
    let depth = actions.len();
    println!("planted: {bug:?}|model|{broken:?} after {states} states, {depth} deep, {took:.1} s");
    println!("{actions:?}");
    assert!(by.contains(&broken), "{bug:?} was found as {broken:?}");
}

macro_rules! found {
    ($($name:ident: $bug:ident in $bounds:ident by $($broken:ident),+;)+) => {$(
        #[test]
        fn $name() {
            is_found(Bug::$bug, bounds::$bounds, &[$(Broken::$broken),+]);
        }
    )+};
}

found! {
    an_unmarked_lease_that_counts_is_found: UnmarkedCounted in TWO_ATTEMPTS by Overlap;
    a_permit_before_the_mark_is_found: PermitBeforeMark in ENDS by Overlap;
    a_pod_that_was_force_deleted_and_counts_as_gone_is_found: ForceDeletedGone in FORCED by Overlap;
    a_permit_that_is_kept_against_evidence_is_found: ContraryIgnored in MISBEHAVES by Overlap;
    a_missing_delay_that_is_short_is_found: MissingDelay in TOTAL_LOSS by Delay;
    a_thaw_on_another_lineage_is_found: ThawOnOtherFirst in RETURN by Lineage;
    a_newer_held_that_is_ignored_is_found: NewerHeldIgnored in PLAIN by Lineage, Overlap;
    a_lineage_that_each_master_decides_is_found: FirstByEachMaster in RETURN by MarkTwice;
    a_release_before_the_stop_is_confirmed_is_found: ReleasedEarly in ENDS by Overlap;
    a_mark_before_the_takeover_delay_is_found: MarkBeforeDelay in UNFENCED by Delay;
    a_reservation_where_a_renewal_was_refused_is_found: KeptWhereRefused in RENEWALS by Overlap;
    a_start_after_closing_is_found: ClosedIgnored in ENDS by Overlap;
    a_stop_that_an_adopter_confirms_is_found: AdopterReleases in FORCED by Overlap;
    a_release_of_an_unmarked_lease_that_deletes_the_reservation_is_found: UnmarkedReleased in SIBLING by Overlap;
    a_marked_lease_that_is_taken_for_unmarked_is_found: MarkForgotten in LOST_REPLIES by Overlap;
    a_reserve_that_shortens_is_found: ReserveShortens in RESERVES by Overlap;
    a_seal_that_does_not_wait_for_reservations_is_found: SealWaitShort in WIPE by Overlap;
    a_delay_that_a_late_mark_lowers_is_found: DelayLowered in UNFENCED by Delay;
}
