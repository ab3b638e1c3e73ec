//! Accepts connections to one host and port.

use std::{future::pending, io};

use tokio::sync::mpsc;

use super::{Connection, Network};

/// Accepts connections. Drop refuses further ones.
#[derive(Debug)]
pub struct Listener {
    network: Network,
    address: (String, u16),
    number: u64,
    accepted: mpsc::Receiver<(Connection, String)>,
}

impl Listener {
    pub(super) const fn new(
        network: Network,
        address: (String, u16),
        number: u64,
        accepted: mpsc::Receiver<(Connection, String)>,
    ) -> Self {
        Self {
            network,
            address,
            number,
            accepted,
        }
    }

    /// Returns the next connection and the name of the party that opened it. Cancel safe.
    pub async fn accept(&mut self) -> (Connection, String) {
        match self.accepted.recv().await {
            Some(accepted) => accepted,
            // The network keeps the sender as long as this listener exists.
            None => pending().await,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut state = self.network.state();
        let own = |number| number == self.number;
        if state
            .listeners
            .get(&self.address)
            .is_some_and(|entry| own(entry.number))
        {
            state.listeners.remove(&self.address);
        }
    }
}

impl axum::serve::Listener for Listener {
    type Io = Connection;
    type Addr = String;

    async fn accept(&mut self) -> (Connection, String) {
        Self::accept(self).await
    }

    fn local_addr(&self) -> io::Result<String> {
        let (host, port) = &self.address;
        Ok(format!("{host}:{port}"))
    }
}
