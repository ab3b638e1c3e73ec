use proptest::prelude::*;

use super::*;

fn until(readings: &[Option<Reading>]) -> Option<BootInstant> {
    match finding(readings) {
        Finding::Permit(permit) => Some(permit.until),
        _ => None,
    }
}

/// Returns the end that this remaining time gives: 0.99 × remaining − 2 ms.
fn good(left: u64) -> BootInstant {
    at(0) + ms(left) * 99 / 100 - ms(2)
}

#[test]
fn a_permit_ends_with_the_mth_smallest_end() {
    let permit = |lefts: [u64; 3]| until(&lefts.map(|left| Some(held(left))));
    assert_eq!(permit([10_000, 12_000, 15_000]), Some(good(12_000)));
    assert_eq!(permit([15_000, 9_000, 9_000]), Some(good(9_000)));
    let five = [9_000, 1_000, 5_000, 8_000, 2_000].map(|left| Some(held(left)));
    assert_eq!(until(&five), Some(good(5_000)));
    // Nothing is left of a remaining time below the resolution, and the end is never before the beginning of the round.
    assert_eq!(permit([1, 2, 2]), Some(at(0)));
}

#[test]
fn a_master_that_did_not_answer_may_be_free_since_the_round_began() {
    // The lease at m0 ends after 10 s. Another cluster can then be granted the lock by m0 and m2, whatever m1
    // shows.
    assert_eq!(
        until(&[Some(held(10_000)), Some(held(12_000)), None]),
        Some(good(10_000))
    );
    let five = [
        Some(held(9_000)),
        Some(held(8_000)),
        Some(held(7_000)),
        None,
        None,
    ];
    assert_eq!(until(&five), Some(good(7_000)));
}

#[test]
fn fewer_than_a_majority_show_nothing() {
    assert_eq!(
        finding(&[Some(held(9_000)), None, None]),
        Finding::Withheld(Withheld::NoMajority)
    );
    let other = Reading {
        mark: mark(9, 9, &there()),
        ..free()
    };
    assert_eq!(
        finding(&[Some(other), None, None]),
        Finding::Withheld(Withheld::NoMajority)
    );
}

#[test]
fn a_second_account_of_a_master_does_not_count() {
    let mut seen = observation(at(0), &[Some(held(9_000)), None, None]);
    seen.record(0, held(15_000));
    seen.record(3, held(15_000));
    seen.record(99, held(15_000));
    assert_eq!(seen.readings().count(), 1);
    assert!(!seen.complete());
}

#[test]
fn an_unmarked_lease_never_counts() {
    // Two attempts of one cluster on different masters, both about to be undone.
    let other_nonce = |nonce| Reading {
        lease: lease(nonce, &here(), 15_000),
        ..held(0)
    };
    let seen = [Some(held(9_000)), Some(other_nonce(8)), Some(other_nonce(9))];
    assert_eq!(finding(&seen), Finding::Unheld);
    let seen = [Some(held(9_000)), Some(held(8_000)), Some(other_nonce(9))];
    assert_eq!(until(&seen), Some(good(8_000)));
    let never = Reading {
        lease: lease(7, &here(), 15_000),
        ..free()
    };
    assert_eq!(
        finding(&[Some(never.clone()), Some(never), None]),
        Finding::Unheld
    );
}

#[test]
fn a_reservation_for_the_own_cluster_counts_whatever_its_name_and_no_other() {
    let kept = |text: &str| Reading {
        lease: None,
        reservation: Some((text.to_owned(), Left::For(ms(5_000)))),
        ..held(0)
    };
    let twice = |text| [Some(kept(text)), Some(kept(text)), None];
    // With two answers of three masters, the third may be free: both answers count.
    let all = |text| [Some(kept(text)), Some(kept(text)), Some(kept(text))];
    assert_eq!(until(&all("renamed/uid-here")), Some(good(5_000)));
    assert_eq!(until(&twice("renamed/uid-here")), Some(good(5_000)));
    for other in ["nobody", "here/uid-there", "uid-here", ""] {
        assert_eq!(finding(&twice(other)), Finding::Unheld, "{other}");
    }
    // The longer of the two counts.
    let both = Reading {
        reservation: Some(("here/uid-here".into(), Left::For(ms(14_000)))),
        ..held(9_000)
    };
    let three = [Some(both.clone()), Some(both), Some(free())];
    assert_eq!(until(&three), Some(good(14_000)));
}

