//! What has to be known to reach the masters of one quorum.

use std::{fmt, time::Duration};

use redis::{ClientTlsConfig, IntoConnectionInfo, TlsCertificates};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use thiserror::Error;

use super::Fingerprint;
use crate::lease::{ClusterId, QuorumSize};

/// A password or key. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// Who the masters are told we are.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// ACL user; Redis' `default` user when absent.
    pub username: Option<String>,
    pub password: Option<Secret>,
}

/// PEM texts for `rediss://`; without a CA, the system's.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    pub ca: Option<Secret>,
    /// Certificate and key of the client.
    pub client: Option<(Secret, Secret)>,
}

/// One Redis server of the N.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MasterConfig {
    pub name: String,
    /// `redis://HOST[:PORT][/DB]` or `rediss://…`, without user and password.
    pub url: String,
}

#[derive(Clone, Debug)]
pub struct MastersConfig {
    /// In the order of the votes.
    pub masters: Vec<MasterConfig>,
    pub key_prefix: String,
    pub credentials: Credentials,
    pub tls: Tls,
    /// The own cluster, of every lease and reservation.
    pub cluster: ClusterId,
    /// Deadline of one command at one master.
    pub command_timeout: Duration,
    pub longest_lease: Duration,
    /// T_acquire: no attempt lasts longer.
    pub acquire_limit: Duration,
    /// Re-seal masters that lost their memory. False for tools that only look.
    pub reseal: bool,
}

/// A configuration that cannot work.
#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("{0} masters given; a quorum has 3, 5 or 7")]
    Count(usize),
    #[error("master {name}: url {url:?} cannot be used: {reason}; it must look like redis://HOST:PORT")]
    Url {
        name: String,
        url: String,
        reason: String,
    },
    #[error(
        "masters {first} and {second} have the same url {url:?}; every master must be a server of its own"
    )]
    SameUrl {
        first: String,
        second: String,
        url: String,
    },
    #[error("two masters are called {0:?}; names must be unique")]
    SameName(String),
    #[error("TLS material cannot be used: {0}; it must be PEM")]
    Tls(String),
}

impl MastersConfig {
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let names = self.masters.iter().map(|m| m.name.clone()).collect();
        Fingerprint::new(names, self.longest_lease, self.acquire_limit)
    }

    pub(crate) fn size(&self) -> Result<QuorumSize, ConfigError> {
        QuorumSize::new(self.masters.len()).ok_or(ConfigError::Count(self.masters.len()))
    }

    pub(crate) fn client(&self, master: &MasterConfig) -> Result<redis::Client, ConfigError> {
        let bad = |reason: String| ConfigError::Url {
            name: master.name.clone(),
            url: without_credentials(&master.url),
            reason,
        };
        if !master.url.starts_with("redis://") && !master.url.starts_with("rediss://") {
            return Err(bad("the scheme is neither redis nor rediss".into()));
        }
        if credentials(&master.url).is_some() {
            return Err(bad(
                "a user or password in a url would be seen by everybody who lists it".into(),
            ));
        }
        let info = master
            .url
            .as_str()
            .into_connection_info()
            .map_err(|e| bad(refusal(&e)))?;
        let mut settings = info
            .redis_settings()
            .clone()
            .set_protocol(redis::ProtocolVersion::RESP3)
            // CLIENT SETINFO would need a permission that nothing else needs.
            .set_skip_set_lib_name();
        if let Some(username) = &self.credentials.username {
            settings = settings.set_username(username);
        }
        if let Some(password) = &self.credentials.password {
            settings = settings.set_password(password.reveal());
        }
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
        if !master.url.starts_with("rediss://") {
            return redis::Client::open(info).map_err(|e| bad(refusal(&e)));
        }
        self.tls.check()?;
        let pem = |secret: &Secret| secret.reveal().as_bytes().to_vec();
        let certificates = TlsCertificates {
            client_tls: self.tls.client.as_ref().map(|(cert, key)| ClientTlsConfig {
                client_cert: pem(cert),
                client_key: pem(key),
            }),
            root_cert: self.tls.ca.as_ref().map(pem),
        };
        redis::Client::build_with_tls(info, certificates)
            .map_err(|e| ConfigError::Tls(e.category().to_owned()))
    }
}

/// Without the kind of the error, which is a word of the client library.
fn refusal(error: &redis::RedisError) -> String {
    let text = error.to_string();
    text.strip_suffix(" - InvalidClientConfig")
        .unwrap_or(&text)
        .to_owned()
}

impl Tls {
    /// The client library takes a file without any certificate for one that trusts nobody, and every master would look
    /// unreachable.
    fn check(&self) -> Result<(), ConfigError> {
        let certificates = |what: &str, pem: &Secret| {
            let mut count = 0;
            for certificate in CertificateDer::pem_slice_iter(pem.reveal().as_bytes()) {
                certificate.map_err(|e| ConfigError::Tls(format!("{what}: {e}")))?;
                count += 1;
            }
            match count {
                0 => Err(ConfigError::Tls(format!("{what}: no certificate in it"))),
                _ => Ok(()),
            }
        };
        if let Some(ca) = &self.ca {
            certificates("the authority's certificate", ca)?;
        }
        if let Some((certificate, _)) = &self.client {
            certificates("the client's certificate", certificate)?;
        }
        Ok(())
    }
}

/// Everything before the last `@`, wherever it is: a password with a `/`, `?` or `#` in it makes the url end early for
/// a parser, and is a password all the same.
fn credentials(url: &str) -> Option<(&str, &str)> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.rsplit_once('@')
}

/// The url as it may be shown.
#[must_use]
pub fn without_credentials(url: &str) -> String {
    match (credentials(url), url.split_once("://")) {
        (Some((_, host)), Some((scheme, _))) => format!("{scheme}://…@{host}"),
        (Some((_, host)), None) => format!("…@{host}"),
        (None, _) => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_never_shown() {
        assert_eq!(format!("{:?}", Secret::new("hunter2".into())), "…");
        assert_eq!(
            without_credentials("redis://u:hunter2@host:1/0"),
            "redis://…@host:1/0"
        );
        assert_eq!(without_credentials("redis://host:1/0"), "redis://host:1/0");
        for secret in [
            "hun/ter2",
            "hun?ter2",
            "hun#ter2",
            "1/hunter2",
            "hun@ter2",
            "hun://ter2",
        ] {
            let shown = without_credentials(&format!("redis://u:{secret}@host:1/0"));
            assert_eq!(shown, "redis://…@host:1/0");
        }
    }
}
