//! The ways to the API server.

use std::{error::Error, time::Duration};

use kube::{Client, Config};

use super::process::OperatorError;

/// An answer that takes longer than this is none: the connection is made anew.
const CONNECT: Duration = Duration::from_secs(5);
/// A watch is quiet for a minute at most: the server sends a bookmark about every minute.
const READ: Duration = Duration::from_secs(150);

/// What may wait behind retries goes another way than what must not.
#[derive(Clone)]
pub(super) struct Clients {
    /// Lists, watches, events. Retries by itself what the server puts off.
    pub(super) work: Client,
    /// Writes of statuses and all that stops something. Never retries: whoever asked looks again first.
    pub(super) urgent: Client,
}

impl Clients {
    /// From the pod's ServiceAccount, or KUBECONFIG.
    pub(super) async fn infer() -> Result<Self, OperatorError> {
        let mut config = Config::infer()
            .await
            .map_err(|error| OperatorError::NoCluster(reason(&error)))?;
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = Some(READ);
        config.write_timeout = Some(CONNECT);
        let mut urgent = config.clone();
        urgent.default_retry = false;
        let client = |config| Client::try_from(config).map_err(|e| OperatorError::Client(Box::new(e)));
        Ok(Self {
            work: client(config)?,
            urgent: client(urgent)?,
        })
    }
}

/// The text of the kubeconfig's error: it repeats its cause, and what wraps it repeats both.
fn reason(error: &dyn Error) -> String {
    let text = error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string);
    let cause = error.source().and_then(Error::source).map(ToString::to_string);
    match cause.filter(|cause| !text.ends_with(cause.as_str())) {
        Some(cause) => format!("{text}: {cause}"),
        None => text,
    }
}
