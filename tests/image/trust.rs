//! Tests that TLS uses the CA bundle of the image when no other CA is named.

use std::fs;

use crate::container::{Container, text_of};
use crate::replica::servers_with;
use redlock_testkit::{ServerOptions, TlsMaterial};

const BUNDLE: &str = "etc/ssl/certs/ca-certificates.crt";

#[test]
#[ignore = "builds the image: `make test-image`"]
fn servers_are_trusted_by_the_bundle() {
    let material = TlsMaterial::new();
    let tls = Some(material.server_files(false));
    let servers = servers_with(
        3,
        &ServerOptions {
            tls,
            ..ServerOptions::default()
        },
    );
    let urls: Vec<String> = servers.iter().map(|server| server.url()).collect();
    let init = ["init", "--masters", &urls.join(",")];

    let container = Container::new();
    let bundle = fs::read_to_string(container.path(BUNDLE)).unwrap();
    assert!(
        bundle.matches("BEGIN CERTIFICATE").count() > 50,
        "the CAs of the world"
    );
    let output = container.run(&init);
    assert!(!output.status.success(), "a CA that is not in the bundle");
    assert!(text_of(&output).contains("UnknownIssuer"), "{}", text_of(&output));

    let ca = fs::read_to_string(material.ca()).unwrap();
    container.write(BUNDLE, &format!("{bundle}\n{ca}"));
    let output = container.run(&init);
    assert!(output.status.success(), "{}", text_of(&output));
}
