use super::*;
use crate::reply::Value;

fn item(parts: &[&str], lease_left: i64, reserved_left: i64) -> Value {
    let text = |part: &str| Value::from(part);
    let mut values: Vec<Value> = parts.iter().map(|part| text(part)).collect();
    values.insert(2, Value::Int(lease_left));
    values.insert(4, Value::Int(reserved_left));
    Value::Array(values)
}

const LONGEST: Duration = Duration::from_secs(60);
const LEASE: &str = "1|here|uid-here|holder|00000000000000000000000000000007|7";
const MARK: &str = "7|5,uid-here,00000000000000000000000000000007";

#[test]
fn a_reply_reads_as_lease_and_reservation_apart() {
    let parts = ["fence", LEASE, "here/uid-here", "7", "3", MARK, "7|1000", "7"];
    let read = reading(&item(&parts, 9_000, 14_000), (12, LONGEST), at(3)).unwrap();
    assert_eq!(
        read,
        Reading {
            time: 12,
            received: at(3),
            reservation: Some(("here/uid-here".into(), Left::For(ms(14_000)))),
            delay: DeclaredDelay {
                token: 7,
                milliseconds: 1_000
            },
            closed: FencingToken(7),
            ..held(9_000)
        }
    );
}

#[test]
fn the_floor_of_held_counts_as_held() {
    let parts = ["fence", "", "", "3", "8", MARK, "0|0", "0"];
    let read = reading(&item(&parts, -2, -2), (0, LONGEST), at(0)).unwrap();
    assert_eq!((read.held, read.lease, read.reservation), (8, None, None));
}

#[test]
fn keys_that_are_gone_or_never_end_give_no_time() {
    let parts = ["fence", LEASE, "here/uid-here", "7", "0", MARK, "0|0", "0"];
    let read = reading(&item(&parts, -2, -1), (0, LONGEST), at(0)).unwrap();
    assert_eq!(read.lease, None);
    assert_eq!(read.reservation, Some(("here/uid-here".into(), Left::NoExpiry)));
    assert_eq!(Left::NoExpiry.time(), Duration::ZERO);
}

#[test]
fn a_lease_that_cannot_be_read_is_that_of_another_holder() {
    let parts = ["fence", "2|new", "", "0", "0", "", "0|0", "0"];
    let read = reading(&item(&parts, 10, -2), (0, LONGEST), at(0)).unwrap();
    assert_eq!(
        read.lease,
        Some((Obstacle::Foreign("2|new".into()), Left::For(ms(10))))
    );
    assert_eq!(read.counted(&here(), Some(Nonce(7))), None);
}

#[test]
fn a_reply_of_another_shape_is_unknown() {
    let good = ["fence", LEASE, "", "7", "0", MARK, "7|0", "0"];
    let huge = (1_u64 << 53).to_string();
    let with = |index: usize, part: &'static str| {
        let mut parts = good;
        parts[index] = part;
        item(&parts, 1, -2)
    };
    assert!(reading(&item(&good, 1, -2), (0, LONGEST), at(0)).is_ok());
    for bad in [
        Value::Int(1),
        Value::Array(vec!["fence".into()]),
        with(0, "lease"),
        with(3, "x"),
        with(5, "7|x"),
        with(6, "7"),
        with(7, "-1"),
        item(&good, -3, -2),
        item(&["fence", "", "", &huge, "0", "", "0|0", "0"], -2, -2),
    ] {
        assert!(reading(&bad, (0, LONGEST), at(0)).is_err(), "{bad:?}");
    }
}

/// The clock of the master was set back since the key was set.
#[test]
fn a_permit_relies_on_no_more_time_than_a_key_can_have() {
    let parts = ["fence", LEASE, "here/uid-here", "7", "0", MARK, "0|0", "0"];
    let read = reading(&item(&parts, 3_600_000, 60_001), (0, LONGEST), at(0)).unwrap();
    assert_eq!(read.counted(&here(), Some(Nonce(7))), Some(Left::For(LONGEST)));
    assert_eq!(read.reservation.unwrap().1, Left::For(LONGEST));
}
