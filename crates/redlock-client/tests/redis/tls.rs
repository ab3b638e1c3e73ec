//! Tests `rediss://`: the connections, and the reasons of those that are refused.

use std::{fs, path::Path};

use redlock_client::masters::{ConfigError, Masters, MastersConfig, Secret, Tls};
use redlock_testkit::{
    RedisServers, ServerOptions, TlsMaterial,
    masters::{config, open},
};
use tokio::net::{TcpListener, TcpStream};

fn secret(path: &Path) -> Secret {
    Secret::new(fs::read_to_string(path).unwrap())
}

fn tls(authority: Option<&TlsMaterial>, client: Option<&TlsMaterial>) -> Tls {
    Tls {
        ca: authority.map(|material| secret(&material.ca())),
        client: client.map(|material| {
            (
                secret(&material.client_certificate()),
                secret(&material.client_key()),
            )
        }),
        ..Tls::default()
    }
}

#[tokio::test]
async fn a_connection_needs_the_certificates_of_both_sides() {
    let (trusted, stranger) = (TlsMaterial::new(), TlsMaterial::new());
    let options = ServerOptions {
        tls: Some(trusted.server_files(true)),
        ..ServerOptions::default()
    };
    let servers = RedisServers::start(3, &options).unwrap();
    let with = |tls| MastersConfig {
        tls,
        ..config(&servers)
    };
    let masters = open(&with(tls(Some(&trusted), Some(&trusted))));
    masters.seal(&servers).await;
    let lease = masters.acquire_soon("a/b", "me").await;
    assert!(lease.release().await.unwrap());

    for (tls, reason) in [
        (tls(Some(&stranger), Some(&trusted)), "invalid peer certificate: "),
        (tls(None, Some(&trusted)), "invalid peer certificate: "),
        (tls(Some(&trusted), None), "received fatal alert: "),
        (tls(Some(&trusted), Some(&stranger)), "received fatal alert: "),
    ] {
        let other = open(&with(tls));
        for index in 0..3 {
            let refused =
                |trouble: &str| trouble.starts_with("connection lost: ") && trouble.contains(reason);
            other
                .master(index, reason, |status| {
                    let trouble = status.trouble.as_ref().map(ToString::to_string);
                    !status.votes() && trouble.is_some_and(|trouble| refused(&trouble))
                })
                .await;
        }
    }
}

#[tokio::test]
async fn the_name_of_a_server_is_checked() {
    let material = TlsMaterial::new();
    let options = ServerOptions {
        tls: Some(material.server_files(false)),
        ..ServerOptions::default()
    };
    let servers = RedisServers::start(3, &options).unwrap();
    let mut config = MastersConfig {
        tls: tls(Some(&material), None),
        ..config(&servers)
    };
    // The certificate names localhost and 127.0.0.1.
    config.masters[0].url = format!("rediss://localhost:{}", servers[0].port());
    let elsewhere = TcpListener::bind("127.0.0.2:0").await.unwrap();
    config.masters[1].url = format!("rediss://{}", elsewhere.local_addr().unwrap());
    let port = servers[1].port();
    let forwarding = tokio::spawn(async move {
        loop {
            let (mut client, _) = elsewhere.accept().await.unwrap();
            let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        }
    });
    let masters = open(&config);
    for index in [0, 2] {
        masters.master(index, "answers", |status| status.answers()).await;
    }
    masters
        .master(1, "is refused", |status| {
            let trouble = status.trouble.as_ref().map(ToString::to_string);
            trouble.is_some_and(|trouble| trouble.contains("certificate not valid for name \"127.0.0.2\""))
        })
        .await;
    forwarding.abort();
}

#[tokio::test]
async fn texts_without_certificates_and_urls_without_a_check_are_refused() {
    let material = TlsMaterial::new();
    let config = |url: &str, tls| {
        let urls = (1..=3).map(|port| format!("rediss://127.0.0.1:{port}{url}"));
        MastersConfig {
            tls,
            ..MastersConfig::new(urls)
        }
    };
    let none = Secret::new("no PEM".into());
    let ca = secret(&material.ca());
    let key = secret(&material.client_key());
    for (client, authority, text) in [
        (
            None,
            none.clone(),
            "the authority's certificate: the PEM text contains no certificate",
        ),
        (
            Some((none.clone(), key)),
            ca.clone(),
            "the client's certificate: the PEM text contains no certificate",
        ),
        (
            Some((secret(&material.client_certificate()), none)),
            ca,
            "the client's key: ",
        ),
    ] {
        let tls = Tls {
            ca: Some(authority),
            client,
            ..Tls::default()
        };
        let error = Masters::check(&config("", tls)).unwrap_err();
        assert!(
            matches!(error, ConfigError::Tls(_)) && error.to_string().contains(text),
            "{error}"
        );
    }
    let insecure = Masters::check(&config("/#insecure", Tls::default())).unwrap_err();
    assert!(matches!(insecure, ConfigError::Url { .. }), "{insecure}");
}
