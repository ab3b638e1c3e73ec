//! Tests the rule for absent input: an empty flag or variable counts as absent, and a message names the source that the user wrote.

use std::fs;

use crate::program::{Ran, redlock, redlock_with};

/// Two masters are no quorum: each command ends before it asks one.
const TWO: &str = "redis://127.0.0.1:1,redis://127.0.0.1:2";
/// Read by no flag.
const WITHOUT_FLAG: [&str; 9] = [
    "REDLOCK_PASSWORD",
    "REDLOCK_MASTERS",
    "REDLOCK_TRACE",
    "RUST_LOG",
    "KUBECONFIG",
    "POD_NAMESPACE",
    "POD_NAME",
    "POD_UID",
    "SHELL",
];

const COMMANDS: [&[&str]; 7] = [
    &["status", "--masters", TWO],
    &["doctor", "--masters", TWO],
    &["run", "l", "--masters", TWO, "--", "true"],
    &["agent", "l", "--masters", TWO],
    &["operator", "--standalone", "/nonexistent"],
    &[
        "node-agent",
        "--node-name",
        "n",
        "--password-file",
        "/nonexistent",
    ],
    &["drain", "--deployment", "d", "--kubeconfig", "/nonexistent"],
];

fn sorted(names: &[String]) -> Vec<&String> {
    let mut names: Vec<&String> = names.iter().collect();
    names.sort();
    names
}

/// Returns the variables that the help of a command names.
fn variables(command: &str) -> Vec<String> {
    let help = redlock(&[command, "--help"]).stdout;
    let named = help.split("[env: ").skip(1);
    let mut names: Vec<String> = named
        .map(|text| text.split(['=', ']']).next().unwrap().to_owned())
        .collect();
    names.extend(WITHOUT_FLAG.map(str::to_owned));
    names
}

/// Returns what a command wrote without the lines that report empty input, and the flags and variables of these lines.
fn reported(ran: &Ran) -> (String, Vec<String>) {
    let name = |line: &str| {
        let name = line
            .strip_prefix("redlock: ")?
            .strip_suffix(" is empty and counts as absent")?;
        Some(name.to_owned())
    };
    let (reports, others): (Vec<&str>, Vec<&str>) = ran.stderr.lines().partition(|line| name(line).is_some());
    (others.join("\n"), reports.into_iter().filter_map(name).collect())
}

#[test]
fn empty_variable_is_an_absent_one() {
    for arguments in COMMANDS {
        let absent = redlock(arguments);
        assert_eq!(absent.code, Some(78), "{absent:#?}");
        let names = variables(arguments[0]);
        for value in ["", " \n"] {
            let empty: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), value)).collect();
            let ran = redlock_with(arguments, &empty);
            let (others, reports) = reported(&ran);
            assert_eq!(
                (ran.code, &others),
                (absent.code, &absent.stderr),
                "{names:?}: {ran:#?}"
            );
            let read_by_flags = &names[..names.len() - WITHOUT_FLAG.len()];
            assert_eq!(sorted(&reports), sorted(read_by_flags), "{ran:#?}");
            let files = fs::read_dir(".").unwrap().map(|entry| entry.unwrap().file_name());
            let traces: Vec<_> = files
                .filter(|name| name.to_string_lossy().starts_with(' '))
                .collect();
            assert!(traces.is_empty(), "{arguments:?} wrote {traces:?}");
        }
    }
}

#[test]
fn empty_flag_is_an_absent_one() {
    let absent = redlock(COMMANDS[0]);
    for flag in [
        "--username",
        "--password-file",
        "--tls-ca",
        "--tls-cert",
        "--tls-key",
        "--cluster",
        "--key-prefix",
    ] {
        for empty in [&[flag, ""][..], &[&format!("{flag}=")], &[flag, " "]] {
            let ran = redlock(&[COMMANDS[0], empty].concat());
            let (others, reports) = reported(&ran);
            assert_eq!((ran.code, &others), (absent.code, &absent.stderr), "{ran:#?}");
            assert_eq!(reports, [flag], "{ran:#?}");
        }
    }
    redlock(&["status", "--masters", ""]).expect(64, &["no masters given"]);
    redlock(&["break", "", "--masters", TWO]).expect(64, &["lock name"]);
}

