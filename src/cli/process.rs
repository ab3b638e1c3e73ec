//! The flags of a long-running process, and its parts that commands share.

use std::{fs, net::SocketAddr};

use clap::{Args, ValueEnum};
use tracing::level_filters::LevelFilter;

use super::{Exit, Failure, empty::variable};
use crate::{lease::HolderIdentity, operator::signals::Signals, telemetry::logs};

/// Which locks of the API server a process follows, and where it serves what it knows.
#[derive(Args, Clone, Debug)]
pub(super) struct ServeArgs {
    /// Follow LeaderLocks in these namespaces only; defaults to all namespaces.
    #[arg(
        long,
        env = "REDLOCK_WATCH_NAMESPACES",
        value_name = "NAME,…",
        value_delimiter = ','
    )]
    pub(super) watch_namespaces: Vec<String>,
    /// Address of /metrics, /livez and /readyz, and of /locks of the operator.
    #[arg(
        long,
        env = "REDLOCK_LISTEN",
        value_name = "ADDR",
        value_parser = address,
        default_value = "127.0.0.1:8080"
    )]
    pub(super) listen: SocketAddr,
}

/// The log on the standard error.
#[derive(Args, Clone, Debug)]
pub(super) struct LogArgs {
    /// How events are written to the standard error.
    #[arg(long, env = "REDLOCK_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// Which events: error, warn, info, debug or trace, or target=level,…; else RUST_LOG, else info.
    #[arg(long, env = "REDLOCK_LOG_LEVEL", value_name = "LEVEL", value_parser = level)]
    log_level: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl From<LogFormat> for logs::Format {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}

impl LogArgs {
    /// Starts the log: events are written from this point.
    pub(super) fn start(self) -> Result<(), Failure> {
        let level = match self.log_level {
            Some(level) => level,
            None => variable("RUST_LOG")?.unwrap_or_else(|| "info".to_owned()),
        };
        logs::start(self.log_format.into(), &level).map_err(|e| Failure::caused(Exit::Usage, &e))
    }
}

/// Parses the address to listen on.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.trim()
        .parse()
        .map_err(|_| "not an address: write IP:PORT, such as 127.0.0.1:8080 or [::]:8080".to_owned())
}

/// Checks a log level. A single word that is not a level would be read as a target, and no event would be written.
pub(super) fn level(text: &str) -> Result<String, String> {
    let is_known = |part: &str| part.contains('=') || part.trim().parse::<LevelFilter>().is_ok();
    if text.split(',').all(is_known) {
        Ok(text.to_owned())
    } else {
        Err("use error, warn, info, debug or trace, or target=level,…".to_owned())
    }
}

/// Returns the exit of a process. An error is one of configuration if a user must change a flag, a file or an
/// address.
pub(super) fn ended<E: std::error::Error>(
    end: Result<(), E>,
    is_of_configuration: impl Fn(&E) -> bool,
) -> Result<Exit, Failure> {
    end.map(|()| Exit::Ok).map_err(|error| {
        let configuration = is_of_configuration(&error);
        let exit = if configuration {
            Exit::Config
        } else {
            Exit::Software
        };
        Failure::caused(exit, &error)
    })
}

/// Listens for SIGTERM and SIGINT.
pub(super) fn signals() -> Result<Signals, Failure> {
    Signals::listen().map_err(|e| Failure::new(Exit::Software, format!("listening for signals: {e}")))
}

pub(super) fn host_name() -> Result<HolderIdentity, Failure> {
    on_this_host("")
}

/// Returns the host name, followed by `what`.
pub(super) fn on_this_host(what: &str) -> Result<HolderIdentity, Failure> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    HolderIdentity::parse(&format!("{}{what}", name.trim()))
        .map_err(|e| Failure::new(Exit::Config, format!("the host name: {e}; or give --identity")))
}
