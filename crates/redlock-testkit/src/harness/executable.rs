//! Programs that a test writes and runs.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes an executable file.
///
/// A child process writes the file. A process that another thread forks meanwhile has a copy of each open file until its
/// `exec`, and a file that any process has open for writing cannot be executed (`ETXTBSY`).
pub fn write_executable(path: &Path, text: &str) {
    let mut install = Command::new("install")
        .args(["-m", "755", "/dev/stdin"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    install.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let status = install.wait().unwrap();
    assert!(status.success(), "install {}: {status}", path.display());
}
