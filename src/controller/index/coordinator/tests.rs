use super::*;

const NOW: u64 = 100;

fn at(seconds: u64) -> BootInstant {
    BootInstant::from_nanos(seconds * 1_000_000_000)
}

fn stamp() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

fn unseen(names: &[&str]) -> UnseenQuorums {
    UnseenQuorums::new(names.iter().map(|&name| name.to_owned()))
}

/// Returns the election after a renewal by this holder was observed.
fn observed(holder: &str, without: &[&str]) -> CoordinatorElection {
    let mut election = CoordinatorElection::new();
    let record = CoordinatorRecord {
        holder: holder.to_owned(),
        acquired: Some(stamp()),
        renewed: Some(stamp()),
        transitions: 4,
        unseen: unseen(without),
    };
    election.observe(&record.to_lease("redlock", Some("7")), at(NOW));
    election
}

fn write(
    election: &CoordinatorElection,
    without: &[&str],
    seconds: u64,
) -> Option<(Option<String>, String, i32)> {
    let write = election.due_write("me", &unseen(without), at(seconds), stamp())?;
    Some((write.version, write.record.holder, write.record.transitions))
}

#[test]
fn lease_is_written_once_it_is_free_or_due() {
    let taken = Some((Some("7".to_owned()), "me".to_owned(), 5));
    let renewed = Some((Some("7".to_owned()), "me".to_owned(), 4));
    for (what, election, without, seconds, wanted) in [
        ("unread", CoordinatorElection::new(), &[][..], NOW, None),
        ("held by another", observed("other", &[]), &[], NOW + 9, None),
        ("expired", observed("other", &[]), &[], NOW + 10, taken.clone()),
        ("resigned", observed("", &[]), &[], NOW, taken.clone()),
        (
            "the other one sees fewer quorums",
            observed("other", &["a"]),
            &[],
            NOW,
            taken,
        ),
        (
            "each sees a quorum that the other one does not",
            observed("other", &["a"]),
            &["b"],
            NOW,
            None,
        ),
        ("own, at rest", observed("me", &[]), &[], NOW + 4, None),
        ("own, due", observed("me", &[]), &[], NOW + 5, renewed.clone()),
        (
            "own, a quorum was lost",
            observed("me", &[]),
            &["a"],
            NOW,
            renewed,
        ),
    ] {
        assert_eq!(write(&election, without, seconds), wanted, "{what}");
    }
    let mut election = CoordinatorElection::new();
    election.lease = ObservedLease::Absent;
    assert_eq!(write(&election, &[], NOW), Some((None, "me".to_owned(), 0)));
    election.writing = true;
    assert_eq!(write(&election, &[], NOW), None, "a write is under way");
}

#[test]
fn another_coordinator_counts_until_its_lease_expires() {
    let election = observed("other", &["a"]);
    let other = election.other("me", at(NOW + 9)).unwrap();
    assert_eq!(other.coordinates_until("b", at(NOW + 9)), Some(at(NOW + 10)));
    assert_eq!(
        other.coordinates_until("a", at(NOW + 9)),
        None,
        "it does not see the masters"
    );
    assert_eq!(election.other("me", at(NOW + 10)), None);
    assert_eq!(observed("me", &[]).other("me", at(NOW)), None);
    assert_eq!(observed("", &[]).other("me", at(NOW)), None);
}

#[test]
fn version_that_is_no_renewal_does_not_extend_the_lease() {
    let mut election = observed("other", &[]);
    let ObservedLease::Present { record, .. } = election.lease.clone() else {
        panic!("not observed");
    };
    election.observe(&record.to_lease("redlock", Some("8")), at(NOW + 8));
    assert_eq!(election.other("me", at(NOW)).unwrap().until, at(NOW + 10));
    let taken = write(&election, &[], NOW + 10).unwrap();
    assert_eq!(taken.0.as_deref(), Some("8"), "the last version");
}

#[test]
fn coordinator_that_ends_resigns_and_does_not_return() {
    let mut election = observed("me", &[]);
    let resigned = election.resignation("me", stamp()).unwrap();
    assert_eq!(
        (resigned.version.as_deref(), &*resigned.record.holder),
        (Some("7"), "")
    );
    assert_eq!(observed("other", &[]).resignation("me", stamp()), None);
    election.resigned = true;
    assert_eq!(write(&election, &[], NOW + 20), None);
}
