//! Reads replies of the scripts. A reply that is none of the documented shapes is an unknown vote.

use crate::{
    BootInstant, DeclaredDelay, LeaseValue, Marks, Obstacle, Sighting, SlotRegister, Unknown,
    fence::{MarkError, MarkRegister},
};

/// One value of a reply, as RESP transports it. An error of the server is no value: it is an [`Unknown`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Value {
    Nil,
    Int(i64),
    Text(#[cfg_attr(feature = "trace", serde(with = "crate::trace::bytes"))] Vec<u8>),
    Array(Vec<Value>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.as_bytes().to_vec())
    }
}

impl From<u64> for Value {
    /// A number beyond `i64` is a text, as scripts return it.
    fn from(number: u64) -> Self {
        i64::try_from(number).map_or_else(|_| number.to_string().as_str().into(), Self::Int)
    }
}

/// A script's reply: the same beginning in all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Reply {
    pub code: Code,
    /// Microseconds since 1970, by the master.
    pub time: u64,
    pub counter: u64,
    pub items: Vec<Value>,
}

/// Whether the script ran, and if not, why it wrote nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Code {
    Ok,
    Unsealed,
    Foreign,
    Late,
    /// Of the seal's scripts: what was found instead.
    Other(String),
}

/// One lock's part of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Granted {
        number: u64,
        marks: Marks,
        /// The fence mark, of a grant of a fenced lock.
        mark: Option<Box<MarkRegister>>,
    },
    Refused(Sighting),
    Slot(SlotRegister),
    Unknown(Unknown),
}

impl Answer {
    /// Done, without a grant number.
    pub const DONE: Self = Self::Granted {
        number: 0,
        marks: Marks {
            held: 0,
            clean: 0,
            delay: DeclaredDelay {
                token: 0,
                milliseconds: 0,
            },
        },
        mark: None,
    };

    /// A refusal counts whatever a clock shows: it can only end authority, or delay it.
    #[must_use]
    pub fn only_refusals(self, doubt: Unknown) -> Self {
        match self {
            Self::Refused(_) => self,
            Self::Granted { .. } | Self::Slot(_) | Self::Unknown(_) => Self::Unknown(doubt),
        }
    }
}

pub(crate) fn bad(what: &str, value: &Value) -> Unknown {
    let shown: String = format!("{value:?}").chars().take(120).collect();
    Unknown::Reply(format!("{what} expected, got {shown}"))
}

/// # Errors
/// The value is not text.
pub fn text(value: &Value) -> Result<&str, Unknown> {
    match value {
        Value::Text(bytes) => std::str::from_utf8(bytes).map_err(|_| bad("text", value)),
        _ => Err(bad("text", value)),
    }
}

/// # Errors
/// The value is not a number that is at least zero.
pub fn number(value: &Value) -> Result<u64, Unknown> {
    match value {
        Value::Int(n) => u64::try_from(*n).map_err(|_| bad("number", value)),
        _ => text(value)?.parse().map_err(|_| bad("number", value)),
    }
}

/// The greatest token. The scripts count in doubles: one more than 2^53 is 2^53, and would be given again and again. A master
/// whose counter is beyond it has been written to, or forges: it has no vote, and no floor of others comes from it. Just
/// below it the numbers run out: nobody gets a token then.
const LAST_TOKEN: u64 = (1 << 53) - 1;

pub(crate) fn token(value: &Value) -> Result<u64, Unknown> {
    match number(value)? {
        token @ ..=LAST_TOKEN => Ok(token),
        _ => Err(bad("token of at most 2^53 - 1", value)),
    }
}

impl Reply {
    /// # Errors
    /// The value is none of the documented shapes.
    pub fn parse(value: Value) -> Result<Self, Unknown> {
        let Value::Array(mut items) = value else {
            return Err(bad("array", &value));
        };
        if items.len() < 3 {
            return Err(bad("code and time", &Value::Array(items)));
        }
        let rest = items.split_off(items.len().min(4));
        let code = match text(&items[0])? {
            "ok" => Code::Ok,
            "unsealed" => Code::Unsealed,
            "foreign" => Code::Foreign,
            "late" => Code::Late,
            other => Code::Other(other.chars().take(40).collect()),
        };
        let seconds = number(&items[1])?;
        let time = seconds
            .checked_mul(1_000_000)
            .and_then(|t| t.checked_add(number(&items[2]).ok()?));
        Ok(Self {
            code,
            time: time.ok_or_else(|| bad("time", &items[1]))?,
            counter: items.get(3).map_or(Ok(0), token)?,
            items: rest,
        })
    }
}

/// One lock's part, received at `now`.
#[must_use]
pub fn answer(item: &Value, now: BootInstant) -> Answer {
    parse_answer(item, now).unwrap_or_else(Answer::Unknown)
}

