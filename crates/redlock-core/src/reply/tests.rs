use std::time::Duration;

use super::*;

fn array(items: &[Value]) -> Value {
    Value::Array(items.to_vec())
}

fn texts(items: &[&str]) -> Value {
    Value::Array(items.iter().map(|text| Value::from(*text)).collect())
}

fn now() -> BootInstant {
    BootInstant::from_nanos(1_000_000)
}

#[test]
fn reply_begins_with_its_code_the_time_of_the_master_and_its_counter() {
    for (code, expected) in [
        ("ok", Code::Ok),
        ("unsealed", Code::Unsealed),
        ("foreign", Code::Foreign),
        ("late", Code::Late),
        ("changed", Code::Other("changed".into())),
    ] {
        let value = array(&[code.into(), "12".into(), "34".into(), 5_u64.into(), Value::Int(1)]);
        let expected = Reply {
            code: expected,
            time: 12_000_034,
            counter: 5,
            items: vec![Value::Int(1)],
        };
        assert_eq!(Reply::parse(value), Ok(expected));
    }
    let without = Reply::parse(texts(&["late", "12", "34"])).unwrap();
    assert_eq!((without.counter, without.items), (0, Vec::new()));
}

#[test]
fn reply_of_another_shape_is_refused_with_the_expected_one() {
    let beyond = u64::MAX.to_string();
    for (value, part) in [
        (Value::Int(1), "array expected"),
        (texts(&["ok", "12"]), "code and time expected"),
        (
            array(&[Value::Int(1), Value::Int(1), Value::Int(1)]),
            "text expected",
        ),
        (texts(&["ok", "x", "34"]), "number expected"),
        (texts(&["ok", "12", "x"]), "time expected"),
        (texts(&["ok", &beyond, "0"]), "time expected"),
        (texts(&["ok", "12", "34", "x"]), "number expected"),
    ] {
        let error = Reply::parse(value).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn counter_beyond_the_last_token_is_refused() {
    let counter = |counter: u64| {
        let value = array(&["ok".into(), "1".into(), "2".into(), counter.into()]);
        Reply::parse(value).map(|reply| reply.counter)
    };
    assert_eq!(counter((1 << 53) - 1), Ok((1 << 53) - 1));
    assert!(counter(1 << 53).unwrap_err().to_string().contains("2^53 - 1"));
    assert!(counter(u64::MAX).is_err());
}

#[test]
fn number_beyond_64_bits_with_a_sign_is_a_text() {
    assert_eq!(Value::from(7_u64), Value::Int(7));
    assert_eq!(Value::from(u64::MAX), Value::from("18446744073709551615"));
    assert_eq!(number(&Value::from(u64::MAX)), Ok(u64::MAX));
    assert!(number(&Value::Int(-1)).is_err());
    assert!(number(&Value::Nil).is_err());
}

/// Returns the answer to an operation on locks that are not fenced.
fn answer_to(operation: Operation, item: &Value) -> Answer {
    answer(item, (operation, false), now(), LONGEST)
}

const LONGEST: Duration = Duration::from_secs(60);

#[test]
fn an_end_beyond_the_longest_lease_is_bounded_where_it_is_parsed() {
    let obstacle = || Obstacle::Foreign("x".into());
    let of = |left: u64| {
        answer_to(
            Operation::Grant,
            &array(&["lease".into(), "x".into(), left.into()]),
        )
    };
    let shown = Sighting::blocked(obstacle(), now() + LONGEST);
    assert_eq!(of(60_000), Answer::Refused(shown));
    let bounded = Sighting::bounded(obstacle(), now() + Duration::from_millis(61_200));
    for left in [60_001, 10 * 86_400_000, u64::MAX] {
        assert_eq!(of(left), Answer::Refused(bounded.clone()), "{left}");
    }
}

#[test]
fn each_answer_is_read() {
    let left = |ms| now() + Duration::from_millis(ms);
    let delay = DeclaredDelay {
        token: 3,
        milliseconds: 400,
    };
    let marks = Marks {
        held: 1,
        clean: 2,
        delay,
    };
    let foreign = |ends| Answer::Refused(Sighting::blocked(Obstacle::Foreign("x".into()), ends));
    let reserved = Obstacle::Reserved("a@u".into());
    let slot = SlotRegister {
        slot: 60,
        job: "uid@a".into(),
        floor: 5,
    };
    for (operation, item, expected) in [
        (Operation::Renew, Value::Int(1), Answer::DONE),
        (Operation::Release, Value::Int(0), Answer::Refused(Sighting::FREE)),
        (
            Operation::Observe,
            texts(&["ours"]),
            Answer::Refused(Sighting::OURS),
        ),
        (
            Operation::Grant,
            texts(&["granted", "7", "1", "2", "3|400"]),
            Answer::Granted {
                number: 7,
                marks,
                mark: None,
            },
        ),
        (Operation::Renew, texts(&["lease", "x", "9"]), foreign(left(9))),
        // A key without expiry, and one that is just gone.
        (
            Operation::Observe,
            array(&["lease".into(), "x".into(), Value::Int(-1)]),
            foreign(BootInstant::NEVER),
        ),
        (
            Operation::Grant,
            array(&["lease".into(), "x".into(), Value::Int(-2)]),
            foreign(now()),
        ),
        (
            Operation::Grant,
            texts(&["reserved", "a@u", "9"]),
            Answer::Refused(Sighting::blocked(reserved, left(9))),
        ),
        (
            Operation::Slots,
            texts(&["slot", "60|uid@a", "5"]),
            Answer::Slot(slot),
        ),
    ] {
        assert_eq!(answer_to(operation, &item), expected, "{item:?}");
    }
}

#[test]
fn answer_of_another_shape_is_unknown() {
    for item in [
        Value::Nil,
        Value::Int(2),
        Value::Int(-1),
        array(&[]),
        texts(&["granted", "7", "1", "2", "3"]),
        texts(&["granted", "9007199254740992", "1", "2", "3|4"]),
        texts(&["granted"]),
        array(&["lease".into(), "x".into(), Value::Int(-3)]),
        texts(&["slot", "60", "5"]),
        texts(&["slot", "x|uid", "5"]),
        texts(&["ours", "more"]),
        texts(&["error"]),
    ] {
        for operation in Operation::ALL {
            let found = answer_to(operation, &item);
            assert!(matches!(found, Answer::Unknown(_)), "{item:?}: {found:?}");
        }
    }
}

#[test]
fn each_operation_has_its_own_shapes() {
    let grant = texts(&["granted", "7", "1", "2", "3|400"]);
    let fenced_grant = texts(&["granted", "7", "1", "2", "3|400", ""]);
    let shapes = [
        ("1", Value::Int(1)),
        ("0", Value::Int(0)),
        ("grant", grant),
        ("fenced grant", fenced_grant),
        ("lease", texts(&["lease", "x", "9"])),
        ("reserved", texts(&["reserved", "a@u", "9"])),
        ("ours", texts(&["ours"])),
        ("slot", texts(&["slot", "60|uid@a", "5"])),
    ];
    for operation in Operation::ALL {
        for fenced in [false, true] {
            let known = shapes.iter().filter(|(_, item)| {
                let found = answer(item, (operation, fenced), now(), LONGEST);
                !matches!(found, Answer::Unknown(_))
            });
            let known: Vec<&str> = known.map(|(name, _)| *name).collect();
            let documented: &[&str] = match operation {
                Operation::Grant if fenced => &["fenced grant", "lease", "reserved"],
                Operation::Grant => &["grant", "lease", "reserved"],
                Operation::Renew if fenced => &["1", "0", "lease", "reserved"],
                Operation::Renew => &["1", "lease", "reserved"],
                Operation::Observe => &["1", "lease", "reserved", "ours"],
                Operation::Break => &["1"],
                Operation::Slots => &["slot"],
                Operation::Confirm
                | Operation::Release
                | Operation::Undo
                | Operation::Reserve
                | Operation::Mark
                | Operation::Claim => &["1", "0"],
            };
            assert_eq!(known, documented, "{} fenced: {fenced}", operation.name());
        }
    }
    let other = answer_to(Operation::Claim, &texts(&["ours"]));
    let Answer::Unknown(unknown) = other else {
        panic!("{other:?}")
    };
    assert!(
        unknown.to_string().contains("answer to claim expected"),
        "{unknown}"
    );
}

#[test]
fn doubt_leaves_only_refusals() {
    let doubt = || Unknown::LocalClock;
    let refused = Answer::Refused(Sighting::FREE);
    assert_eq!(refused.clone().only_refusals(doubt()), refused);
    assert_eq!(Answer::DONE.only_refusals(doubt()), Answer::Unknown(doubt()));
    let late = Answer::Unknown(Unknown::TooLate);
    assert_eq!(late.only_refusals(doubt()), Answer::Unknown(doubt()));
}

#[test]
fn grant_of_a_fenced_lock_shows_the_mark() {
    let granted = |mark: &str| {
        let item = texts(&["granted", "7", "1", "2", "3|400", mark]);
        answer(&item, (Operation::Grant, true), now(), LONGEST)
    };
    let mark = |text: &str| match granted(text) {
        Answer::Granted { mark, .. } => mark.map(|mark| *mark),
        _ => None,
    };
    assert_eq!(mark(""), Some(MarkRegister::Never));
    assert_eq!(mark("5|nobody"), MarkRegister::parse("5|nobody").ok());
    let whole = format!("5|3,uid,{}", crate::Nonce(1));
    assert_eq!(mark(&whole).unwrap().token().0, 5);
    for bad in ["5", "5|3,uid", "x|nobody"] {
        assert!(matches!(granted(bad), Answer::Unknown(_)), "{bad}");
    }
}
