//! Runs `promtool` on rules, cases and metrics.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::common::tools;

/// Runs `promtool` in the folder of the repository. Returns its output; panics with it if `promtool` fails.
pub fn promtool(arguments: &[&str], input: &str) -> String {
    let mut child = Command::new(tools::promtool())
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // `promtool` may end before it has read all its input: its output then shows the reason.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    assert!(output.status.success(), "promtool {arguments:?}: {text}");
    text
}
