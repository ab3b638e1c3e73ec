//! Changes credentials, certificates and urls while a master is in use.
//!
//! A working connection is never given up for one that may not work. The new connection is opened in parallel
//! and tried out, one master after the other, and only then replaces the old one.

use std::{sync::Arc, time::Duration};

use tokio::time;

use redlock_core::{ClusterId, ConnectionId, Input, MasterFacts, Unknown};

use super::{Dial, Link, Lost, Peers, keep};
use crate::masters::{access::MasterClient, permission::Refusals, preflight};

/// The pause before a master that refuses the new credentials is tried again: an administrator changes the
/// Secret before the servers, or vice versa.
const AGAIN: Duration = Duration::from_secs(2);

/// The connection after one that ended.
#[derive(Debug)]
pub(super) enum NextConnection {
    Successor(Lost),
    Closed,
    /// The master sent what no reply has.
    Refused(Unknown),
}

/// Renews the connections that use earlier credentials.
#[derive(Debug)]
pub(crate) struct Renewer {
    pub(crate) peers: Peers,
    pub(crate) cluster: ClusterId,
    /// Whether the new credentials must permit the scripts that write.
    pub(crate) writes: bool,
}

impl Renewer {
    /// Runs until it is cancelled.
    pub(crate) async fn run(self) {
        loop {
            let mut left = false;
            for link in self.peers.links.iter().filter(|link| link.outdated()) {
                left |= !self.renew(link).await;
            }
            let again = async {
                if left {
                    time::sleep(AGAIN).await;
                } else {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = again => {}
                () = self.peers.outdated.notified() => {}
            }
        }
    }

    /// Returns false if the renewals must be checked again after [`AGAIN`].
    async fn renew(&self, link: &Link) -> bool {
        let beside = link.beside();
        match self.try_out(&beside).await {
            Ok((facts, lost)) => {
                if !link.replace(&beside, facts, lost) {
                    return false;
                }
                tracing::info!(
                    master = link.name,
                    "connection renewed with the new credentials or certificates"
                );
                // Continues with the next master only once this one answers again, or a whole command timeout has
                // passed.
                link.read_facts().await.is_ok()
            }
            Err(unknown) => {
                link.not_renewed(unknown);
                false
            }
        }
    }

    /// Checks that the new credentials permit everything that the scripts need. They cannot cause any other
    /// problem of the server.
    async fn try_out(&self, beside: &Link) -> Result<(MasterFacts, Lost), Unknown> {
        let lost = keep::open(beside).await?;
        let facts = beside.read_facts().await?;
        if !self.writes {
            return Ok((facts, lost));
        }
        match preflight::try_out(beside, &self.cluster).await {
            Err(error) if error.reason.is_auth() || !error.reason.is_of_server() => Err(error.reason),
            _ => Ok((facts, lost)),
        }
    }
}

impl Link {
    /// Reports whether the connection was opened before the last change.
    pub(super) fn outdated(&self) -> bool {
        let state = self.state();
        let version = state.dial.version;
        state.open.as_ref().is_some_and(|open| open.version != version)
    }

    /// Sets the client for new connections. A working connection continues until [`Renewer`] has tried the
    /// new client.
    pub(crate) fn rekey(&self, client: MasterClient) {
        let mut state = self.state();
        state.dial.client = client;
        state.dial.version += 1;
        let connected = state.open.is_some();
        drop(state);
        if !connected {
            self.switched.notify_one();
        }
    }

    /// Replaces the server of this master. The old server no longer has a vote here, and the new one has no
    /// vote until it is polled.
    pub(crate) fn redial(&self, url: String, client: MasterClient) {
        let mut state = self.state();
        state.dial = Dial {
            url,
            client,
            transport: state.dial.transport.clone(),
            version: state.dial.version + 1,
            server: state.dial.server + 1,
        };
        state.close();
        state.handed_over = None;
        state.not_renewed = None;
        state.whole = None;
        state.sealing = None;
        self.shared.handle(Input::ServerChanged { master: self.index });
        drop(state);
        self.switched.notify_one();
    }

    /// Returns another link to the same master; no task keeps it connected.
    fn beside(&self) -> Self {
        self.to(self.state().dial.clone())
    }

    /// Returns a link to the server behind another dial.
    pub(in crate::masters) fn to(&self, dial: Dial) -> Self {
        Self {
            shared: Arc::new(self.quorum.apart()),
            ..Self::new(
                (self.index, self.name.clone()),
                dial,
                self.keys.clone(),
                &self.quorum,
                self.notices.clone(),
                self.scripts,
            )
        }
    }

    /// Replaces the connection of this link by that of `beside`, without a gap. Requests under way end on the old
    /// connection.
    fn replace(&self, beside: &Self, facts: MasterFacts, lost: Lost) -> bool {
        let Some(new) = beside.state().open.take() else {
            return false;
        };
        let mut state = self.state();
        // If the connection was closed in the meantime, the next one uses the new credentials anyway. If the
        // dial changed again, the latest credentials must be tried first.
        if state.open.is_none() || state.dial.version != new.version {
            return false;
        }
        state.connection += 1;
        let id = ConnectionId(state.connection);
        let old = state.open.replace(Arc::new(new.renumbered(id)));
        if let Some(old) = old {
            let (now, timeout) = self.shared.read(|engine, now| (now, engine.longest_timeout()));
            state.former.push((now + timeout, old.closed.clone()));
        }
        state.handed_over = Some(lost);
        state.not_renewed = None;
        state.refusals = Refusals::default();
        self.shared.handle(Input::Replaced {
            master: self.index,
            connection: id,
            facts,
        });
        drop(state);
        self.switched.notify_one();
        true
    }

    /// Closes replaced connections once no request on them waits for its reply.
    pub(super) fn close_former(&self) {
        let mut state = self.state();
        if !state.former.is_empty() {
            let now = self.shared.read(|_, now| now);
            state.former.retain(|(until, closed)| {
                let over = *until <= now;
                if over {
                    closed.cancel();
                }
                !over
            });
        }
    }

    fn not_renewed(&self, unknown: Unknown) {
        let mut state = self.state();
        if state.not_renewed.as_ref() != Some(&unknown) {
            tracing::warn!(
                master = self.name,
                error = %unknown,
                "the new credentials or certificates are not accepted; the connection with the previous ones is kept"
            );
        }
        state.not_renewed = Some(unknown);
    }

    /// Returns the connection that replaced the one being kept. Without it, closes the connection.
    pub(super) fn next(&self) -> NextConnection {
        let mut state = self.state();
        if let Some(successor) = state.handed_over.take() {
            return NextConnection::Successor(successor);
        }
        let refused = state.open.as_ref().and_then(|open| open.bounds.refused());
        state.close();
        state.not_renewed = None;
        self.shared.handle(Input::Disconnected { master: self.index });
        refused.map_or(NextConnection::Closed, NextConnection::Refused)
    }

    /// Reports whether the connection to read has changed, or is gone.
    pub(super) fn is_switched(&self) -> bool {
        let state = self.state();
        state.open.is_none() || state.handed_over.is_some()
    }

    pub(super) fn is_handed_over(&self) -> bool {
        self.state().handed_over.is_some()
    }
}
