//! Tests that bad input gets a clear message and an exit code, no panic, and shows no secret.

use std::fs::File;
use std::process::{Command, Stdio};

use crate::program::{redlock, redlock_with};

/// A problem of a kubeconfig is reported before any request.
#[test]
fn a_kubeconfig_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let broken = file("broken", "{");
    let empty = file("empty", "{apiVersion: v1, kind: Config}");
    let away = file(
        "away",
        "{apiVersion: v1, kind: Config, current-context: here, contexts: [{name: here, context: {cluster: c, user: u}}], \
         clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {}}]}",
    );
    for command in [
        &["status"][..],
        &["doctor"],
        &["break", "l", "--yes", "--reason", "x"],
        &["hand-over", "l", "--to", "us-1"],
        &["drain", "--deployment", "redlock-operator"],
        &["init", "--quorum", "q"],
        &["reseal", "--accept-loss", "--quorum", "q"],
    ] {
        let with = |more: &[&str]| redlock(&[command, more].concat());
        with(&["--kubeconfig", "/nonexistent/config"])
            .expect(78, &["kubeconfig: /nonexistent/config cannot be read"]);
        with(&["--kubeconfig", &broken]).expect(78, &["kubeconfig: ", "--kubeconfig FILE"]);
        with(&["--kubeconfig", &empty]).expect(78, &["no current context", "--context"]);
        with(&["--kubeconfig", &away, "--context", "there"])
            .expect(78, &["--context \"there\"", "it has: here"]);
        with(&["--kubeconfig", &away]).expect(78, &["the API server cannot be reached", "onnection refused"]);
        with(&["--kubeconfig", &away, "--masters", "redis://a:1"]).expect(64, &["--masters"]);
        redlock_with(command, &[("KUBECONFIG", "/nonexistent/other")]).expect(78, &["/nonexistent/other"]);
    }
    redlock(&["status", "a/b", "--kubeconfig", &away])
        .expect(64, &["\"a/b\" is not the name of a LeaderLock", "--namespace"]);
    redlock(&["hand-over", "l", "--to", "x", "--masters", "redis://a:1"]).expect(64, &["only the holder"]);
    redlock(&["hand-over", "l", "--to", "x"]).expect(64, &["no masters given", "--kubeconfig FILE"]);
}

#[test]
fn invalid_files_of_the_operator_are_named() {
    redlock(&["operator", "--quorums-file", "/nowhere/quorums.yaml"]).expect(
        78,
        &[
            "--quorums-file /nowhere/quorums.yaml",
            "give a readable file",
            "No such file",
        ],
    );
    for secret in ["masters", "/masters", "redlock/"] {
        let ran = redlock(&["operator", "--new-password-secret", secret]);
        ran.expect(64, &["--new-password-secret", "write NAMESPACE/NAME"]);
    }
    let both = ["operator", "--standalone", ".", "--quorums-file", "x"];
    redlock(&both).expect(64, &["--quorums-file", "--standalone"]);
}

const COMMANDS: [&[&str]; 5] = [
    &["status"],
    &["doctor"],
    &["break", "l", "--yes", "--reason", "x"],
    &["init"],
    &["reseal", "--accept-loss"],
];

/// The value of `--masters`, the exit code, and what the message shows.
const INVALID_MASTERS: &[(&str, i32, &[&str])] = &[
    (",", 78, &["--masters: 0 masters given", "3, 5 or 7"]),
    ("redis://a:1,redis://b:1", 78, &["2 masters given", "3, 5 or 7"]),
    (
        "redis://a:1,redis://b:1,redis://a:1/",
        78,
        &["m0 and m2", "same server", "a:1"],
    ),
    (
        "http://a:1,redis://b:1,redis://c:1",
        78,
        &["m0", "http://a:1", "has the scheme", "redis://HOST[:PORT]"],
    ),
    (
        "redis://a:1,nonsense,redis://c:1",
        78,
        &["m1", "nonsense", "redis://HOST[:PORT]"],
    ),
    (
        "redis://a:1,redis://b:99999,redis://c:1",
        78,
        &["m1", "redis://b:99999"],
    ),
    (
        "redis://a:1,redis://b:1?db=2,redis://c:1",
        78,
        &["m1", "redis://b:1?***", "after \"?\" or \"#\""],
    ),
    (
        "redis://a:1,rediss://b:1#insecure,redis://c:1",
        78,
        &["m1", "after \"?\" or \"#\""],
    ),
    (
        "redis://a:1,redis://b:1?password=hunter2,redis://c:1",
        78,
        &["m1", "redis://b:1?***"],
    ),
    (
        "redis://a:1,redis://[::ffff:127.0.0.1]:1,redis://c:1",
        78,
        &["m1", "IPv4-mapped IPv6 address"],
    ),
    (
        "redis://a:1,redis://A.:1/1,redis://c:1",
        78,
        &["m0 and m1", "same server"],
    ),
    (
        "redis://a:1,redis://u:hunter2@b:1,redis://c:1",
        78,
        &["m1", "redis://***@b:1", "password"],
    ),
];

