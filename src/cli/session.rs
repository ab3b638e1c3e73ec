//! Opens the masters for the commands that read them, with the exit codes of failures.

use std::{
    io::{ErrorKind, Write},
    time::Duration,
};

use clap::ValueEnum;

use super::{
    Exit, Failure, QuorumArgs,
    place::{Place, PlaceArgs},
};
use crate::{
    inspect::{Reach, Session},
    lease::LockName,
    masters::{AdoptError, Agreement, MastersConfig},
};

/// How a result is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    #[default]
    Table,
    Json,
}

impl Output {
    /// Writes one of the two.
    pub(super) fn write(
        self,
        text: impl FnOnce() -> String,
        value: &impl serde::Serialize,
    ) -> Result<(), Failure> {
        let text = match self {
            Self::Table => text(),
            Self::Json => {
                let json = serde_json::to_string_pretty(value);
                json.map_err(|e| Failure::new(Exit::Software, format!("writing JSON: {e}")))? + "\n"
            }
        };
        print(&text)
    }
}

/// The result of a command, to the standard output. A reader that went away (`| head`) is no failure; a disk that is
/// full is one.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            let message = format!("writing to the standard output: {e}");
            Err(Failure::new(Exit::Software, message))
        }
        _ => Ok(()),
    }
}

/// Writes a line of progress to the standard output. A closed output does not stop the command.
pub(super) fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// How the masters are reached for a command that changes them for good, and whether they are bare urls.
pub(super) async fn masters_config(args: &PlaceArgs) -> Result<(MastersConfig, bool), Failure> {
    let (cluster, given) = match args.named_place().await? {
        Place::Masters => return Ok((args.quorum.masters_config()?, args.quorum.config.is_none())),
        Place::Cluster(cluster, given) => (cluster, given),
    };
    let name = args.kubernetes.quorum.as_deref();
    let quorum = cluster.quorum_or_only(name).await?;
    Ok((cluster.masters_config(&quorum, &given).await?, false))
}

/// Opens the masters; bare urls adopt the fingerprint that the masters carry.
pub(super) async fn open(quorum: &QuorumArgs, agreement: Agreement) -> Result<Session, Failure> {
    let config = quorum.masters_config()?;
    open_as(config, quorum.config.is_none().then_some(agreement)).await
}

pub(super) async fn open_as(config: MastersConfig, adopting: Option<Agreement>) -> Result<Session, Failure> {
    let session = Session::open(config, adopting).await;
    session.map_err(|error| adopt_failure(&error))
}

pub(super) fn adopt_failure(error: &AdoptError) -> Failure {
    let exit = match error {
        AdoptError::NoMajority { denied: 1.., .. } => Exit::Auth,
        AdoptError::NoMajority { .. } | AdoptError::Forgotten { .. } => Exit::NoQuorum,
        _ => Exit::Config,
    };
    Failure::caused(exit, error)
}

pub(super) const fn exit(reach: Reach) -> Exit {
    match reach {
        Reach::Majority => Exit::Ok,
        Reach::TooFew => Exit::NoQuorum,
        Reach::Refused => Exit::Auth,
    }
}

/// A user's lock.
pub(super) fn users_lock(text: &str) -> Result<LockName, String> {
    LockName::parse(text).map_err(|e| e.to_string())
}

/// Any lock on the masters, redlock's own included.
pub(super) fn lock(text: &str) -> Result<LockName, String> {
    LockName::any(text).map_err(|e| e.to_string())
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    super::duration::parse(text)
}
