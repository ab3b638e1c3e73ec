use super::*;
use crate::lease::{SlotRegister, vote::QuorumSize};

const AGE: Duration = Duration::from_secs(3_600);

#[test]
fn a_slot_is_claimed_neither_before_its_time_nor_when_it_is_too_old() {
    for (slot, expected) in [
        (6_399, Due::TooOld),
        (6_400, Due::Now),
        (10_000, Due::Now),
        (10_060, Due::Now),
        (10_062, Due::Early(Duration::from_secs(2))),
        (u64::MAX, Due::Early(Duration::from_secs(u64::MAX - 10_060))),
    ] {
        assert_eq!(due(slot, 10_000, AGE), expected, "{slot}");
    }
}

/// Returns the owner of slot 9 for the Job "mine", with the answers of some of three masters.
fn by(seen: &[(u64, &str)], due: Due) -> Shown {
    let mut view = SlotView::new(QuorumSize::new(3).unwrap());
    for (slot, job) in seen {
        let job = (*job).to_owned();
        view.record(SlotRegister {
            slot: *slot,
            job,
            floor: 3,
        });
    }
    shown(Some(&view), 9, "mine@eu-1", due)
}

#[test]
fn a_claimed_slot_runs_at_any_age() {
    for due in [Due::Now, Due::TooOld] {
        assert_eq!(by(&[(9, "mine@eu-1"), (9, "mine@eu-1")], due), Shown::Mine);
        // The cluster had another name before.
        assert_eq!(
            by(&[(9, "mine@eu"), (8, "a@us"), (9, "mine@eu")], due),
            Shown::Mine
        );
    }
}

#[test]
fn an_old_slot_is_given_up_only_when_it_is_seen_unclaimed() {
    let too_old = || Shown::Never(Never::TooOld);
    let to = |job: &str| Shown::Never(Never::Gone(Gone::To(job.into())));
    let passed = Shown::Never(Never::Gone(Gone::Passed {
        slot: 10,
        job: "a@us".into(),
    }));
    for (seen, now, old) in [
        (&[][..], Shown::Unknown, Shown::Unknown),
        (&[(8, "a@us")], Shown::Unknown, Shown::Unknown),
        (&[(9, "mine@eu-1"), (8, "a@us")], Shown::Unknown, Shown::Unknown),
        (&[(8, "a@us"), (8, "a@us")], Shown::Unknown, too_old()),
        (&[(9, "a@us"), (9, "a@us")], to("a@us"), to("a@us")),
        (&[(10, "a@us"), (10, "a@us")], passed, too_old()),
    ] {
        assert_eq!(by(seen, Due::Now), now, "{seen:?}");
        assert_eq!(by(seen, Due::TooOld), old, "{seen:?}");
    }
    assert_eq!(shown(None, 9, "mine@eu-1", Due::TooOld), Shown::Unknown);
}
