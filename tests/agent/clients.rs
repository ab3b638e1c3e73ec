//! Tests the clients of `examples/agent/clients`, each in its language: they act until the deadline of the last answer.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::common::programs::is_there_or_report;
use crate::fixture::{Agent, BOUND, masters};
use redlock_testkit::{ChildGuard, eventually_blocking};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/agent/clients");
/// An answer arrives this late, within the time-out of the clients.
const DELAY: Duration = Duration::from_millis(800);
/// With the margin of the clients, a deadline that counts from the arrival of an answer would allow a second act.
const VALID: u64 = 1_500;

/// Returns the command of a client; `None` where its language is not installed.
fn client(language: &str, folder: &Path) -> Option<Command> {
    let (program, arguments): (&str, &[&str]) = match language {
        "Python" => ("python3", &["client.py"]),
        "JavaScript" => ("node", &["client.mjs"]),
        "Java" => ("java", &["Client.java"]),
        _ => ("go", &[]),
    };
    if !is_there_or_report(program, &format!("the client in {language}")) {
        return None;
    }
    if language != "Go" {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(FOLDER);
        return Some(command);
    }
    let binary = folder.join("client");
    let mut build = Command::new("go");
    build
        .args(["build", "-o"])
        .arg(&binary)
        .arg("client.go")
        .env("CGO_ENABLED", "0")
        .current_dir(FOLDER);
    assert!(build.status().unwrap().success());
    Some(Command::new(binary))
}

/// Reads the head of a request.
fn request(mut stream: &TcpStream) -> bool {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.extend(byte),
            _ => return false,
        }
    }
    true
}

/// An agent whose answers are late, and that then leaves a request without an answer. The number of the round is the token.
fn late_agent() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for token in 1.. {
            let Ok((mut stream, _)) = listener.accept() else {
                return;
            };
            if !request(&stream) {
                continue;
            }
            thread::sleep(DELAY);
            let body = format!(r#"{{"role":"Active","token":{token},"validForMilliseconds":{VALID}}}"#);
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
            drop(stream);
            let Ok((silent, _)) = listener.accept() else {
                return;
            };
            // Ends when the client gives up.
            while request(&silent) {}
        }
    });
    port
}

fn acts(child: &ChildGuard) -> BTreeMap<u64, usize> {
    let mut acts = BTreeMap::new();
    for line in child.stdout() {
        let token = line
            .strip_prefix("act ")
            .expect("act TOKEN")
            .parse()
            .expect("a token");
        *acts.entry(token).or_default() += 1;
    }
    acts
}

fn acts_until_its_deadline(language: &str) {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut command) = client(language, folder.path()) else {
        return;
    };
    command.arg(format!("http://127.0.0.1:{}", late_agent()));
    let child = ChildGuard::spawn(language, &mut command);
    // A busy machine may let a client be late for the deadline of a round.
    let seen = eventually_blocking(BOUND, &format!("{language} acts in two rounds"), || {
        let acts = acts(&child);
        if acts.len() >= 2 {
            Ok(acts)
        } else {
            Err((acts, child.stderr()))
        }
    });
    for (token, acts) in seen {
        assert_eq!(acts, 1, "{language} acted {acts} times under token {token}");
    }
}

#[test]
fn python_acts_until_its_deadline() {
    acts_until_its_deadline("Python");
}

#[test]
fn java_script_acts_until_its_deadline() {
    acts_until_its_deadline("JavaScript");
}

#[test]
fn java_acts_until_its_deadline() {
    acts_until_its_deadline("Java");
}

#[test]
fn go_acts_until_its_deadline() {
    acts_until_its_deadline("Go");
}

#[test]
fn clients_act_beside_the_active_agent_alone() {
    let (_servers, urls) = masters();
    let folder = tempfile::tempdir().unwrap();
    let one = Agent::start("one", &urls);
    let token = one.wait_active();
    let two = Agent::start("two", &urls);
    two.wait_knows("one");
    for language in ["Python", "JavaScript", "Java", "Go"] {
        let beside = |agent: &Agent| {
            let mut command = client(language, folder.path())?;
            command.arg(format!("http://127.0.0.1:{}", agent.port));
            Some(ChildGuard::spawn(language, &mut command))
        };
        let (Some(standby), Some(active)) = (beside(&two), beside(&one)) else {
            continue;
        };
        eventually_blocking(BOUND, &format!("{language} acts"), || {
            let acts = acts(&active);
            if acts.contains_key(&token) {
                Ok(())
            } else {
                Err((acts, active.stderr()))
            }
        });
        assert_eq!(acts(&standby), BTreeMap::new(), "{language}");
    }
}
