//! What may change about a set of masters while it is in use and leases are held.

use std::{sync::PoisonError, time::Duration};

use super::Masters;
use crate::masters::{ConfigError, Credentials, MasterConfig, Tls, access::Access};

impl Masters {
    /// For the commands that are sent from now on; what is under way keeps its own.
    pub fn set_command_timeout(&self, timeout: Duration) {
        self.inner.command_timeout.set(timeout);
    }

    /// Follows credentials and certificates that were rotated; connections from now on are opened with these. One that
    /// works is replaced by one that was opened beside it and may do everything, one master after the other. Where that
    /// is not accepted it goes on, [`crate::masters::MasterStatus::not_renewed`] says why, and it is tried again and
    /// again. No vote is lost either way.
    ///
    /// # Errors
    /// Certificates that are none. Nothing has changed then.
    pub fn rekey(&self, credentials: Credentials, tls: Tls) -> Result<(), ConfigError> {
        let access = Access { credentials, tls };
        let mut now = self.inner.access.lock().unwrap_or_else(PoisonError::into_inner);
        if *now == access {
            return Ok(());
        }
        let links = self.links().iter();
        let clients = links.map(|link| {
            access.client(&MasterConfig {
                name: link.name.clone(),
                url: link.url(),
            })
        });
        let clients: Vec<_> = clients.collect::<Result<_, _>>()?;
        for (link, client) in self.links().iter().zip(clients) {
            link.rekey(client);
        }
        *now = access;
        drop(now);
        self.inner.outdated.notify_one();
        Ok(())
    }
}
