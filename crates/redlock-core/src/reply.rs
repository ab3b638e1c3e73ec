//! Reads replies of the scripts. A reply of an undocumented shape is an unknown vote.

use std::time::Duration;

use crate::{
    BootInstant, DeclaredDelay, LeaseValue, Marks, Obstacle, Operation, Sighting, SlotRegister, Unknown,
    fence::{MarkError, MarkRegister},
    timing,
};

/// One value of a reply, as RESP transports it. An error of the server is not a value but an [`Unknown`].
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
    /// Converts a number. A number beyond `i64` becomes a text, as scripts return it.
    fn from(number: u64) -> Self {
        i64::try_from(number).map_or_else(|_| number.to_string().as_str().into(), Self::Int)
    }
}

/// A script's reply. The replies of all scripts have the same beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Reply {
    pub code: Code,
    /// Microseconds since 1970, by the master's clock.
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
    /// The value that a script of the seal found instead.
    Other(String),
}

/// One lock's part of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Granted {
        number: u64,
        marks: Marks,
        /// The fence mark, for a grant of a fenced lock.
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

    /// Refuses to believe a grant number above the counter of the same reply, which is checked against the other masters.
    #[must_use]
    pub fn within(self, counter: u64) -> Self {
        match self {
            Self::Granted { number, .. } if number > counter => Self::Unknown(Unknown::Reply(format!(
                "grant number {number} is above the counter {counter}"
            ))),
            answer => answer,
        }
    }

    /// Keeps only a refusal, which counts whatever a clock shows: it can only end authority, or delay it.
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
/// Returns an error if the value is not text.
pub fn text(value: &Value) -> Result<&str, Unknown> {
    match value {
        Value::Text(bytes) => std::str::from_utf8(bytes).map_err(|_| bad("text", value)),
        _ => Err(bad("text", value)),
    }
}

/// # Errors
/// Returns an error if the value is not a number of at least zero.
pub fn number(value: &Value) -> Result<u64, Unknown> {
    match value {
        Value::Int(n) => u64::try_from(*n).map_err(|_| bad("number", value)),
        _ => text(value)?.parse().map_err(|_| bad("number", value)),
    }
}

/// The greatest token. The scripts count in doubles: 2^53 + 1 is 2^53, which would be granted repeatedly. A
/// master whose counter is greater was changed by hand, or forges numbers: it has no vote, and the floors of
/// other masters ignore it. At this value the numbers are exhausted, and no candidate gets a token.
pub const LAST_TOKEN: u64 = (1 << 53) - 1;

pub(crate) fn token(value: &Value) -> Result<u64, Unknown> {
    match number(value)? {
        token @ ..=LAST_TOKEN => Ok(token),
        _ => Err(bad("token of at most 2^53 - 1", value)),
    }
}

impl Reply {
    /// # Errors
    /// Returns an error if the value has an undocumented shape.
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

/// The shape of one lock's part of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerShape {
    Done,
    NotDone,
    Grant,
    FencedGrant,
    Obstacle,
    Ours,
    Slot,
}

impl AnswerShape {
    /// Reports whether the script of this operation, of fenced locks or of others, returns this shape.
    const fn answers(self, operation: Operation, fenced: bool) -> bool {
        match operation {
            Operation::Grant if fenced => matches!(self, Self::FencedGrant | Self::Obstacle),
            Operation::Grant => matches!(self, Self::Grant | Self::Obstacle),
            Operation::Renew if fenced => matches!(self, Self::Done | Self::NotDone | Self::Obstacle),
            Operation::Renew => matches!(self, Self::Done | Self::Obstacle),
            Operation::Confirm
            | Operation::Release
            | Operation::Undo
            | Operation::Reserve
            | Operation::Mark
            | Operation::Claim => matches!(self, Self::Done | Self::NotDone),
            Operation::Observe => matches!(self, Self::Done | Self::Obstacle | Self::Ours),
            Operation::Break => matches!(self, Self::Done),
            Operation::Slots => matches!(self, Self::Slot),
        }
    }
}

/// Returns the answer for one lock to an operation on fenced locks or on others, received at `now`. No key lives for longer
/// than `longest`. A shape that the script of that operation does not return is unknown (P-7).
#[must_use]
pub fn answer(
    item: &Value,
    (operation, fenced): (Operation, bool),
    now: BootInstant,
    longest: Duration,
) -> Answer {
    match parse_answer(item, now, longest) {
        Ok((shape, answer)) if shape.answers(operation, fenced) => answer,
        Ok(_) => Answer::Unknown(bad(&format!("answer to {}", operation.name()), item)),
        Err(unknown) => Answer::Unknown(unknown),
    }
}

