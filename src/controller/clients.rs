//! The ways to the API server.

mod contact;
mod renewed;

use std::{error::Error, time::Duration};

use kube::{Client, Config};
use tokio::sync::watch;

use super::error::ConfigurationError;

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
    /// The API server does not answer, and what was seen of the cluster is old.
    pub(super) lost: watch::Receiver<bool>,
}

impl Clients {
    /// From the pod's ServiceAccount, or KUBECONFIG. With the task that notices connections that went silent.
    pub(super) async fn infer() -> Result<(Self, impl Future<Output = ()> + Send + use<>), ConfigurationError>
    {
        let mut config = Config::infer()
            .await
            .map_err(|error| ConfigurationError::NoCluster(reason(&error)))?;
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = Some(READ);
        config.write_timeout = Some(CONNECT);
        Self::of(&config).map_err(|error| ConfigurationError::Client(Box::new(error)))
    }

    fn of(config: &Config) -> Result<(Self, impl Future<Output = ()> + Send + use<>), kube::Error> {
        let mut urgent = config.clone();
        urgent.default_retry = false;
        // On connections of its own: a request that waits for an answer must not hide the next.
        let probe = Client::try_from(urgent.clone())?;
        let (work, work_renewal) = renewed::client(config.clone())?;
        let (urgent, urgent_renewal) = renewed::client(urgent)?;
        let (tell, lost) = watch::channel(false);
        let keeping = contact::keep(probe, vec![work_renewal, urgent_renewal], tell);
        Ok((Self { work, urgent, lost }, keeping))
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
