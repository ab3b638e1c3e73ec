//! Records the inputs and outputs of the engines and the machines of a process, and replays them.
//!
//! A [`Recorded`] engine or machine changes only through calls that write a record, so a trace is complete. The replay
//! makes the same calls on new engines and machines, and compares their results. Like the rest of the package it does
//! no I/O: the caller takes each line from a [`Trace`], and gives each to a [`Replay`].

mod recorded;
mod replay;
#[cfg(test)]
mod tests;
mod text;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};

pub use recorded::Recorded;
pub use replay::{Divergence, Replay, ReplayError, Summary};

use crate::{
    Admission, BootInstant, Config, Event, FencingToken, Input, LockName, MasterFacts, QuorumId, Reply,
    Terms, Unknown, engine,
};

/// The format of the records that this version writes and reads.
const FORMAT: u32 = 1;

/// The first line of a trace.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    format: u32,
    /// The version of this package. Another version may decide differently.
    version: String,
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "version {} (format {})", self.version, self.format)
    }
}

impl Header {
    fn own() -> Self {
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// One line of a trace: one call.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    now: BootInstant,
    /// The id of the engine or the machine.
    of: u64,
    step: Step,
    /// The result of the call, as [`text`] writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    out: Option<String>,
}

/// A call with its arguments.
#[derive(Debug, Serialize, Deserialize)]
enum Step {
    Engine(Box<Config>),
    Handle(Box<Input>),
    Poll,
    BeginCall {
        master: usize,
        admission: Admission,
        timeout: Duration,
    },
    FinishCall {
        master: usize,
        call: engine::Call,
        result: Result<Reply, Unknown>,
    },
    RecallRetirement {
        master: usize,
        call: engine::Call,
        facts: Box<MasterFacts>,
    },
    SetDrawn(QuorumId),
    Remember {
        token: FencingToken,
        unix_time: Duration,
    },
    Machine {
        lock: LockName,
        terms: Box<Terms>,
        majority: usize,
    },
    Event {
        entropy: u64,
        event: Box<Event>,
    },
    /// The engine or the machine was dropped.
    End,
}

/// The destination of the records of a process. Clones write into the same trace.
#[derive(Clone)]
pub struct Trace {
    sink: Arc<dyn Fn(String) + Send + Sync>,
    next: Arc<AtomicU64>,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").finish_non_exhaustive()
    }
}

impl Trace {
    /// Begins a trace. `sink` receives each line, without the line break. It is called under the lock that
    /// guards the engine, so it must return at once, and keep the order.
    #[must_use]
    pub fn new(sink: impl Fn(String) + Send + Sync + 'static) -> Self {
        let trace = Self {
            sink: Arc::new(sink),
            next: Arc::default(),
        };
        trace.write(&Header::own());
        trace
    }

    fn id(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    fn write(&self, line: &impl Serialize) {
        // No record type can fail to serialize. If one did, the replay would name this line.
        (self.sink)(serde_json::to_string(line).unwrap_or_else(|error| error.to_string()));
    }
}

/// Encodes numbers of 128 bits, which JSON does not have.
pub(crate) mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(number: &u128, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{number:032x}"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
        let text = String::deserialize(from)?;
        u128::from_str_radix(&text, 16).map_err(D::Error::custom)
    }
}

/// Encodes bytes, which are text in nearly all replies, as one character for each byte.
pub(crate) mod bytes {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
        to.serialize_str(&text)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        let byte = |c| u8::try_from(u32::from(c)).map_err(D::Error::custom);
        text.chars().map(byte).collect()
    }
}
