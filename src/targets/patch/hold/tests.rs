use proptest::prelude::*;

use super::*;

const STOP: u64 = 10;

fn at(seconds: u64) -> BootInstant {
    BootInstant::from_nanos(seconds * 1_000_000_000)
}

fn read(seconds: u64) -> Read {
    Read {
        asked: at(seconds),
        answered: at(seconds),
    }
}

fn rules(trusts_status: bool) -> Rules {
    Rules {
        stop: Duration::from_secs(STOP),
        trusts_status,
    }
}

fn by(manager: &str) -> Writers {
    Writers {
        uid: Some("u".into()),
        managers: vec![vec![manager.to_owned()]],
    }
}

fn standby(manager: &str, shown: Option<Shown>) -> Found {
    Found::Standby {
        writers: by(manager),
        shown,
    }
}

fn running() -> Shown {
    Shown::Running("it runs".into())
}

/// Returns the hold after a write that was answered at 5 s. `before` is the result of the checks before the
/// write.
fn written(before: &Shown) -> Hold {
    let mut hold = Hold::default();
    assert_eq!(hold.next(Found::Other, rules(false), read(4), false), Move::Write);
    hold.written(by("own"), Some(before), at(5));
    hold
}

#[test]
fn without_checks_a_stop_is_confirmed_by_a_read_after_the_stop_time() {
    let mut hold = written(&running());
    let mut next = |read| hold.next(standby("own", None), rules(false), read, false);
    assert_eq!(next(read(6)), Move::Wait(None));
    let early = Read {
        asked: at(14),
        answered: at(16),
    };
    assert_eq!(next(early), Move::Wait(None), "asked too early");
    assert_eq!(next(read(15)), Move::Stopped);
}

#[test]
fn new_replica_counts_from_its_first_read() {
    let mut hold = Hold::default();
    let mut next = |seconds| hold.next(standby("own", None), rules(false), read(seconds), false);
    assert_eq!(next(100), Move::Wait(None));
    assert_eq!(next(109), Move::Wait(None));
    assert_eq!(next(110), Move::Stopped);
}

#[test]
fn missing_object_is_stopped_after_the_stop_time() {
    let mut hold = Hold::default();
    assert_eq!(
        hold.next(Found::Gone, rules(false), read(0), false),
        Move::Wait(None)
    );
    assert_eq!(
        hold.next(Found::Gone, rules(false), read(10), false),
        Move::Stopped
    );
    // The object was created again.
    let next = hold.next(standby("kubectl", None), rules(false), read(11), false);
    assert_eq!(next, Move::Wait(None));
}

#[test]
fn field_that_was_changed_and_changed_back_begins_the_wait_anew() {
    let mut hold = written(&running());
    let mut next = |by, seconds| hold.next(standby(by, None), rules(false), read(seconds), false);
    assert_eq!(next("own", 6), Move::Wait(None));
    assert_eq!(next("kubectl", 14), Move::Wait(None));
    assert_eq!(next("kubectl", 23), Move::Wait(None));
    assert_eq!(next("kubectl", 24), Move::Stopped);
}

#[test]
fn unanswered_start_delays_the_confirmation() {
    let mut hold = written(&running());
    for shown in [None, Some(Shown::Stopped)] {
        assert_eq!(
            hold.next(standby("own", shown), rules(true), read(100), true),
            Move::Wait(None)
        );
    }
}

#[test]
fn status_of_the_written_generation_confirms_a_stop() {
    let mut hold = written(&Shown::Stopped);
    let mut next = |shown| hold.next(standby("own", Some(shown)), rules(false), read(6), false);
    assert!(matches!(next(Shown::Outdated), Move::Wait(Some(_))));
    assert_eq!(next(running()), Move::Wait(Some("it runs".into())));
    assert_eq!(next(Shown::Undated), Move::Undated);
    assert_eq!(next(Shown::Stopped), Move::Stopped);
}

#[test]
fn outdated_status_never_confirms_a_stop() {
    for trusts_status in [false, true] {
        let mut hold = written(&running());
        let next = hold.next(
            standby("own", Some(Shown::Outdated)),
            rules(trusts_status),
            read(1_000),
            false,
        );
        assert!(matches!(next, Move::Wait(Some(_))), "{trusts_status}");
    }
}

#[test]
fn trusted_status_that_held_before_the_write_counts_after_the_stop_time() {
    let undated = || standby("own", Some(Shown::Undated));
    let mut hold = written(&Shown::Undated);
    assert!(matches!(
        hold.next(undated(), rules(true), read(6), false),
        Move::Wait(Some(_))
    ));
    assert_eq!(hold.next(undated(), rules(true), read(15), false), Move::Stopped);
    // The status changed after the write.
    for mut hold in [written(&running()), written(&Shown::Undated)] {
        let next = hold.next(standby("own", Some(running())), rules(true), read(6), false);
        assert_eq!(next, Move::Wait(Some("it runs".into())));
        assert_eq!(hold.next(undated(), rules(true), read(7), false), Move::Stopped);
    }
    // A new replica does not know what the status showed before.
    let mut hold = Hold::default();
    assert!(matches!(
        hold.next(undated(), rules(true), read(0), false),
        Move::Wait(Some(_))
    ));
    assert_eq!(hold.next(undated(), rules(true), read(10), false), Move::Stopped);
}

proptest! {
    /// Regardless of how other writers, own writes and reads interleave, no stop is confirmed within the stop
    /// time after a field had another value.
    #[test]
    fn no_stop_is_confirmed_within_the_stop_time_after_a_start(
        steps in proptest::collection::vec((0u8..5, 1u64..8), 1..60)
    ) {
        let mut hold = Hold::default();
        let (mut now, mut writes, mut active, mut ran) = (0, 0, true, None);
        for (what, pause) in steps {
            now += pause;
            if active {
                ran = Some(now);
            }
            let seen = Writers { uid: None, managers: vec![vec![writes.to_string()]] };
            match what {
                // Another writer starts the object, or starts and stops it.
                0 | 1 => {
                    writes += 1;
                    active = what == 0;
                    ran = Some(now);
                }
                _ => {
                    let found = if active {
                        Found::Other
                    } else {
                        Found::Standby { writers: seen, shown: None }
                    };
                    match hold.next(found, rules(false), read(now), false) {
                        Move::Write => {
                            writes += 1;
                            active = false;
                            let seen = Writers { uid: None, managers: vec![vec![writes.to_string()]] };
                            hold.written(seen, None, at(now));
                        }
                        Move::Stopped => {
                            let since = ran.map_or(u64::MAX, |ran| now - ran);
                            prop_assert!(since >= STOP && !active, "{since} s after a start");
                        }
                        Move::Wait(_) | Move::Undated => {}
                    }
                }
            }
        }
    }
}
