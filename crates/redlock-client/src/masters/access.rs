//! Builds the client of a master: credentials and trusted certificates.

use redis::{ClientTlsConfig, IntoConnectionInfo, TlsCertificates};
use rustls::pki_types::{CertificateDer, pem::PemObject};

use super::config::{ConfigError, Credentials, MasterConfig, Secret, Tls, credentials, without_credentials};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) credentials: Credentials,
    pub(crate) tls: Tls,
}

impl Access {
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

/// Returns the text of an error without its kind, which is a term of the client library.
fn refusal(error: &redis::RedisError) -> String {
    let text = error.to_string();
    text.strip_suffix(" - InvalidClientConfig")
        .unwrap_or(&text)
        .to_owned()
}

impl Tls {
    /// Rejects a file without any certificate. The client library would accept the file and trust no server,
    /// and every master would appear unreachable.
    fn check(&self) -> Result<(), ConfigError> {
        let certificates = |what: &str, pem: &Secret| {
            let mut count = 0;
            for certificate in CertificateDer::pem_slice_iter(pem.reveal().as_bytes()) {
                certificate.map_err(|e| ConfigError::Tls(format!("{what}: {e}")))?;
                count += 1;
            }
            match count {
                0 => Err(ConfigError::Tls(format!(
                    "{what}: the PEM text contains no certificate"
                ))),
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
