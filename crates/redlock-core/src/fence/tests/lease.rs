//! The holder's side: P-107 to P-113.

use super::*;

fn won(register: &MarkRegister, held: u64) -> (FencedLease, Succession) {
    let lease = FencedLease::new(here());
    let succession = lease.win(std::slice::from_ref(register), held, FencingToken(9), at(1));
    (lease, succession)
}

#[test]
fn the_win_decides_the_first_lease_of_the_lineage_for_all_masters() {
    let (lease, succession) = won(&mark(7, 5, &here()), 7);
    assert_eq!((succession.first.0, succession.is_sibling()), (5, true));
    assert!(lease.send(FencingToken(9), Nonce(9), ms(1)));
    let sent = lease.mark().unwrap().clone();
    assert_eq!(sent.to_string(), format!("9|5,uid-here,{}", Nonce(9)));
    // A grant that arrives later changes nothing.
    let later = lease.win(&[mark(8, 8, &here())], 8, FencingToken(9), at(1));
    assert_eq!(later.first.0, 5);
    assert!(lease.send(FencingToken(9), Nonce(9), ms(1)));
    assert_eq!(lease.mark(), Some(&sent));
}

#[test]
fn a_lease_that_was_not_won_or_whose_cluster_makes_no_mark_is_not_marked() {
    let lease = FencedLease::new(here());
    assert!(!lease.send(FencingToken(9), Nonce(9), ms(1)));
    let unmarkable = FencedLease::new(ClusterId::new("here", "u@id").unwrap());
    unmarkable.win(&[], 0, FencingToken(9), at(1));
    assert!(!unmarkable.send(FencingToken(9), Nonce(9), ms(1)));
    assert_eq!(unmarkable.removal(), Removal::Lease);
    let (lease, _) = won(&MarkRegister::Never, 0);
    assert!(lease.send(FencingToken(9), Nonce(9), ms(1)));
    assert!(!lease.send(FencingToken(8), Nonce(9), ms(1)));
}

#[test]
fn the_longest_delay_is_repeated() {
    let (lease, _) = won(&MarkRegister::Never, 0);
    for (declared, longest) in [(7, 7), (20, 20), (5, 20)] {
        assert!(lease.send(FencingToken(9), Nonce(9), ms(declared)));
        assert_eq!(lease.delay(), longest);
    }
}

#[test]
fn a_stop_is_confirmed_only_by_a_judgement_after_starts_were_forbidden() {
    let (lease, _) = won(&MarkRegister::Never, 0);
    assert_eq!(lease.removal(), Removal::Lease);
    let held = || assert!(lease.send(FencingToken(9), Nonce(9), ms(1)));
    held();
    assert_eq!(lease.removal(), Removal::Nothing);
    // This stop is judged before a majority forbids starts.
    lease.record_gone();
    lease.record_closed();
    lease.record_confirmed();
    assert_eq!(lease.removal(), Removal::Nothing);
    lease.record_gone();
    assert_eq!(lease.removal(), Removal::Nothing);
    lease.record_confirmed();
    assert_eq!(lease.removal(), Removal::All);
    // A target is about to start again.
    held();
    assert_eq!(lease.removal(), Removal::Nothing);
}

#[test]
fn an_own_reservation_is_never_longer_than_the_wait_of_a_seal_is_made_for() {
    let seconds = Duration::from_secs;
    assert_eq!(own_reservation(seconds(15), seconds(60)), seconds(20));
    assert_eq!(own_reservation(seconds(55), seconds(60)), seconds(60));
    assert_eq!(own_reservation(seconds(58), seconds(60)), seconds(60));
    assert_eq!(own_reservation(seconds(60), seconds(60)), seconds(60));
    for lease in 2..=60 {
        let (acquire, longest) = (seconds(2), seconds(60));
        let kept = own_reservation(seconds(lease), longest);
        let wait = crate::timing::seal_wait(longest, acquire);
        assert!(kept * 102 / 100 + 2 * acquire <= wait, "{kept:?} {wait:?}");
    }
}
