//! Structured events on the standard error.

use std::io::{self, IsTerminal};

use thiserror::Error;
use tracing_subscriber::{EnvFilter, filter::ParseError, util::SubscriberInitExt};

/// How an event is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One line for people.
    #[default]
    Text,
    /// One JSON object a line: `timestamp`, `level`, `target`, `message`, and the fields of the event beside them.
    Json,
}

#[derive(Debug, Error)]
pub enum LogError {
    #[error("log level {level:?} is none: use error, warn, info, debug or trace, or target=level,…")]
    Level { level: String, source: ParseError },
    #[error("setting up the log: {0}")]
    Twice(String),
}

/// Starts writing. `level` is a level or a list of `target=level`.
///
/// # Errors
/// A level that is none; a second call.
pub fn start(format: Format, level: &str) -> Result<(), LogError> {
    // What the client of the API server says of a request is said again by whoever sent it, with its meaning.
    let quiet = format!("kube_client=off,{level}");
    let filter = EnvFilter::try_new(quiet).map_err(|source| LogError::Level {
        level: level.to_owned(),
        source,
    })?;
    let events = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    let started = match format {
        Format::Text => events.with_ansi(io::stderr().is_terminal()).finish().try_init(),
        Format::Json => events.json().flatten_event(true).finish().try_init(),
    };
    started.map_err(|cause| LogError::Twice(cause.to_string()))
}