fn parse_answer(item: &Value, now: BootInstant) -> Result<Answer, Unknown> {
    match item {
        Value::Int(1) => return Ok(Answer::DONE),
        Value::Int(0) => return Ok(Answer::Refused(Sighting::FREE)),
        _ => {}
    }
    let Value::Array(parts) = item else {
        return Err(bad("answer", item));
    };
    let [kind, rest @ ..] = &parts[..] else {
        return Err(bad("answer", item));
    };
    match (text(kind)?, rest) {
        ("granted", [grant, marks @ .., mark]) if marks.len() == 3 => Ok(Answer::Granted {
            number: token(grant)?,
            marks: parse_marks(marks)?,
            mark: Some(Box::new(
                MarkRegister::parse(text(mark)?).map_err(|error| unreadable(&error))?,
            )),
        }),
        ("granted", [grant, marks @ ..]) => Ok(Answer::Granted {
            number: token(grant)?,
            marks: parse_marks(marks)?,
            mark: None,
        }),
        ("lease", [value, left]) => {
            let value = text(value)?;
            let obstacle = match value.parse::<LeaseValue>() {
                Ok(lease) => Obstacle::Lease(lease),
                Err(_) => Obstacle::Foreign(value.chars().take(600).collect()),
            };
            Ok(Answer::Refused(Sighting::blocked(obstacle, ends(left, now)?)))
        }
        ("reserved", [cluster, left]) => {
            let obstacle = Obstacle::Reserved(text(cluster)?.chars().take(200).collect());
            Ok(Answer::Refused(Sighting::blocked(obstacle, ends(left, now)?)))
        }
        ("slot", [last, floor]) => {
            let (slot, job) = text(last)?
                .split_once('|')
                .ok_or_else(|| bad("slot and job", last))?;
            Ok(Answer::Slot(SlotRegister {
                slot: slot.parse().map_err(|_| bad("slot", last))?,
                job: job.to_owned(),
                floor: number(floor)?,
            }))
        }
        ("ours", []) => Ok(Answer::Refused(Sighting::OURS)),
        ("error", []) => Err(Unknown::Server {
            code: "OOM".into(),
            detail: "the lease was not put back".into(),
        }),
        _ => Err(bad("answer", item)),
    }
}

fn parse_marks(marks: &[Value]) -> Result<Marks, Unknown> {
    let [held, clean, delay] = marks else {
        return Err(bad("held, clean and delay", &Value::Array(marks.to_vec())));
    };
    Ok(Marks {
        held: number(held)?,
        clean: number(clean)?,
        delay: declared(text(delay)?).ok_or_else(|| bad("delay", delay))?,
    })
}

pub(crate) fn unreadable(error: &MarkError) -> Unknown {
    Unknown::Reply(error.to_string())
}

/// `<token>|<milliseconds>`.
#[must_use]
pub fn declared(text: &str) -> Option<DeclaredDelay> {
    let (token, milliseconds) = text.split_once('|')?;
    Some(DeclaredDelay {
        token: token.parse().ok()?,
        milliseconds: milliseconds.parse().ok()?,
    })
}

/// Own observed end: received + remaining. -1 is a key without expiry, -2 one that is just gone.
fn ends(left: &Value, now: BootInstant) -> Result<BootInstant, Unknown> {
    match left {
        Value::Int(-1) => Ok(BootInstant::NEVER),
        Value::Int(-2) => Ok(now),
        _ => Ok(now + std::time::Duration::from_millis(number(left)?)),
    }
}

#[cfg(test)]
mod tests {
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
    fn counter_beyond_what_a_script_can_count_is_refused() {
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
        for (item, expected) in [
            (Value::Int(1), Answer::DONE),
            (Value::Int(0), Answer::Refused(Sighting::FREE)),
            (texts(&["ours"]), Answer::Refused(Sighting::OURS)),
            (
                texts(&["granted", "7", "1", "2", "3|400"]),
                Answer::Granted {
                    number: 7,
                    marks,
                    mark: None,
                },
            ),
            (texts(&["lease", "x", "9"]), foreign(left(9))),
            // A key without expiry, and one that is just gone.
            (
                array(&["lease".into(), "x".into(), Value::Int(-1)]),
                foreign(BootInstant::NEVER),
            ),
            (
                array(&["lease".into(), "x".into(), Value::Int(-2)]),
                foreign(now()),
            ),
            (
                texts(&["reserved", "a@u", "9"]),
                Answer::Refused(Sighting::blocked(reserved, left(9))),
            ),
            (texts(&["slot", "60|uid@a", "5"]), Answer::Slot(slot)),
        ] {
            assert_eq!(answer(&item, now()), expected, "{item:?}");
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
            let found = answer(&item, now());
            assert!(matches!(found, Answer::Unknown(_)), "{item:?}: {found:?}");
        }
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
}
