//! Bugs that the simulation must see. Each is in the driver or in the model of a master.

use super::{faults::Bug, simulation::run};

/// Each is seen within ten; the rest is for changes of the random order.
const WORLDS: u64 = 100;

/// Some world must show the bug as one of these invariants.
#[track_caller]
fn is_seen(bug: Bug, invariants: &[&str]) {
    let seen = (0..WORLDS).find_map(|seed| run(seed, Some(bug)));
    let seen = seen.unwrap_or_else(|| panic!("{bug:?} was not seen in {WORLDS} worlds"));
    assert!(
        invariants.iter().any(|i| seen.starts_with(i)),
        "{bug:?} was seen as: {seen}"
    );
}

#[test]
fn without_drift_fast_masters_free_a_lease_that_is_believed_in() {
    is_seen(Bug::NoDrift, &["S1", "S3"]);
}

#[test]
fn without_confirm_tokens_do_not_increase() {
    is_seen(Bug::NoConfirm, &["S2"]);
}

#[test]
fn resealing_without_waiting_gives_a_lease_away_twice() {
    is_seen(Bug::ResealWithoutWaiting, &["S1", "S3"]);
}

#[test]
fn a_master_that_votes_twice_makes_two_holders() {
    is_seen(Bug::MasterVotesTwice, &["S1", "S2", "S3"]);
}

#[test]
fn a_failed_renewal_that_deletes_is_seen() {
    is_seen(Bug::FailedRenewalDeletes, &["S6"]);
}

#[test]
fn a_renewal_sent_after_the_local_end_is_seen() {
    is_seen(Bug::RenewalAfterTheEnd, &["S3"]);
}
