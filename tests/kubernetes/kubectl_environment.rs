//! Tests that commands reach the API server in every environment in which kubectl does: both run beside each other.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use kube::config::Kubeconfig;

use crate::world::World;

/// A name that only the proxy resolves.
const NAME: &str = "kubernetes.test";

/// A proxy for HTTP (CONNECT) and for SOCKS 5, which connects each client to this machine. Records the requested hosts.
struct Gateway {
    port: u16,
    requested: Arc<Mutex<Vec<String>>>,
}

impl Gateway {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requested = Arc::new(Mutex::new(Vec::new()));
        let of_thread = requested.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let requested = of_thread.clone();
                thread::spawn(move || carry(client, &requested));
            }
        });
        Self { port, requested }
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.requested.lock().unwrap())
    }
}

fn carry(mut client: TcpStream, requested: &Mutex<Vec<String>>) -> io::Result<()> {
    let mut first = [0];
    client.read_exact(&mut first)?;
    let (host, port) = match first {
        [5] => socks_request(&mut client)?,
        _ => http_request(&mut client)?,
    };
    requested.lock().unwrap().push(host);
    let mut server = TcpStream::connect(("127.0.0.1", port))?;
    match first {
        [5] => client.write_all(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 0])?,
        _ => client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?,
    }
    let (mut back, mut from) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || io::copy(&mut from, &mut back));
    io::copy(&mut client, &mut server)?;
    server.shutdown(std::net::Shutdown::Write)
}

/// Reads `CONNECT HOST:PORT HTTP/1.1` and the headers; the first byte was read.
fn http_request(client: &mut TcpStream) -> io::Result<(String, u16)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let authority = head.split(' ').nth(1).unwrap_or_default();
    let (host, port) = authority.rsplit_once(':').unwrap_or_default();
    let authorized = head.to_lowercase().contains("proxy-authorization: basic dtpw");
    let user = if authorized { "u@" } else { "" };
    Ok((format!("{user}{host}"), port.parse().unwrap_or(0)))
}

fn socks_request(client: &mut TcpStream) -> io::Result<(String, u16)> {
    let read = |client: &mut TcpStream, length: usize| {
        let mut bytes = vec![0; length];
        client.read_exact(&mut bytes).map(|()| bytes)
    };
    let methods = read(client, 1)?[0];
    read(client, methods.into())?;
    client.write_all(&[5, 0])?;
    let head = read(client, 4)?;
    let host = match head[3] {
        3 => {
            let length = read(client, 1)?[0];
            String::from_utf8_lossy(&read(client, length.into())?).into_owned()
        }
        _ => format!("{:?}", read(client, 4)?),
    };
    let port = read(client, 2)?;
    Ok((host, u16::from_be_bytes([port[0], port[1]])))
}

/// A kubeconfig whose server has this url, behind this proxy.
fn kubeconfig(world: &World, folder: &Path, server: &str, proxy: Option<&str>) -> PathBuf {
    let mut config = Kubeconfig::read_from(world.plane.kubeconfig_admin()).unwrap();
    let cluster = config.clusters[0].cluster.as_mut().unwrap();
    cluster.server = Some(server.to_owned());
    cluster.tls_server_name = Some("localhost".into());
    cluster.proxy_url = proxy.map(str::to_owned);
    let file = folder.join("config");
    std::fs::write(&file, serde_json::to_string(&config).unwrap()).unwrap();
    file
}

/// Runs a program with these variables and no other ones of a proxy; returns whether it reached the API server.
fn reaches(mut command: Command, variables: &[(&str, &str)]) -> (bool, String) {
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    crate::common::forget_variables(&mut command);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (
        // A context that kubectl does not find is no answer of the server.
        text.contains("(NotFound)") || text.contains("there is no LeaderLock"),
        text,
    )
}

/// The server of a kubeconfig, its `proxy-url`, and the variables of the process.
type ProxyCase<'a> = (&'a str, Option<&'a str>, &'a [(&'a str, &'a str)]);

