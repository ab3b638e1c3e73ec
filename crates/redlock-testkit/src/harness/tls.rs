//! Issues certificates from a CA that exists for one test.

use std::fs;
use std::path::{Path, PathBuf};

use crate::TlsFiles;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use tempfile::TempDir;

/// A CA, a server certificate for `localhost` and `127.0.0.1`, and a client certificate, as PEM files. Each value has a
/// CA of its own; the CAs do not trust each other.
#[derive(Debug)]
pub struct TlsMaterial {
    folder: TempDir,
}

impl TlsMaterial {
    #[allow(
        clippy::new_without_default,
        reason = "each value is a CA of its own, in a folder of its own"
    )]
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("folder for certificates");
        let ca_key = KeyPair::generate().expect("key of the CA");
        let mut ca = params(&[], "redlock test CA");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca_certificate = ca.self_signed(&ca_key).expect("certificate of the CA");
        write(folder.path(), "ca.crt", &ca_certificate.pem());

        let issuer = Issuer::new(ca, ca_key);
        let mut server = params(&["localhost", "127.0.0.1"], "redis");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        issue(folder.path(), "server", &server, &issuer);
        let mut client = params(&["client.test"], "redlock");
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        issue(folder.path(), "client", &client, &issuer);
        Self { folder }
    }

    /// Returns the files that a server needs.
    pub fn server_files(&self, client_certificate_required: bool) -> TlsFiles {
        TlsFiles {
            certificate: self.file("server.crt"),
            key: self.file("server.key"),
            ca: self.ca(),
            client_certificate_required,
        }
    }

    pub fn ca(&self) -> PathBuf {
        self.file("ca.crt")
    }

    pub fn client_certificate(&self) -> PathBuf {
        self.file("client.crt")
    }

    pub fn client_key(&self) -> PathBuf {
        self.file("client.key")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn params(names: &[&str], common_name: &str) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names of a certificate");
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

fn issue(folder: &Path, name: &str, params: &CertificateParams, issuer: &Issuer<'_, KeyPair>) {
    let key = KeyPair::generate().expect("key");
    let certificate = params.signed_by(&key, issuer).expect("certificate");
    write(folder, &format!("{name}.crt"), &certificate.pem());
    write(folder, &format!("{name}.key"), &key.serialize_pem());
}

fn write(folder: &Path, name: &str, text: &str) {
    fs::write(folder.join(name), text).expect("write a certificate");
}
