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
    let mut election = CoordinatorElection::new("me".to_owned(), "all".to_owned());
    let record = CoordinatorRecord {
        holder: holder.to_owned(),
        acquired: Some(stamp()),
        renewed: Some(stamp()),
        transitions: 4,
        scope: "all".to_owned(),
        unseen: unseen(without),
        copy: None,
    };
    election.observe(&record.to_lease("redlock", Some("7")), at(NOW));
    election
}

fn write(
    election: &CoordinatorElection,
    without: &[&str],
    seconds: u64,
) -> Option<(Option<String>, String, i32)> {
    let write = election.due_write(&unseen(without), at(seconds), stamp())?;
    Some((write.version, write.record.holder, write.record.transitions))
}

#[test]
fn lease_is_written_once_it_is_free_or_due() {
    let taken = Some((Some("7".to_owned()), "me".to_owned(), 5));
    let renewed = Some((Some("7".to_owned()), "me".to_owned(), 4));
    for (what, election, without, seconds, wanted) in [
        (
            "unread",
            CoordinatorElection::new("me".to_owned(), "all".to_owned()),
            &[][..],
            NOW,
            None,
        ),
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
    let mut election = CoordinatorElection::new("me".to_owned(), "all".to_owned());
    election.lease = ObservedLease::Absent;
    assert_eq!(write(&election, &[], NOW), Some((None, "me".to_owned(), 0)));
    election.writing = true;
    assert_eq!(write(&election, &[], NOW), None, "a write is under way");
}

fn view(election: &mut CoordinatorElection, seconds: u64) -> CoordinatorView {
    election.renewed_view(at(seconds));
    election.published.clone().unwrap()
}

#[test]
fn another_coordinator_counts_until_its_lease_expires_and_the_next_one_may_be_elected() {
    let mut election = observed("other", &["a"]);
    let seen = view(&mut election, NOW + 9);
    assert!(seen.is_coordinated("b", at(NOW + 9)));
    assert!(
        !seen.is_coordinated("a", at(NOW + 9)),
        "it does not see the masters"
    );
    assert_eq!(seen.leaves_until("b", at(NOW + 9)), Some(at(NOW + 14)));
    assert_eq!(
        seen.leaves_until("a", at(NOW + 9)),
        Some(at(NOW + 14)),
        "a first view"
    );
    let expired = view(&mut election, NOW + 20);
    assert_eq!(expired.leaves_until("b", at(NOW + 20)), Some(at(NOW + 25)));
    assert_eq!(expired.leaves_until("b", at(NOW + 25)), None);
}

#[test]
fn coordinator_of_other_namespaces_does_not_count() {
    let mut election = observed("other", &[]);
    election.scope = "af63dc4c8601ec8c".to_owned();
    assert_eq!(view(&mut election, NOW).other, None);
    assert_eq!(
        write(&election, &[], NOW + 9),
        None,
        "its Lease is not taken over"
    );
}

#[test]
fn version_that_is_no_renewal_does_not_extend_the_lease() {
    let mut election = observed("other", &[]);
    let record = election.present().unwrap().0.clone();
    election.observe(&record.to_lease("redlock", Some("8")), at(NOW + 8));
    assert_eq!(election.other(at(NOW)).unwrap().until, at(NOW + 10));
    let taken = write(&election, &[], NOW + 10).unwrap();
    assert_eq!(taken.0.as_deref(), Some("8"), "the last version");
    let late = CoordinatorRecord {
        holder: "me".to_owned(),
        ..record
    };
    election.observe(&late.to_lease("redlock", Some("6")), at(NOW + 9));
    assert_eq!(election.present().unwrap().0.holder, "other", "an older version");
}

#[test]
fn coordinator_that_ends_resigns_and_does_not_return() {
    let mut election = observed("me", &[]);
    let resigned = election.resignation(stamp()).unwrap();
    assert_eq!(
        (resigned.version.as_deref(), &*resigned.record.holder),
        (Some("7"), "")
    );
    assert_eq!(observed("other", &[]).resignation(stamp()), None);
    election.resigned = true;
    assert_eq!(write(&election, &[], NOW + 20), None);
}

#[test]
fn failed_writes_are_repeated_ever_later_and_reported_once() {
    let mut election = observed("me", &[]);
    let failed = CoordinatorWriteEnd::Failed {
        forbidden: true,
        reason: "forbidden".to_owned(),
    };
    let reports: Vec<bool> = (0..12)
        .map(|_| election.end_write(&failed, at(NOW), 1.0).is_some())
        .collect();
    assert_eq!(reports.iter().filter(|reported| **reported).count(), 1);
    assert_eq!(write(&election, &[], NOW + 59), None);
    assert!(write(&election, &[], NOW + 60).is_some());
}
