//! Tests `rediss://` with a CA and a client certificate.

use std::path::Path;

use crate::program::{redlock, urls};
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
    let run = |command: &str, ca: &TlsMaterial, client: Option<&TlsMaterial>| {
        let ca = ca.ca();
        let client = client.map(|client| (client.client_certificate(), client.client_key()));
        let mut arguments = vec![command, "--masters", &urls, "--tls-ca", text(&ca)];
        if let Some((certificate, key)) = &client {
            arguments.extend(["--tls-cert", text(certificate), "--tls-key", text(key)]);
        }
        redlock(&arguments)
    };
    run("init", &trusted, Some(&trusted)).expect(0, &["all 3 masters vote"]);
    run("doctor", &trusted, Some(&trusted)).expect(0, &["3 of 3 masters vote"]);
    run("doctor", &trusted, None).expect(69, &["✗ reachable", "--tls-cert"]);
    run("doctor", &trusted, Some(&stranger)).expect(69, &["✗ reachable"]);
    run("status", &stranger, Some(&trusted)).expect(69, &["unreachable"]);
    // The files exist, but are not in PEM format.
    let no_pem = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    redlock(&["status", "--masters", &urls, "--tls-ca", no_pem]).expect(78, &["TLS", "PEM"]);
}
