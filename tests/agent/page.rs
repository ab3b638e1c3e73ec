//! What docs/agent.md prints works as printed.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::common::eventually_blocking;
use crate::fixture::{BOUND, masters};

const END: &str = "the line has ended";

/// Somebody who types.
struct Shell {
    child: Child,
    keys: ChildStdin,
    screen: Lines<BufReader<ChildStdout>>,
}

impl Shell {
    fn start(masters: &str) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_redlock")).parent().unwrap();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        let mut child = Command::new("bash")
            .env("PATH", path)
            .env("REDLOCK_MASTERS", masters)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            keys: child.stdin.take().unwrap(),
            screen: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
        }
    }

    /// What a line prints.
    fn types(&mut self, line: &str) -> String {
        writeln!(self.keys, "{line}\necho; echo '{END}'").unwrap();
        let printed = self.screen.by_ref().map(Result::unwrap);
        printed
            .take_while(|line| line != END)
            .collect::<Vec<_>>()
            .join("\n")
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = writeln!(self.keys, "kill %1 %2; exit");
        let _ = self.child.wait();
    }
}

#[test]
fn the_commands_of_the_page_can_be_typed() {
    let curl = Command::new("curl").arg("--version").output();
    assert!(curl.is_ok(), "curl is missing: install the package curl");
    let (_servers, urls) = masters();
    let page = std::fs::read_to_string("docs/agent.md").unwrap();
    let (_, rest) = page.split_once("```sh\n").unwrap();
    let (block, _) = rest.split_once("```").unwrap();
    let lines: Vec<&str> = block.lines().collect();
    assert_eq!(lines.len(), 7, "{lines:?}");
    let mut shell = Shell::start(&urls);
    let mut typed = |line: &str, wanted: &str| {
        eventually_blocking(BOUND, line, || {
            let said = shell.types(line);
            said.contains(wanted).then_some(()).ok_or(said)
        });
    };
    typed(lines[0], "");
    // As fast as somebody types, who sees the first begin.
    typed(lines[2], "\"role\":\"Active\"");
    typed(lines[1], "");
    typed(lines[3], "{\"name\":\"one\"}");
    typed(lines[4], "\"role\":\"Standby\"");
    typed(lines[5], "\"role\":\"Active\",\"holder\":\"two\"");
    typed(lines[6], "");
}
