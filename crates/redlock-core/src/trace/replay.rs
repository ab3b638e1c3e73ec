//! Repeats the calls of a trace and compares their results.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use thiserror::Error;

use super::{Header, Record, Step, text};
use crate::{BootInstant, Engine, Input, LeaseAttempt, LockName, Machine, Nonce, QuorumSize};

/// The counts of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub engines: u64,
    pub machines: u64,
    /// Inputs, events and calls.
    pub inputs: u64,
    /// Outputs, actions and results of calls, each equal to the recorded one.
    pub outputs: u64,
}

impl std::ops::AddAssign for Summary {
    fn add_assign(&mut self, other: Self) {
        self.engines += other.engines;
        self.machines += other.machines;
        self.inputs += other.inputs;
        self.outputs += other.outputs;
    }
}

/// A result of a call that differs from the recorded one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {subject} returned another result\n  recorded: {recorded}\n  replayed: {replayed}")]
pub struct Divergence {
    pub line: u64,
    /// The engine or the machine.
    pub subject: String,
    pub recorded: String,
    pub replayed: String,
}

/// The reason why a replay stopped.
#[derive(Debug, Error)]
pub enum ReplayError {
    #[error(transparent)]
    Diverged(Box<Divergence>),
    #[error("line {line}: not a record of a trace: {reason}")]
    NoRecord { line: u64, reason: String },
    #[error("recorded by {found}, and this is {own}: replay the trace with {found}")]
    OtherVersion { found: Header, own: Header },
}

/// The engines and the machines of a trace, up to the last line taken.
#[derive(Debug, Default)]
pub struct Replay {
    line: u64,
    engines: BTreeMap<u64, Engine>,
    machines: BTreeMap<u64, (LockName, Machine)>,
    /// One attempt for each nonce: the engine counts in it the connections on which it was sent. The process
    /// that was recorded kept an attempt only while it needed it.
    attempts: BTreeMap<Nonce, Arc<LeaseAttempt>>,
    summary: Summary,
}

/// The result of a call; `None` if there is nothing to compare.
type Returned = Result<Option<String>, String>;

impl Replay {
    #[must_use]
    pub const fn summary(&self) -> Summary {
        self.summary
    }

    /// Takes the next line of the trace. The caller must omit the incomplete last line of a process that was killed.
    ///
    /// # Errors
    /// Returns an error for a divergence, or for a line that is not a record. The later lines are then
    /// meaningless.
    pub fn take(&mut self, line: &str) -> Result<(), ReplayError> {
        self.line += 1;
        let number = self.line;
        let no_record = |reason: String| ReplayError::NoRecord { line: number, reason };
        if number == 1 {
            let header: Header = serde_json::from_str(line).map_err(|e| no_record(e.to_string()))?;
            return check(header);
        }
        let record: Record = serde_json::from_str(line).map_err(|e| no_record(e.to_string()))?;
        let Record { now, of, step, out } = record;
        let idle = matches!(step, Step::Poll) && out.as_ref().is_some_and(|out| out.starts_with('-'));
        let found = self.call(of, step, now).map_err(no_record)?;
        if found != out {
            let text = |text: Option<String>| text.unwrap_or_else(|| "nothing".to_owned());
            return Err(ReplayError::Diverged(Box::new(Divergence {
                line: number,
                subject: self.subject(of),
                recorded: text(out),
                replayed: text(found),
            })));
        }
        self.summary.outputs += u64::from(out.is_some() && !idle);
        Ok(())
    }

    fn subject(&self, of: u64) -> String {
        match self.machines.get(&of) {
            Some((lock, _)) => format!("machine {of} of lock {lock}"),
            None => format!("engine {of}"),
        }
    }

