//! Creates the clients of the API server.

mod contact;
mod renewed;

use std::{sync::Arc, time::Duration};

use kube::{Client, Config};
use tokio::sync::watch;

use self::contact::ContactViews;
use super::error::ConfigurationError;
use crate::{
    clock,
    lease::BootInstant,
    operator::api_server::{self, chain},
};

/// Timeout of a connection attempt, and of a write.
const CONNECT: Duration = Duration::from_secs(5);
/// Read timeout. The server sends a bookmark about every minute, so a watch that is silent for longer is broken.
const READ: Duration = Duration::from_secs(150);

/// Opens the connections of one client.
pub(crate) type Connector = Arc<dyn Fn(Config) -> Result<Client, kube::Error> + Send + Sync>;

/// Clients of the API server. Requests that may wait behind retries use a different client than requests that
/// must not wait.
#[derive(Clone)]
pub(crate) struct Clients {
    /// The client for lists, watches and events. It retries requests that the server defers.
    pub(crate) work: Client,
    /// The client for status writes and for all requests that stop a target. It never retries: the caller
    /// reads the current state first.
    pub(crate) urgent: Client,
    /// Whether the API server does not answer, so that the observed state of the cluster is stale.
    pub(crate) lost: watch::Receiver<bool>,
    /// The time of the last answer of the API server to a probe, or of the start.
    pub(crate) answered: watch::Receiver<BootInstant>,
}

impl Clients {
    /// Creates the clients from the pod's ServiceAccount or from KUBECONFIG, and the task that detects and replaces
    /// silent connections.
    pub(crate) fn infer() -> Result<(Self, impl Future<Output = ()> + Send + use<>), ConfigurationError> {
        let mut config = api_server::infer().map_err(|error| ConfigurationError::NoCluster(chain(&error)))?;
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = Some(READ);
        config.write_timeout = Some(CONNECT);
        let tcp: Connector = Arc::new(Client::try_from);
        Self::of(&config, &tcp).map_err(|error| ConfigurationError::Client(Box::new(error)))
    }

    /// Creates the clients, whose connections `connector` opens, and the task that detects and replaces silent ones.
    pub(crate) fn of(
        config: &Config,
        connector: &Connector,
    ) -> Result<(Self, impl Future<Output = ()> + Send + use<>), kube::Error> {
        let mut urgent = config.clone();
        urgent.default_retry = false;
        // The probe has its own connections: a request that waits for an answer must not delay it.
        let probe = connector(urgent.clone())?;
        let (work, work_renewal) = renewed::client(config.clone(), connector.clone())?;
        let (urgent, urgent_renewal) = renewed::client(urgent, connector.clone())?;
        let (lost_sender, lost) = watch::channel(false);
        let (answered_sender, answered) = watch::channel(clock::now());
        let views = ContactViews {
            lost: lost_sender,
            answered: answered_sender,
        };
        let keeping = contact::keep(probe, vec![work_renewal, urgent_renewal], views);
        let clients = Self {
            work,
            urgent,
            lost,
            answered,
        };
        Ok((clients, keeping))
    }
}