#[test]
fn variable_is_named_where_its_value_is_wrong() {
    let with = |variable: &str, value: &str| redlock_with(COMMANDS[0], &[(variable, value)]);
    for (variable, value, code, flag) in [
        ("REDLOCK_TLS_CA", "/nonexistent/ca", 78, "--tls-ca"),
        (
            "REDLOCK_PASSWORD_FILE",
            "/nonexistent/password",
            78,
            "--password-file",
        ),
        ("REDLOCK_USERNAME", "bob", 78, "--username"),
        ("REDLOCK_CLUSTER", "a b", 64, "--cluster"),
        ("REDLOCK_KEY_PREFIX", "a*", 64, "--key-prefix"),
    ] {
        let ran = with(variable, value);
        ran.expect(code, &[variable, value]);
        assert!(!ran.shows(flag), "{ran:#?}");
    }
    let cert = with("REDLOCK_TLS_CERT", "/nonexistent/cert");
    cert.expect(64, &["--tls-key", "REDLOCK_TLS_KEY"]);
    // A flag wins over its variable, and is the source.
    let flag = [COMMANDS[0], &["--cluster", "c d"]].concat();
    let ran = redlock_with(&flag, &[("REDLOCK_CLUSTER", "a b")]);
    assert!(
        ran.expect(64, &["--cluster", "c d"])
            .stderr
            .find("REDLOCK_CLUSTER")
            .is_none(),
        "{ran:#?}"
    );
    redlock_with(&["node-agent"], &[("NODE_NAME", "")]).expect(64, &["--node-name", "NODE_NAME"]);
    let folder = redlock_with(
        &["operator", "--standalone", "/nonexistent"],
        &[("REDLOCK_QUORUMS_FILE", "/q")],
    );
    folder.expect(64, &["REDLOCK_QUORUMS_FILE", "--standalone"]);
    let config = ["status", "--config", "/nonexistent"];
    redlock_with(&config, &[("REDLOCK_KEY_PREFIX", "p")]).expect(64, &["REDLOCK_KEY_PREFIX", "--config"]);
}

#[test]
fn surroundings_of_a_secret_are_no_part_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let with = |more: &[&str]| -> Ran { redlock(&[COMMANDS[0], more].concat()) };
    let two = "2 masters given";
    for (name, text) in [("plain", "p"), ("line", "p\r\n"), ("mark", "\u{feff}p\n")] {
        let path = file(name, text.as_bytes());
        with(&["--username", "bob", "--password-file", &path]).expect(78, &[two]);
    }
    for (name, text) in [("nothing", ""), ("blank", " \n"), ("mark alone", "\u{feff}")] {
        let path = file(name, text.as_bytes());
        with(&["--username", "bob", "--password-file", &path])
            .expect(78, &["--username bob", &path, "is empty"]);
        with(&["--password-file", &path, "--tls-ca", &path]).expect(78, &[two]);
        let key = file("key", b"k");
        with(&["--tls-cert", &path, "--tls-key", &key]).expect(78, &["--tls-cert", "is empty", "--tls-key"]);
    }
    // As the `>` of PowerShell writes it.
    let wide: Vec<u8> = "\u{feff}p\r\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    with(&["--password-file", &file("wide", &wide)]).expect(78, &["--password-file", "is not text in UTF-8"]);
    let ran = redlock_with(
        COMMANDS[0],
        &[("REDLOCK_PASSWORD", "p\n"), ("REDLOCK_USERNAME", "bob\n")],
    );
    ran.expect(78, &[two]);
}