#[test]
fn a_key_without_expiry_counts_and_gives_no_time() {
    let endless = Reading {
        lease: lease(7, &here(), 0).map(|(obstacle, _)| (obstacle, Left::NoExpiry)),
        ..held(0)
    };
    assert_eq!(until(&[Some(endless.clone()), Some(endless), None]), Some(at(0)));
}

#[test]
fn a_mark_of_another_cluster_is_contrary_evidence_even_on_one_master() {
    let other = Reading {
        mark: mark(9, 9, &there()),
        held: 9,
        ..free()
    };
    let seen = [Some(held(9_000)), Some(held(9_000)), Some(other)];
    assert_eq!(finding(&seen), foreign(9));
    // An older mark of another cluster is not the greatest one.
    let older = Reading {
        mark: mark(6, 6, &there()),
        ..held(9_000)
    };
    assert!(until(&[Some(held(9_000)), Some(held(9_000)), Some(older)]).is_some());
}

#[test]
fn a_majority_without_a_lease_that_counts_is_contrary_evidence() {
    let ended = Reading {
        lease: None,
        ..held(0)
    };
    assert_eq!(
        finding(&[Some(held(9_000)), Some(ended.clone()), Some(ended.clone())]),
        Finding::Unheld
    );
    // A master that does not answer gives no evidence.
    assert_eq!(until(&[Some(held(9_000)), Some(ended), None]), Some(at(0)));
}

#[test]
fn a_mark_that_is_older_than_held_gives_no_permit() {
    let newer = Reading {
        held: 8,
        ..held(9_000)
    };
    let seen = [Some(held(9_000)), Some(held(9_000)), Some(newer)];
    let (mark, held) = (FencingToken(7), 8);
    assert_eq!(
        finding(&seen),
        Finding::Withheld(Withheld::MarkIsOlder { mark, held })
    );
}

#[test]
fn a_mark_on_a_minority_gives_no_permit_and_is_no_contrary_evidence() {
    // A sibling has marked its lease on m0 alone. The reservation keeps the lock for its cluster.
    let kept = |reading: Reading| Reading {
        reservation: Some(("here/uid-here".into(), Left::For(ms(5_000)))),
        ..reading
    };
    let next = Reading {
        lease: lease(9, &here(), 15_000),
        mark: mark(9, 5, &here()),
        ..held(0)
    };
    let before = Reading {
        lease: lease(9, &here(), 15_000),
        ..held(0)
    };
    let seen = [
        Some(kept(next.clone())),
        Some(kept(before.clone())),
        Some(kept(before)),
    ];
    assert_eq!(finding(&seen), Finding::Withheld(Withheld::MarkOnMinority));
    // Masters that did not answer do not turn a minority of those that answered into a majority.
    assert_eq!(
        finding(&[Some(kept(next)), Some(kept(free())), None]),
        Finding::Withheld(Withheld::MarkOnMinority)
    );
}

#[test]
fn a_split_mark_gives_no_permit_and_is_no_contrary_evidence() {
    let split = Reading {
        mark: MarkRegister::Split(FencingToken(7)),
        ..free()
    };
    let seen = [Some(split), Some(free()), Some(free())];
    assert_eq!(finding(&seen), Finding::Withheld(Withheld::MarkIsSplit));
    let other = Reading {
        mark: mark(7, 7, &there()),
        ..free()
    };
    let seen = [Some(held(9_000)), Some(held(9_000)), Some(other)];
    assert_eq!(finding(&seen), Finding::Withheld(Withheld::MarkIsSplit));
}

