//! Builds the client of a master: credentials and trusted certificates.

mod tls;

use std::sync::Arc;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

pub(crate) use self::tls::Certificates;
use super::{
    config::{ConfigError, Credentials, MasterConfig, Tls},
    master_url::{MasterUrlError, redact},
};

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
            _ => return Err("names no server, or one whose certificate would not be checked"),
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
        let url = master.parsed_url()?;
        let bad = |reason: String| ConfigError::Url {
            name: master.name.clone(),
            url: redact(&master.url),
            reason: MasterUrlError::Shape(reason),
        };
        let info = master.url.as_str().into_connection_info();
        let info =
            info.map_err(|error| bad(format!("is refused by the client library: {}", refusal(&error))))?;
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
        let certificates = url
            .tls
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
