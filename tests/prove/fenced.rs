//! The resource that refuses smaller tokens, and its page.

use std::fs;
use std::process::{Command, Output};

use crate::common::pages::blocks_for;
use crate::common::{Answer, Resource};
use crate::program::quorum;
use redlock_testkit::{RedisServer, ServerOptions, free_port};

const PAGE: &str = include_str!("../../examples/fenced-resource/README.md");
/// The most runs of a command whose masters answer later than it waits.
const ATTEMPTS: usize = 5;
/// The name of the ledger on the page.
pub const LEDGER: &str = "ledger";

#[test]
fn a_smaller_token_is_refused_for_good() {
    let server = RedisServer::start(&ServerOptions::default()).unwrap();
    let mut resource = Resource::open(&server.url(), LEDGER);
    let answers = [5, 7, 7, 6, 5, 8].map(|token| resource.append(token));
    let [yes, no] = [Answer::Accepted, Answer::Refused];
    assert_eq!(answers, [yes, yes, yes, no, no, yes]);
    assert_eq!(resource.tokens(), [5, 7, 7, 8]);
}

fn ran(script: &str, masters: &str) -> Output {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_redlock"));
    let path = format!(
        "{}:{}",
        program.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    Command::new("sh")
        .args(["-c", script])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("PATH", path)
        .env("REDLOCK_MASTERS", masters)
        .output()
        .unwrap()
}

fn typed(script: &str, masters: &str) -> String {
    let mut output = ran(script, masters);
    for _ in 1..ATTEMPTS {
        if output.status.code() != Some(69) {
            break;
        }
        output = ran(script, masters);
    }
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{script}: {output:?}");
    stdout
}

#[test]
fn the_page_works_as_printed() {
    let blocks = blocks_for("examples/fenced-resource/README.md", "tests/prove/fenced.rs");
    let [by_hand, under_a_lock] = &blocks[..] else {
        panic!("two blocks to type");
    };
    let (by_hand, under_a_lock) = (&by_hand.text, &under_a_lock.text);
    let port = free_port().unwrap().to_string();
    // The server ends in any case.
    let end = "trap 'redis-cli -p 7100 shutdown nosave 2>/dev/null || :' EXIT\n";
    let stdout = typed(&format!("set -e\n{end}{by_hand}").replace("7100", &port), "");
    // On a terminal, types and numbers are printed next to the values; in a pipe, only the values.
    for line in [
        "FENCED token 41 is behind 42",
        "41 the old holder",
        "42 the new one",
    ] {
        assert!(stdout.contains(line), "{stdout}");
        assert!(PAGE.contains(line), "{line} is not what the page shows");
    }
    assert_eq!(stdout.matches("it was frozen").count(), 0, "{stdout}");

    let (_servers, masters) = quorum();
    let server = RedisServer::start(&ServerOptions::default()).unwrap();
    let script = under_a_lock.replace("7100", &server.port().to_string());
    assert_eq!(typed(&script, &masters).trim(), "1");
    let tokens = Resource::open(&server.url(), LEDGER).tokens();
    assert!(tokens.len() == 1 && tokens[0] > 0, "{tokens:?}");
    let _ = fs::remove_file(format!("/tmp/redis-{port}.log"));
}
