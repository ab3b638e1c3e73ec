//! Tests that each invalid input is named, with the expected value, and has its exit code.

use std::net::TcpListener;

use crate::fixture::masters;
use crate::program::{Ran, redlock, redlock_with};

const ANY: &str = "redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3";

/// Runs an agent on any free port.
fn agent(arguments: &[&str]) -> Ran {
    let listen = match arguments.contains(&"--listen") {
        true => &[][..],
        false => &["--listen", "127.0.0.1:0"],
    };
    redlock(&[&["agent"], arguments, listen].concat())
}

#[test]
fn unusable_arguments_are_named() {
    for (arguments, code, texts) in [
        (&[][..], 64, &["LOCK"][..]),
        (&["a b"], 64, &["a b", "white space"]),
        (
            &["_reporter/x"],
            64,
            &["_reporter/x", "the locks of redlock itself"],
        ),
        (&["l", "--lease-duration", "15"], 64, &["--lease-duration", "15s"]),
        (&["l", "--stop-grace", "soon"], 64, &["--stop-grace", "soon"]),
        (&["l", "--listen", "4040"], 64, &["--listen", "localhost:PORT"]),
        (&["l", "--identity", "a|b"], 64, &["--identity", "a|b"]),
        (&["l", "--cluster", "a/b/c"], 64, &["--cluster", "a/b/c"]),
        (&["l", "--config", "/nonexistent"], 64, &["--config", "--masters"]),
        (&["l", "--kubeconfig", "x"], 64, &["--kubeconfig"]),
        (
            &["l", "--username", "bob"],
            78,
            &["--username bob", "--password-file", "REDLOCK_PASSWORD"],
        ),
    ] {
        agent(&[arguments, &["--masters", ANY]].concat()).expect(code, texts);
    }
    agent(&["l"]).expect(64, &["no masters given", "REDLOCK_MASTERS"]);
    agent(&["l", "--masters", "redis://a:1,redis://b:1"])
        .expect(78, &["--masters: 2 masters given", "1, 3, 5 or 7"]);
    agent(&["l", "--masters", "redis://a:1,redis://u:hunter2@b:1,redis://c:1"])
        .expect(78, &["m1", "redis://***@b:1"])
        .keeps("hunter2");
    agent(&["l", "--config", "/nonexistent/quorum.yaml"]).expect(78, &["/nonexistent/quorum.yaml"]);
    // With only a part of the identity, no operator would find the agent.
    let half = [("POD_NAMESPACE", "ns"), ("POD_NAME", "web-0"), ("POD_UID", "")];
    redlock_with(&["agent", "l", "--masters", ANY], &half).expect(78, &["POD_UID", "--identity"]);
}

#[test]
fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    agent(&["l", "--identity", "a", "--masters", ANY, "--listen", &address])
        .expect(78, &[&address, "--listen", "give another port"]);
}

#[test]
fn settings_on_the_masters_must_agree_with_the_arguments() {
    let (servers, urls) = masters();
    let started = |more: &[&str], masters: &str| {
        let arguments = ["l", "--identity", "a", "--masters", masters];
        agent(&[&arguments[..], more].concat())
    };
    started(&["--lease-duration", "1s"], &urls).expect(78, &["--lease-duration", "shorter than 2 s"]);
    started(&["--lease-duration", "11s"], &urls).expect(78, &["--lease-duration", "longer than 10 s"]);
    started(&["--stop-grace", "9s"], &urls).expect(78, &["--stop-grace", "9 s"]);
    let more = format!("{urls},redis://127.0.0.1:1,redis://127.0.0.1:2");
    started(&[], &more).expect(78, &["5 urls given", "3 masters"]);
    drop(servers);
}
