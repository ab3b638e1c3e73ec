use proptest::prelude::*;

use super::*;

#[test]
fn a_mark_is_the_documented_text_and_reads_back() {
    let text = "42|40,uid-here,000000000000000000000000000000ab";
    let mark = FenceMark::new(FencingToken(42), FencingToken(40), &here(), Nonce(0xab)).unwrap();
    assert_eq!(mark.to_string(), text);
    assert_eq!(MarkRegister::parse(text), Ok(MarkRegister::Marked(mark)));
    // A UID with the separator, which the rules for cluster UIDs allow.
    let odd = ClusterId::new("here", "a,b").unwrap();
    let mark = FenceMark::new(FencingToken(2), FencingToken(1), &odd, Nonce(1)).unwrap();
    assert_eq!(
        MarkRegister::parse(&mark.to_string()),
        Ok(MarkRegister::Marked(mark))
    );
}

#[test]
fn a_register_without_a_mark_is_read_as_none_and_one_that_was_merged_as_split() {
    for never in ["", "0|nobody"] {
        assert_eq!(MarkRegister::parse(never), Ok(MarkRegister::Never));
    }
    let split = MarkRegister::Split(FencingToken(9));
    assert_eq!(MarkRegister::parse("9|nobody"), Ok(split));
}

#[test]
fn a_text_that_is_no_mark_is_an_error() {
    let nonce = "000000000000000000000000000000ab";
    for bad in [
        "9".to_owned(),
        "x|nobody".to_owned(),
        "9|".to_owned(),
        "9|8,uid".to_owned(),
        format!("+9|8,uid,{nonce}"),
        format!("9|+8,uid,{nonce}"),
        format!("9|08,uid,{nonce}"),
        format!("9|8,,{nonce}"),
        "9|8,uid,ab".to_owned(),
        // A lineage that begins after the lease, or with no lease.
        format!("9|10,uid,{nonce}"),
        format!("9|0,uid,{nonce}"),
        format!("0|0,uid,{nonce}"),
        // The merge of slots would compare only a part of this UID.
        format!("9|8,u@id,{nonce}"),
    ] {
        assert!(MarkRegister::parse(&bad).is_err(), "{bad}");
    }
}

#[test]
fn a_cluster_uid_that_the_merge_of_slots_would_split_is_refused() {
    let cluster = ClusterId::new("here", "u@id").unwrap();
    let error = FenceMark::new(FencingToken(1), FencingToken(1), &cluster, Nonce(1)).unwrap_err();
    assert_eq!(error, MarkError::ClusterUid("u@id".into()));
}

fn register() -> impl Strategy<Value = MarkRegister> {
    let cluster = prop::sample::select(vec![here(), there()]);
    prop_oneof![
        Just(MarkRegister::Never),
        (1_u64..4).prop_map(|token| MarkRegister::Split(FencingToken(token))),
        (1_u64..4, 1_u64..4, cluster).prop_map(|(token, first, cluster)| mark(token, first, &cluster)),
    ]
}

proptest! {
    /// Marks merge as registers do at a new seal: P-78.
    #[test]
    fn marks_merge_in_any_order_and_never_fall(a in register(), b in register(), c in register()) {
        let merged = a.clone().merged(b.clone());
        prop_assert_eq!(&merged, &b.clone().merged(a.clone()));
        prop_assert!(merged.token() >= a.token() && merged.token() >= b.token());
        prop_assert_eq!(merged.merged(c.clone()), a.clone().merged(b.merged(c)));
        prop_assert_eq!(a.clone().merged(a.clone()), a);
    }

    /// The re-seal merges marks as slots of the object `!mark`.
    #[test]
    fn a_seal_merges_marks_as_slots(a in register(), b in register()) {
        use crate::seal::{Registers, Slot};
        let text = |register: &MarkRegister| match register {
            MarkRegister::Never => "0|nobody".to_owned(),
            MarkRegister::Split(token) => format!("{token}|nobody"),
            MarkRegister::Marked(mark) => mark.to_string(),
        };
        let registers = |register: &MarkRegister| {
            let text = text(register);
            let (slot, uid) = text.split_once('|').unwrap();
            let slot = Slot { slot: slot.parse().unwrap(), uid: uid.to_owned() };
            Registers { slots: [(format!("slot:l/{MARK_OBJECT}"), slot)].into(), ..Registers::default() }
        };
        let merged = registers(&a).merged(registers(&b));
        let slot = &merged.slots[&format!("slot:l/{MARK_OBJECT}")];
        let read = MarkRegister::parse(&format!("{}|{}", slot.slot, slot.uid));
        prop_assert_eq!(read, Ok(a.merged(b)));
    }
}
