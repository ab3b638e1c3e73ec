//! Opens TLS on a connection: trusted certificates, and the certificate of the client.

use std::{io, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use rustls_native_certs::load_native_certs;
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    masters::config::{ConfigError, Secret},
    transport::Stream,
};

/// The certificates of a [`Tls`], parsed.
#[derive(Debug)]
pub(crate) struct Certificates {
    /// The trusted authorities; `None` stands for those of the system.
    roots: Option<RootCertStore>,
    /// Certificate and key of the client.
    client: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
}

impl Certificates {
    pub(super) fn parse(ca: Option<&Secret>, client: Option<&(Secret, Secret)>) -> Result<Self, ConfigError> {
        let roots = ca.map(|ca| {
            let mut roots = RootCertStore::empty();
            for certificate in certificates("the authority's certificate", ca)? {
                roots
                    .add(certificate)
                    .map_err(|e| ConfigError::Tls(format!("the authority's certificate: {e}")))?;
            }
            Ok(roots)
        });
        let client = client.map(|(certificate, key)| {
            let chain = certificates("the client's certificate", certificate)?;
            let key = PrivateKeyDer::from_pem_slice(key.reveal().as_bytes())
                .map_err(|e| ConfigError::Tls(format!("the client's key: {e}")))?;
            Ok((chain, key))
        });
        Ok(Self {
            roots: roots.transpose()?,
            client: client.transpose()?,
        })
    }

    /// Greets a server by TLS. The host is the name that its certificate must have.
    pub(crate) async fn greet(&self, host: &str, stream: Stream) -> io::Result<TlsStream<Stream>> {
        let name = ServerName::try_from(host).map_err(|e| refused(&e))?.to_owned();
        let connector = TlsConnector::from(Arc::new(self.config()?));
        connector.connect(name, stream).await
    }

    /// Reads the authorities of the system anew: they are renewed while this process runs.
    fn config(&self) -> io::Result<ClientConfig> {
        let roots = match &self.roots {
            Some(roots) => roots.clone(),
            None => of_system()?,
        };
        let config = ClientConfig::builder().with_root_certificates(roots);
        match &self.client {
            Some((chain, key)) => config
                .with_client_auth_cert(chain.clone(), key.clone_key())
                .map_err(|e| refused(&e)),
            None => Ok(config.with_no_client_auth()),
        }
    }
}

/// Rejects a text without any certificate, which would trust no server: every master would appear unreachable.
fn certificates(what: &str, pem: &Secret) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem.reveal().as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|e| ConfigError::Tls(format!("{what}: {e}")))?;
    if all.is_empty() {
        return Err(ConfigError::Tls(format!(
            "{what}: the PEM text contains no certificate"
        )));
    }
    Ok(all)
}

fn of_system() -> io::Result<RootCertStore> {
    let mut found = load_native_certs();
    if let Some(error) = found.errors.pop() {
        return Err(refused(&error));
    }
    let mut roots = RootCertStore::empty();
    for certificate in found.certs {
        roots.add(certificate).map_err(|e| refused(&e))?;
    }
    Ok(roots)
}

fn refused(error: &dyn std::error::Error) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("TLS cannot be used: {error}"),
    )
}