#[test]
fn closed_counts_beside_the_greatest_mark() {
    let closed = |token| Reading {
        closed: FencingToken(token),
        ..held(9_000)
    };
    for (token, expected) in [(0, false), (6, false), (7, true), (8, true)] {
        let seen = [Some(held(9_000)), Some(held(9_000)), Some(closed(token))];
        let Finding::Permit(permit) = finding(&seen) else {
            panic!("no permit")
        };
        assert_eq!(permit.closed, expected, "{token}");
    }
}

#[test]
fn the_holder_is_named_by_the_lease_that_most_masters_show() {
    let other = Reading {
        lease: lease(9, &there(), 9_000),
        ..free()
    };
    let seen = [Some(held(9_000)), Some(other.clone()), Some(other)];
    assert_eq!(
        observation(at(0), &seen).holder().as_deref(),
        Some("holder in cluster there")
    );
    assert_eq!(observation(at(0), &[None, None, Some(free())]).holder(), None);
}

/// The release of the previous lease may still be under way to the third master, and delete its reservation.
#[test]
fn a_reservation_beside_an_earlier_mark_gives_no_permit() {
    let kept = || Some((here().to_string(), Left::For(ms(9_000))));
    let earlier = Reading {
        lease: lease(6, &here(), 4_000),
        reservation: kept(),
        held: 6,
        mark: mark(6, 5, &here()),
        ..free()
    };
    let renewed = Reading {
        reservation: kept(),
        ..held(5_000)
    };
    let seen = [Some(held(3_000)), Some(renewed), Some(earlier)];
    assert_eq!(until(&seen), Some(good(3_000)));
}

/// Generates the reply of one master; `None` if it does not answer.
fn reply() -> impl Strategy<Value = Option<Reading>> {
    let left = 0_u64..20_000;
    prop_oneof![
        1 => Just(None),
        4 => left.clone().prop_map(|left| Some(held(left))),
        1 => left.clone().prop_map(|left| Some(Reading {
            lease: None,
            reservation: Some(("here/uid-here".into(), Left::For(ms(left)))),
            ..held(0)
        })),
        1 => left.prop_map(|left| Some(Reading { lease: lease(8, &here(), left), ..held(0) })),
        1 => Just(Some(Reading { lease: None, ..held(0) })),
    ]
}

proptest! {
    /// Whichever majority another cluster could win, one of its masters grants nothing before the permit has ended.
    #[test]
    fn s8_no_majority_is_free_before_the_permit_ends(
        n in prop::sample::select(vec![3_usize, 5, 7]),
        replies in prop::collection::vec(reply(), 7),
    ) {
        let seen = observation(at(0), &replies[..n]);
        if let Finding::Permit(permit) = seen.finding(&here()) {
            let free_at = |reply: &Option<Reading>| {
                let left = reply.as_ref().and_then(|reply| reply.counted(&here(), Some(Nonce(7))));
                at(0) + left.map_or(Duration::ZERO, Left::time)
            };
            let mut free: Vec<BootInstant> = replies[..n].iter().map(free_at).collect();
            free.sort_unstable();
            let majority = free[n / 2];
            prop_assert!(permit.until <= majority, "{permit:?} {free:?}");
            // The permit ends earlier by 1 % and 2 ms, if any time is left.
            let short = majority.since(permit.until);
            prop_assert!(majority == at(0) || permit.until == at(0) || short >= ms(2), "{short:?}");
        }
    }

    #[test]
    fn an_answer_more_never_shortens_a_permit(replies in prop::collection::vec(reply(), 5), more in reply()) {
        let with = |last: Option<Reading>| {
            let mut replies = replies.clone();
            replies[4] = last;
            until(&replies)
        };
        if let (Some(without), Some(with)) = (with(None), with(more)) {
            prop_assert!(without <= with);
        }
    }
}