fn parse_answer(item: &Value, now: BootInstant, longest: Duration) -> Result<(AnswerShape, Answer), Unknown> {
    match item {
        Value::Int(1) => return Ok((AnswerShape::Done, Answer::DONE)),
        Value::Int(0) => return Ok((AnswerShape::NotDone, Answer::Refused(Sighting::FREE))),
        _ => {}
    }
    let Value::Array(parts) = item else {
        return Err(bad("answer", item));
    };
    let [kind, rest @ ..] = &parts[..] else {
        return Err(bad("answer", item));
    };
    Ok(match (text(kind)?, rest) {
        ("granted", [grant, marks @ .., mark]) if marks.len() == 3 => {
            let mark = MarkRegister::parse(text(mark)?).map_err(|error| unreadable(&error))?;
            let answer = granted(grant, marks, Some(Box::new(mark)))?;
            (AnswerShape::FencedGrant, answer)
        }
        ("granted", [grant, marks @ ..]) => (AnswerShape::Grant, granted(grant, marks, None)?),
        ("lease", [value, left]) => {
            let value = text(value)?;
            let obstacle = match value.parse::<LeaseValue>() {
                Ok(lease) => Obstacle::Lease(lease),
                Err(_) => Obstacle::Foreign(value.chars().take(600).collect()),
            };
            (
                AnswerShape::Obstacle,
                Answer::Refused(sighting(obstacle, left, now, longest)?),
            )
        }
        ("reserved", [cluster, left]) => {
            let obstacle = Obstacle::Reserved(text(cluster)?.chars().take(200).collect());
            (
                AnswerShape::Obstacle,
                Answer::Refused(sighting(obstacle, left, now, longest)?),
            )
        }
        ("slot", [last, floor]) => {
            let (slot, job) = text(last)?
                .split_once('|')
                .ok_or_else(|| bad("slot and job", last))?;
            let register = SlotRegister {
                slot: slot.parse().map_err(|_| bad("slot", last))?,
                job: job.to_owned(),
                floor: number(floor)?,
            };
            (AnswerShape::Slot, Answer::Slot(register))
        }
        ("ours", []) => (AnswerShape::Ours, Answer::Refused(Sighting::OURS)),
        ("error", []) => {
            return Err(Unknown::Server {
                code: "OOM".into(),
                detail: "the lease was not put back".into(),
            });
        }
        _ => return Err(bad("answer", item)),
    })
}

fn granted(grant: &Value, marks: &[Value], mark: Option<Box<MarkRegister>>) -> Result<Answer, Unknown> {
    Ok(Answer::Granted {
        number: token(grant)?,
        marks: parse_marks(marks)?,
        mark,
    })
}

fn parse_marks(marks: &[Value]) -> Result<Marks, Unknown> {
    let [held, clean, delay] = marks else {
        return Err(bad("held, clean and delay", &Value::Array(marks.to_vec())));
    };
    Ok(Marks {
        held: token(held)?,
        clean: token(clean)?,
        delay: declared(text(delay)?).ok_or_else(|| bad("delay", delay))?,
    })
}

pub(crate) fn unreadable(error: &MarkError) -> Unknown {
    Unknown::Reply(error.to_string())
}

/// Parses `<token>|<milliseconds>`.
#[must_use]
pub fn declared(text: &str) -> Option<DeclaredDelay> {
    let (token, milliseconds) = text.split_once('|')?;
    let delay = DeclaredDelay {
        token: token.parse().ok()?,
        milliseconds: milliseconds.parse().ok()?,
    };
    (delay.token <= LAST_TOKEN).then_some(delay)
}

/// Returns an obstacle with the own observed end: received + remaining. -1 is a key without expiry, -2 one that is just
/// gone. The clock of a master may run slower than the own one, within the drift. More time than a key can have
/// gives an end that is only bounded (P-61).
fn sighting(
    obstacle: Obstacle,
    left: &Value,
    now: BootInstant,
    longest: Duration,
) -> Result<Sighting, Unknown> {
    let left = match left {
        Value::Int(-1) => return Ok(Sighting::blocked(obstacle, BootInstant::NEVER)),
        Value::Int(-2) => Duration::ZERO,
        _ => Duration::from_millis(number(left)?),
    };
    Ok(if left > longest {
        Sighting::bounded(obstacle, now + timing::outlived(longest))
    } else {
        Sighting::blocked(obstacle, now + left)
    })
}

#[cfg(test)]
mod tests;
