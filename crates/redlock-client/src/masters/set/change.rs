//! Changes a set of masters while it is in use and leases are held.

use std::{sync::PoisonError, time::Duration};

use redlock_core::Input;

use super::Masters;
use crate::masters::{
    ConfigError, Credentials, MasterConfig, Tls,
    access::Access,
    link::{Dial, Link},
    master_url::{MasterUrl, redact},
};

impl Masters {
    /// Sets the timeout of later commands; commands under way keep theirs.
    pub fn set_command_timeout(&self, timeout: Duration) {
        self.inner.shared.handle(Input::CommandTimeout(timeout));
    }

    /// Applies rotated credentials and certificates; new connections use them. A working connection is
    /// replaced by a new one once the new one has passed a trial of all permissions, one master after the
    /// other. If a master refuses the new credentials, its connection continues,
    /// [`crate::masters::MasterStatus::not_renewed`] reports the reason, and the change is retried. No vote
    /// is lost either way.
    ///
    /// # Errors
    /// Returns an error for invalid certificates; nothing has changed then.
    pub fn rekey(&self, credentials: Credentials, tls: Tls) -> Result<(), ConfigError> {
        let access = Access { credentials, tls };
        let mut now = self.inner.access.lock().unwrap_or_else(PoisonError::into_inner);
        if *now == access {
            return Ok(());
        }
        let links = self.links().iter();
        let clients = links.map(|link| access.client(&master(&link.name, &link.url())));
        let clients: Vec<_> = clients.collect::<Result<_, _>>()?;
        for (link, client) in self.links().iter().zip(clients) {
            link.rekey(client);
        }
        *now = access;
        drop(now);
        self.inner.outdated.notify_one();
        Ok(())
    }

    /// Changes the url of one master. Its connection is closed, and it has no vote until it is polled at the
    /// new url; the other masters and their votes do not change. Call it only once [`Self::retire`] allows
    /// it: two servers that vote under one name grant a lock twice.
    ///
    /// # Errors
    /// Returns an error for a name that no master has, and for a url that cannot be used or that another master has.
    pub fn replace_url(&self, name: &str, url: &str) -> Result<(), ConfigError> {
        let link = self.named(name)?;
        let MasterUrl { address, .. } = master(name, url).parsed_url()?;
        let same = |other: &&std::sync::Arc<Link>| {
            let server = MasterUrl::parse(&other.url());
            other.index != link.index && server.is_ok_and(|server| server.address == address)
        };
        if let Some(other) = self.links().iter().find(same) {
            return Err(ConfigError::SameServer {
                first: other.name.clone(),
                second: name.to_owned(),
                address,
            });
        }
        // The mutex is held until the url is set: otherwise the new connection would miss credentials that
        // change in between.
        let access = self.inner.access.lock().unwrap_or_else(PoisonError::into_inner);
        let client = access.client(&master(name, url))?;
        link.redial(redact(url), client);
        drop(access);
        Ok(())
    }

    /// Returns a link to the server behind a url, as if it were that master; no task keeps it connected.
    pub(in crate::masters) fn beside(&self, name: &str, url: &str) -> Result<Link, ConfigError> {
        let link = self.named(name)?;
        let access = self.inner.access.lock().unwrap_or_else(PoisonError::into_inner);
        let client = access.client(&master(name, url))?;
        drop(access);
        Ok(link.to(Dial::new(redact(url), client, link.transport())))
    }

    fn named(&self, name: &str) -> Result<&Link, ConfigError> {
        let found = self.links().iter().find(|link| link.name == name);
        found.map(|link| &**link).ok_or_else(|| {
            let names: Vec<&str> = self.links().iter().map(|link| &*link.name).collect();
            ConfigError::NoSuchMaster {
                name: name.to_owned(),
                names: names.join(", "),
            }
        })
    }
}

fn master(name: &str, url: &str) -> MasterConfig {
    MasterConfig {
        name: name.to_owned(),
        url: url.to_owned(),
    }
}
