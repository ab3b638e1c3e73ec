use super::*;

fn entry() -> QuorumEntry {
    let object =
        "{apiVersion: redlock.dev/v1alpha1, kind: RedisQuorum, metadata: {name: q}, spec: {masters: []}}";
    QuorumEntry::new(serde_yaml::from_str(object).unwrap())
}

#[test]
fn votes_of_single_masters_do_not_touch_locks() {
    let mut entry = entry();
    for (voting, crossed) in [
        (5, true),
        (4, false),
        (3, false),
        (5, false),
        (2, true),
        (0, false),
        (1, false),
        (3, true),
    ] {
        assert_eq!(entry.look(Health::sample(voting, 5)), crossed, "{voting}");
    }
}

#[test]
fn the_text_for_locks_is_the_same_for_every_minority() {
    let texts: BTreeSet<_> = (0..3)
        .map(|voting| Health::sample(voting, 5).no_majority_of("q"))
        .collect();
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert_eq!(Health::sample(3, 5).no_majority_of("q"), None);
}
