//! Opens the masters for the commands that read them, and maps failures to exit codes.

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

/// The format of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    #[default]
    Table,
    Json,
}

impl Output {
    /// Writes the result in this format.
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

/// Writes the result of a command to the standard output. A reader that has closed it (`| head`) is not a failure, but
/// a full disk is.
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

/// Writes progress to the standard output. The command continues if it cannot be written.
pub(super) fn print_progress(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Returns the connection to the masters for a command that changes them permanently, and whether they are bare urls.
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

/// Parses the name of a user's lock.
pub(super) fn users_lock(text: &str) -> Result<LockName, String> {
    LockName::parse(text).map_err(|e| e.to_string())
}

/// Parses the name of any lock on the masters, including those of redlock itself.
pub(super) fn lock(text: &str) -> Result<LockName, String> {
    LockName::any(text).map_err(|e| e.to_string())
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    crate::operator::duration::parse(text)
}
