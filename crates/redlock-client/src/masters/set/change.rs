//! What may change about a set of masters while it is in use and leases are held.

use std::{sync::PoisonError, time::Duration};

use redlock_core::Input;

use super::Masters;
use crate::masters::{
    ConfigError, Credentials, MasterConfig, Tls,
    access::Access,
    config::without_credentials,
    link::{Dial, Link},
};

impl Masters {
    /// For the commands that are sent from now on; what is under way keeps its own.
    pub fn set_command_timeout(&self, timeout: Duration) {
        self.inner.shared.handle(Input::CommandTimeout(timeout));
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

    /// Reaches one master by another url. Its connection is closed, and it has no vote until it was looked at behind the
    /// new one; the other masters and what they voted for are left alone. To be asked for only once [`Self::retire`]
    /// allows it: two servers that vote under one name give a lock twice.
    ///
    /// # Errors
    /// A name that no master has, a url that cannot be used or that another master has.
    pub fn replace_url(&self, name: &str, url: &str) -> Result<(), ConfigError> {
        let link = self.named(name)?;
        let same = |other: &&std::sync::Arc<Link>| {
            other.index != link.index && other.url().trim_end_matches('/') == url.trim_end_matches('/')
        };
        if let Some(other) = self.links().iter().find(same) {
            return Err(ConfigError::SameUrl {
                first: other.name.clone(),
                second: name.to_owned(),
                url: without_credentials(url),
            });
        }
        // Held until the url is there: credentials that change meanwhile would be lost to it.
        let access = self.inner.access.lock().unwrap_or_else(PoisonError::into_inner);
        let client = access.client(&master(name, url))?;
        link.redial(without_credentials(url), client);
        drop(access);
        Ok(())
    }

    /// A link to the server behind a url, as if it were that master, with nobody who keeps it.
    pub(in crate::masters) fn beside(&self, name: &str, url: &str) -> Result<Link, ConfigError> {
        let link = self.named(name)?;
        let access = self.inner.access.lock().unwrap_or_else(PoisonError::into_inner);
        let client = access.client(&master(name, url))?;
        drop(access);
        Ok(link.to(Dial::new(without_credentials(url), client)))
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
