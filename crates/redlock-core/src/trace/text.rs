//! Formats the result of a call, as a trace stores it and a replay compares it.

use std::fmt::Write;

use crate::{
    Action, BootInstant, Engine, MasterFacts, Output, Transmit, Unknown,
    engine::{Call, Finished},
    script::Arguments,
    seal::Remembered,
};

/// Formats the result of a poll, with the exact text of a message to a master.
pub(super) fn polled(output: Option<&Output>, engine: &Engine) -> String {
    match output {
        None => idle(engine.next_timeout()),
        Some(Output::Transmit(transmit)) => transmitted(transmit),
        Some(Output::Completed {
            request,
            lock,
            won,
            completion,
        }) => {
            let won = won.as_ref().map(|attempt| attempt.stem.as_str());
            format!("Completed {request:?} {} won {won:?}: {completion:?}", lock.name)
        }
        Some(output) => format!("{output:?}"),
    }
}

/// Formats an idle engine, with its next timeout.
fn idle(until: Option<BootInstant>) -> String {
    until.map_or_else(|| "-".to_owned(), |until| format!("- {}", until.as_nanos()))
}

fn transmitted(transmit: &Transmit) -> String {
    let (id, connection) = (transmit.id, transmit.connection);
    let mut text = Text(format!(
        "Transmit {id:?} {connection:?} until {} {} {:?}:",
        transmit.deadline.as_nanos(),
        transmit.payload.operation.name(),
        transmit.members
    ));
    transmit.write(&mut text);
    text.0
}

struct Text(String);

impl Arguments for Text {
    fn text(&mut self, text: &str) {
        let _ = write!(self.0, " {text:?}");
    }

    fn number(&mut self, number: u64) {
        let _ = write!(self.0, " {number}");
    }
}

pub(super) fn begun(call: &Result<Call, Unknown>) -> String {
    format!("{call:?}")
}

pub(super) fn finished(finished: &Finished) -> String {
    match finished {
        Finished { reply, doubted: None } => format!("{reply:?}"),
        finished => format!("{finished:?}"),
    }
}

pub(super) fn recalled(facts: &MasterFacts) -> String {
    format!("{facts:?}")
}

/// Formats the id that was kept.
pub(super) fn drawn(engine: &Engine) -> String {
    format!("{:?}", engine.identity().drawn())
}

pub(super) fn remembered(remembered: Remembered) -> String {
    format!("{remembered:?}")
}

/// Returns `None` without actions.
pub(super) fn actions(actions: &[Action]) -> Option<String> {
    (!actions.is_empty()).then(|| format!("{actions:?}"))
}
