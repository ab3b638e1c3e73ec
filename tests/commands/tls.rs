//! Tests `rediss://` with a CA and a client certificate.

use std::path::Path;

use crate::program::{init, redlock, redlock_until, urls};
use redlock_testkit::{RedisServers, ServerOptions, TlsMaterial};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn tls_with_a_client_certificate() {
    let (trusted, stranger) = (TlsMaterial::new(), TlsMaterial::new());
    let options = ServerOptions {
        tls: Some(trusted.server_files(true)),
        ..ServerOptions::default()
    };
    let servers = RedisServers::start(3, &options).unwrap();
    let urls = urls(&servers);
    let (ca, certificate, key) = (trusted.ca(), trusted.client_certificate(), trusted.client_key());
    let (ca, certificate, key) = (text(&ca), text(&certificate), text(&key));
    init(
        &servers,
        &["--tls-ca", ca, "--tls-cert", certificate, "--tls-key", key],
        &[],
    );
    let shows = |command: &str, ca: &TlsMaterial, client: Option<&TlsMaterial>, code, texts: &[&str]| {
        let ca = ca.ca();
        let client = client.map(|client| (client.client_certificate(), client.client_key()));
        let mut arguments = vec![command, "--masters", &urls, "--tls-ca", text(&ca)];
        if let Some((certificate, key)) = &client {
            arguments.extend(["--tls-cert", text(certificate), "--tls-key", text(key)]);
        }
        redlock_until(&arguments, code, texts);
    };
    shows("doctor", &trusted, Some(&trusted), 0, &["3 of 3 masters vote"]);
    shows("doctor", &trusted, None, 69, &["✗ reachable", "--tls-cert"]);
    shows("doctor", &trusted, Some(&stranger), 69, &["✗ reachable"]);
    shows("status", &stranger, Some(&trusted), 69, &["unreachable"]);
    // The files exist, but are not in PEM format.
    let no_pem = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    redlock(&["status", "--masters", &urls, "--tls-ca", no_pem]).expect(78, &["TLS", "PEM"]);
}
