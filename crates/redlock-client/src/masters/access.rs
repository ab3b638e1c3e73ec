//! Builds the client of a master: credentials and trusted certificates.

mod tls;

use std::sync::Arc;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

pub(crate) use self::tls::Certificates;
use super::config::{ConfigError, Credentials, MasterConfig, Tls, credentials, without_credentials};

/// The server of a master and the credentials there.
#[derive(Clone)]
pub(crate) struct MasterClient {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// With user and password.
    pub(crate) settings: RedisConnectionInfo,
    /// `None` stands for a connection without TLS.
    pub(crate) certificates: Option<Arc<Certificates>>,
}

impl MasterClient {
    fn new(info: &ConnectionInfo, certificates: Option<Arc<Certificates>>) -> Result<Self, &'static str> {
        let (host, port) = match info.addr() {
            ConnectionAddr::Tcp(host, port)
            | ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                ..
            } => (host.clone(), *port),
            _ => return Err("it names no server, or one whose certificate would not be checked"),
        };
        Ok(Self {
            host,
            port,
            settings: info.redis_settings().clone(),
            certificates,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) credentials: Credentials,
    pub(crate) tls: Tls,
}

impl Access {
    pub(crate) fn client(&self, master: &MasterConfig) -> Result<MasterClient, ConfigError> {
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
                "a user or password in a url is visible to every process that can list it".into(),
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
        let (username, password) = self.credentials.login(&master.name);
        if let Some(username) = username {
            settings = settings.set_username(username);
        }
        if let Some(password) = password {
            settings = settings.set_password(password.reveal());
        }
        let info = info.set_redis_settings(settings);
        let tls = master.url.starts_with("rediss://");
        let certificates = tls
            .then(|| Certificates::parse(self.tls.ca.as_ref(), self.tls.client_for(&master.name)))
            .transpose()?;
        MasterClient::new(&info, certificates.map(Arc::new)).map_err(|reason| bad(reason.into()))
    }
}

/// Returns the text of an error without its kind, which is a term of the client library.
fn refusal(error: &redis::RedisError) -> String {
    let text = error.to_string();
    text.strip_suffix(" - InvalidClientConfig")
        .unwrap_or(&text)
        .to_owned()
}