#[tokio::test(flavor = "multi_thread")]
async fn proxies_are_those_of_kubectl() {
    let world = World::small(0).await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start();
    let port = world.plane.port();
    let named = format!("https://{NAME}:{port}");
    let local = format!("https://127.0.0.1:{port}");
    let (http, bare) = (
        format!("http://127.0.0.1:{}", gateway.port),
        format!("127.0.0.1:{}", gateway.port),
    );
    let (socks, user) = (format!("socks5://{bare}"), format!("http://u:p%40ss@{bare}"));
    let away = "http://127.0.0.1:1";
    let cases: [ProxyCase<'_>; 14] = [
        (&named, None, &[]),
        (&named, None, &[("HTTPS_PROXY", &http)]),
        (&named, None, &[("https_proxy", &bare)]),
        (&named, None, &[("HTTPS_PROXY", &socks)]),
        (&named, None, &[("HTTPS_PROXY", &user)]),
        (&named, None, &[("HTTP_PROXY", &http)]),
        (&named, None, &[("HTTPS_PROXY", &http), ("NO_PROXY", ".test")]),
        (&named, None, &[("HTTPS_PROXY", &http), ("no_proxy", NAME)]),
        (
            &named,
            None,
            &[("HTTPS_PROXY", &http), ("NO_PROXY", "example.test,127.0.0.1,,")],
        ),
        (&named, Some(&http), &[("HTTPS_PROXY", away), ("NO_PROXY", "*")]),
        (&named, Some(&socks), &[]),
        (&named, Some(&user), &[("NO_PROXY", NAME)]),
        (&local, None, &[("HTTPS_PROXY", away)]),
        (&local, Some(away), &[]),
    ];
    for (server, proxy, variables) in cases {
        let file = kubeconfig(&world, folder.path(), server, proxy);
        let mut kubectl = world.plane.kubectl_command(&file);
        kubectl.args(["get", "leaderlock", "nothing", "--request-timeout=20s"]);
        let (reached, text) = reaches(kubectl, variables);
        let expected = (reached, gateway.take().pop());
        let mut redlock = Command::new(env!("CARGO_BIN_EXE_redlock"));
        redlock.args(["status", "nothing"]).env("KUBECONFIG", &file);
        let (reached, own) = reaches(redlock, variables);
        let found = (reached, gateway.take().pop());
        println!("{server} {proxy:?} {variables:?}: {expected:?}");
        assert_eq!(
            found, expected,
            "{server} {proxy:?} {variables:?}\nkubectl: {text}\nredlock: {own}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_those_of_kubectl() {
    let world = World::small(0).await;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let whole = std::fs::read_to_string(world.plane.kubeconfig_admin()).unwrap();
    let mut parts: serde_json::Value = serde_json::from_str(&whole).unwrap();
    let users = parts["users"].take();
    let users =
        serde_json::json!({"apiVersion": "v1", "kind": "Config", "users": users, "current-context": ""});
    parts["users"] = serde_json::json!([]);
    parts["contexts"][0]["context"]["namespace"] = "".into();
    for (name, content) in [
        ("whole", whole),
        ("users", users.to_string()),
        ("rest", parts.to_string()),
    ] {
        std::fs::write(path(name), content).unwrap();
    }
    let list = |names: &[&str]| {
        let paths = names.iter().map(|name| path(name));
        std::env::join_paths(paths).unwrap().into_string().unwrap()
    };
    for (variable, context) in [
        (list(&["whole"]), None),
        (format!(":{}:", list(&["whole"])), None),
        (list(&["missing", "whole"]), None),
        (list(&["users", "rest"]), None),
        (list(&["whole"]), Some("")),
        (list(&["whole"]), Some("there")),
        (list(&["users"]), None),
    ] {
        let context: Vec<String> = context
            .map(|name| format!("--context={name}"))
            .into_iter()
            .collect();
        let mut kubectl = world.plane.kubectl_command(Path::new(&variable));
        kubectl.args(["get", "leaderlock", "nothing"]).args(&context);
        let expected = reaches(kubectl, &[]);
        let mut redlock = Command::new(env!("CARGO_BIN_EXE_redlock"));
        redlock
            .args(["status", "nothing"])
            .args(&context)
            .env("KUBECONFIG", &variable);
        let found = reaches(redlock, &[]);
        assert_eq!(
            found.0, expected.0,
            "{variable} {context:?}\nkubectl: {}\nredlock: {}",
            expected.1, found.1
        );
    }
}