#[test]
fn invalid_masters_are_named() {
    for command in COMMANDS {
        for (masters, code, texts) in INVALID_MASTERS {
            let arguments: Vec<&str> = command.iter().copied().chain(["--masters", masters]).collect();
            redlock(&arguments).expect(*code, texts).keeps("hunter2");
        }
        let arguments: Vec<&str> = command.to_vec();
        redlock(&arguments).expect(64, &["--masters"]);
    }
}

#[test]
fn invalid_locks_and_formats_are_named() {
    let masters = ["--masters", "redis://a:1,redis://b:1,redis://c:1"];
    for (arguments, texts) in [
        (&["status", "a b"][..], &["a b", "white space"][..]),
        (&["break", "a|b"], &["a|b"]),
        (&["break", ""], &["lock name"]),
        (&["status", "-o", "yaml"], &["yaml", "table", "json"]),
        (&["init", "--max-lease-duration", "60"], &["60", "15s"]),
        (&["status", "--tls-cert", "x"], &["--tls-key"]),
        (
            &["status", "--key-prefix", "a*"],
            &["a*", "--key-prefix", "letters"],
        ),
    ] {
        let arguments: Vec<&str> = arguments.iter().copied().chain(masters).collect();
        redlock(&arguments).expect(64, texts);
    }
    let arguments = ["status", "--tls-ca", "/nonexistent/ca"]
        .into_iter()
        .chain(masters);
    redlock(&arguments.collect::<Vec<_>>()).expect(78, &["--tls-ca /nonexistent/ca: cannot be read"]);
    let arguments = ["status", "--username", "bob"].into_iter().chain(masters);
    redlock(&arguments.collect::<Vec<_>>())
        .expect(78, &["--username bob", "--password-file", "REDLOCK_PASSWORD"]);
}

#[test]
fn file_without_a_quorum_is_reported() {
    let locks = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/standalone/locks.yaml");
    redlock(&["status", "--config", locks]).expect(
        78,
        &["locks.yaml contains no usable RedisQuorum: no RedisQuorum is declared"],
    );
    redlock(&["status", "--config", locks, "--key-prefix", "x"]).expect(64, &["--key-prefix", "--config"]);
}

/// A closed pipe is a normal end; a full disk loses output.
#[test]
fn failed_write_has_its_exit_code() {
    let program = env!("CARGO_BIN_EXE_redlock");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    for (out, code) in [
        (Stdio::from(writer), 0),
        (
            Stdio::from(File::options().write(true).open("/dev/full").unwrap()),
            70,
        ),
    ] {
        let output = Command::new(program).arg("crd").stdout(out).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

#[test]
fn operator_without_an_api_server_names_the_sources_that_it_tried() {
    let listen = ["operator", "--listen", "127.0.0.1:0"];
    redlock_with(&listen, &[("KUBECONFIG", "/nonexistent/config")]).expect(
        78,
        &[
            "finding the API server",
            "/nonexistent/config",
            "--standalone DIR",
        ],
    );
    redlock(&[&listen[..], &["--cluster", "eu-1/uid"]].concat())
        .expect(78, &["kube-system", "give --cluster eu-1"]);
    redlock(&[&listen[..], &["--pod-selector", "app=redlock"]].concat()).expect(78, &["POD_NAMESPACE"]);
}