    fn call(&mut self, of: u64, step: Step, now: BootInstant) -> Returned {
        match step {
            Step::Engine(config) => {
                // The size is used as an index for the masters.
                QuorumSize::new(config.size.masters()).ok_or("no quorum has so many masters")?;
                enter(&mut self.engines, of, Engine::new(*config))?;
                self.summary.engines += 1;
                return Ok(None);
            }
            Step::Machine {
                lock,
                terms,
                majority,
            } => {
                enter(&mut self.machines, of, (lock, Machine::new(*terms, majority)))?;
                self.summary.machines += 1;
                return Ok(None);
            }
            Step::End => {
                self.engines.remove(&of);
                self.machines.remove(&of);
                return Ok(None);
            }
            _ => {}
        }
        self.summary.inputs += u64::from(!matches!(step, Step::Poll));
        if let Step::Event { entropy, event } = step {
            let (_, machine) = self.machines.get_mut(&of).ok_or("the machine is unknown")?;
            return Ok(text::actions(&machine.handle(now, entropy, *event)));
        }
        let engine = self.engines.get_mut(&of).ok_or("the engine is unknown")?;
        if master(&step).is_some_and(|master| master >= engine.size().masters()) {
            return Err("the quorum has fewer masters".into());
        }
        Ok(call(engine, &mut self.attempts, step, now))
    }
}

fn check(header: Header) -> Result<(), ReplayError> {
    let own = Header::own();
    if header == own {
        return Ok(());
    }
    Err(ReplayError::OtherVersion { found: header, own })
}

fn enter<T>(all: &mut BTreeMap<u64, T>, of: u64, new: T) -> Result<(), String> {
    match all.entry(of) {
        Entry::Occupied(_) => Err(format!("{of} already exists")),
        Entry::Vacant(place) => {
            place.insert(new);
            Ok(())
        }
    }
}

/// Repeats a call of an engine.
fn call(
    engine: &mut Engine,
    attempts: &mut BTreeMap<Nonce, Arc<LeaseAttempt>>,
    step: Step,
    now: BootInstant,
) -> Option<String> {
    match step {
        Step::Handle(mut input) => {
            if let Input::Request(request) = &mut *input
                && let Some(attempt) = request.command.attempt_mut()
            {
                let known = attempts.entry(attempt.stem.nonce());
                *attempt = known.or_insert_with(|| attempt.clone()).clone();
            }
            engine.handle(*input, now);
            None
        }
        Step::Poll => {
            let output = engine.poll(now);
            Some(text::polled(output.as_ref(), engine))
        }
        Step::BeginCall {
            master,
            admission,
            timeout,
        } => Some(text::begun(&engine.begin_call(master, admission, timeout, now))),
        Step::FinishCall { master, call, result } => {
            Some(text::finished(&engine.finish_call(master, &call, result, now)))
        }
        Step::RecallRetirement {
            master,
            call,
            mut facts,
        } => {
            engine.recall_retirement(master, &call, &mut facts);
            Some(text::recalled(&facts))
        }
        Step::SetDrawn(id) => {
            engine.set_drawn(id);
            Some(text::drawn(engine))
        }
        Step::Remember { token, unix_time } => Some(text::remembered(engine.remember(token, unix_time))),
        // Not a call of an engine.
        Step::Engine(_) | Step::Machine { .. } | Step::Event { .. } | Step::End => None,
    }
}

/// Returns the master that a step is about.
fn master(step: &Step) -> Option<usize> {
    match step {
        Step::BeginCall { master, .. }
        | Step::FinishCall { master, .. }
        | Step::RecallRetirement { master, .. } => Some(*master),
        Step::Handle(input) => match &**input {
            Input::Reply { transmit, .. } => Some(transmit.master),
            Input::Connected { master, .. }
            | Input::Replaced { master, .. }
            | Input::Disconnected { master }
            | Input::Unreachable { master, .. }
            | Input::Polled { master, .. }
            | Input::PollFailed { master, .. }
            | Input::ServerChanged { master } => Some(*master),
            Input::Request(_) | Input::CommandTimeout(_) | Input::WallClock(_) | Input::Timeout => None,
        },
        _ => None,
    }
}
