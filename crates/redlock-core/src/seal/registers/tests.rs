use proptest::{collection::btree_map, prelude::*};

use super::*;

fn slot(slot: u64, uid: &str) -> Slot {
    Slot {
        slot,
        uid: uid.to_owned(),
    }
}

fn one_slot(number: u64, uid: &str) -> Registers {
    Registers {
        slots: BTreeMap::from([("slot:l/t".to_owned(), slot(number, uid))]),
        ..Registers::default()
    }
}

fn numbers(of: &[(&str, u64)]) -> Registers {
    Registers {
        numbers: of.iter().map(|(field, n)| ((*field).to_owned(), *n)).collect(),
        ..Registers::default()
    }
}

#[test]
fn resealing_merges_by_the_larger_slot_and_a_tie_of_uids_to_no_job() {
    for (a, b, merged) in [
        ((5, "u"), (4, "v"), (5, "u")),
        ((5, "u"), (6, "v"), (6, "v")),
        ((5, "u"), (5, "u"), (5, "u")),
        ((5, "u"), (5, "v"), (5, "nobody")),
        ((5, "nobody"), (5, "v"), (5, "nobody")),
    ] {
        let both = one_slot(a.0, a.1).merged(one_slot(b.0, b.1));
        assert_eq!(both, one_slot(merged.0, merged.1), "{a:?} {b:?}");
    }
}

#[test]
fn the_fallback_is_above_all_that_is_known_and_all_that_may_have_been() {
    let now = Duration::from_millis(1_700_000_000_999);
    let lost = Registers::default().fallback(now, Past::MayHaveHeld);
    let expected = [
        ("counter", 1_700_000_000_999),
        ("slotFloor", 1_700_000_120),
        ("heldFloor", 1_700_000_000_999),
    ];
    assert_eq!(lost, numbers(&expected));

    let known = numbers(&[
        ("counter", 1_800_000_000_000),
        ("slotFloor", 1_900_000_000),
        ("held:l", 3),
    ]);
    let floor = known.fallback(now, Past::MayHaveHeld);
    assert_eq!(floor.number("counter"), 1_800_000_000_000);
    assert_eq!(floor.number("slotFloor"), 1_900_000_000);
    assert_eq!(floor.number("heldFloor"), 1_800_000_000_000);
    assert_eq!(floor.number("held:l"), 3);
}

#[test]
fn the_fallback_and_not_init_writes_the_floor_of_held() {
    let floor = Registers::default().fallback(Duration::from_secs(1), Past::NothingHeld);
    assert_eq!(floor, numbers(&[("counter", 1_000), ("slotFloor", 121)]));
}

prop_compose! {
    fn registers()(
        numbers in btree_map("counter|slotFloor|held:[ab]|clean:[ab]", 0..5u64, 0..5),
        slots in btree_map("slot:[ab]/t", (0..3u64, "[uvw]|nobody"), 0..3),
        delays in btree_map("delay:[ab]", (0..3u64, 0..3u64), 0..3),
    ) -> Registers {
        let slots = slots.into_iter().map(|(field, (number, uid))| (field, slot(number, &uid))).collect();
        let delay = |(token, milliseconds)| DeclaredDelay { token, milliseconds };
        let delays = delays.into_iter().map(|(field, pair)| (field, delay(pair))).collect();
        Registers {
            numbers,
            slots,
            delays,
        }
    }
}

proptest! {
    #[test]
    fn the_order_of_a_merge_does_not_matter(a in registers(), b in registers()) {
        prop_assert_eq!(a.clone().merged(b.clone()), b.merged(a));
    }

    #[test]
    fn the_grouping_of_a_merge_does_not_matter(a in registers(), b in registers(), c in registers()) {
        let left = a.clone().merged(b.clone()).merged(c.clone());
        prop_assert_eq!(left, a.merged(b.merged(c)));
    }

    #[test]
    fn a_merge_with_itself_changes_nothing(a in registers()) {
        prop_assert_eq!(a.clone().merged(a.clone()), a);
    }

    #[test]
    fn no_register_ever_falls(a in registers(), b in registers(), seconds in 0..5u64) {
        for after in [
            a.clone().merged(b),
            a.clone().fallback(Duration::from_secs(seconds), Past::MayHaveHeld),
        ] {
            for (field, number) in &a.numbers {
                prop_assert!(after.number(field) >= *number, "{field} in {after:?}");
            }
            for (field, before) in &a.delays {
                prop_assert!(after.delays[field] >= *before, "{field}");
            }
            for (field, before) in &a.slots {
                let now = &after.slots[field];
                prop_assert!(now.slot >= before.slot, "{field} in {after:?}");
                // An equal slot keeps its job or loses it; it never passes to another job.
                prop_assert!(now.slot > before.slot || now.uid == before.uid || now.uid == "nobody");
            }
        }
    }
}

/// One wrong register would be copied to all masters by the next seal.
#[test]
fn an_account_with_a_register_beyond_the_limits_names_it() {
    let limits = RegisterLimits {
        token: 1_000_000,
        slot: 5_000,
    };
    let found = |field: &str, value: &str| {
        let mut registers = numbers(&[("counter", 9)]);
        registers.read(field, value).unwrap();
        let implausible = registers.implausible(&limits);
        implausible.map(|(field, value)| (field.to_owned(), value))
    };
    for (field, value, number) in [
        ("held:a/b", "1000001", 1_000_001),
        ("heldFloor", "18446744073709551615", u64::MAX),
        ("clean:a/b", "1000001", 1_000_001),
        ("delay:a/b", "1000001|5", 1_000_001),
        ("slotFloor", "5001", 5_001),
        ("slot:a/t", "5001|u@c", 5_001),
        ("slot:a/!mark", "1000001|m", 1_000_001),
    ] {
        assert_eq!(found(field, value), Some((field.to_owned(), number)));
    }
    for (field, value) in [
        ("held:a/b", "1000000"),
        ("slotFloor", "5000"),
        ("slot:a/!mark", "1000000|m"),
    ] {
        assert_eq!(found(field, value), None, "{field}");
    }
    // Registers of later versions have other units.
    assert_eq!(found("micros:a/b", "18446744073709551615"), None);
}

#[test]
fn floor_has_the_clean_end_that_a_majority_of_the_sources_shows() {
    let source = |clean| numbers(&[("clean:a/b", clean), ("held:a/b", 9), ("counter", clean)]);
    for (cleans, expected) in [(&[9, 7][..], 7), (&[9, 9], 9), (&[9, 0], 0), (&[9, 7, 9], 9)] {
        let floor = Registers::floor_of(cleans.iter().map(|clean| source(*clean)).collect(), 2);
        assert_eq!(floor.number("clean:a/b"), expected, "{cleans:?}");
        assert_eq!((floor.number("held:a/b"), floor.number("counter")), (9, 9));
    }
}

/// The clocks of all masters stepped back after slots were claimed.
#[test]
fn what_a_majority_of_the_sources_reached_is_plausible() {
    let limits = RegisterLimits {
        token: 1_000,
        slot: 1_000,
    };
    let source = |slot, token| Registers {
        numbers: [("heldFloor".to_owned(), token)].into(),
        ..one_slot(slot, "u")
    };
    let (one, other, forged) = (source(5_000, 7), source(5_100, 2_000), source(u64::MAX, u64::MAX));
    let widened = Registers::widen(limits, &[&one, &other, &forged], 2);
    assert_eq!((widened.slot, widened.token), (5_100, 2_000));
    let implausible = |source: &Registers| source.implausible(&widened).is_some();
    assert!(!implausible(&one) && !implausible(&other) && implausible(&forged));
}
