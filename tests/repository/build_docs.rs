//! Tests `scripts/build-docs` with an mdBook and installers that record their arguments.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use super::programs::Programs;
use super::source::ROOT;

const USED: [&str; 13] = [
    "bash", "sh", "awk", "cat", "cp", "dirname", "find", "mkdir", "mktemp", "mv", "rm", "sed", "chmod",
];
/// Replaces Mermaid: npm fetches nothing, tar unpacks an empty file, and its hash is the expected one.
const MERMAID: [(&str, &str); 3] = [
    ("npm", "echo \"npm $*\" >>\"$RECORD\""),
    (
        "tar",
        "mkdir -p \"$4/package/dist\" && : >\"$4/package/dist/mermaid.min.js\"",
    ),
    ("sha256sum", "cat >/dev/null"),
];
/// Creates a program that lists its source, where pip and cargo install mdBook.
const INSTALL: &str = "
echo \"${0##*/} $*\" >>\"$RECORD\"
while [ $# -gt 1 ] && [ \"$1\" != --target ] && [ \"$1\" != --root ]; do shift; done
mkdir -p \"$2/bin\" && printf '#!/bin/sh\\ncat target/book/source/SUMMARY.md\\n' >\"$2/bin/mdbook\" && chmod +x \"$2/bin/mdbook\"";

/// A copy of the files that the script reads, since it writes below its repository.
struct Repository {
    programs: Programs,
    folder: tempfile::TempDir,
}

impl Repository {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let top = Command::new("sh")
            .args([
                "-c",
                "cp -r *.md LICENSE book.toml docs examples krew charts scripts \"$0\" && mkdir -p \"$0/crates\" \"$0/tests/run\" && \
                 cp -r crates/redlock-client \"$0/crates\" && cp tests/run/old_tools.rs \"$0/tests/run\"",
            ])
            .arg(folder.path())
            .current_dir(ROOT)
            .status();
        assert!(top.unwrap().success());
        let programs = Programs::real(&USED);
        programs.add("python3", INSTALL);
        programs.add("cargo", INSTALL);
        for (name, script) in MERMAID {
            programs.add(name, script);
        }
        Self { programs, folder }
    }

    /// Runs the script; returns its output and the arguments that the installers recorded.
    fn build(&self, environment: &[(&str, &str)]) -> (Output, String) {
        let record = self.folder.path().join("record");
        let _ = fs::remove_file(&record);
        let mut command = Command::new(self.folder.path().join("scripts/build-docs"));
        command
            .env_clear()
            .env("PATH", self.programs.path())
            .env("XDG_CACHE_HOME", self.folder.path().join("cache"))
            .env("RECORD", &record)
            .envs(environment.iter().copied());
        let output = command.output().unwrap();
        (output, fs::read_to_string(record).unwrap_or_default())
    }

    fn source(&self) -> std::path::PathBuf {
        self.folder.path().join("target/book/source")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn the_book_has_the_pages_of_the_summary_at_their_own_paths() {
    let repository = Repository::new();
    let (output, record) = repository.build(&[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        record.contains("--require-hashes") && record.contains("docs-requirements.txt"),
        "{record}"
    );
    assert!(!record.contains("cargo install"), "{record}");
    let summary = text(&output.stdout);
    for line in summary.lines().filter(|line| line.contains("](")) {
        let (_, link) = line.split_once("](").unwrap();
        let page = link.trim_end_matches(')');
        assert!(repository.source().join(page).is_file(), "{page}");
    }
    let readme = fs::read_to_string(repository.source().join("README.md")).unwrap();
    assert!(
        readme.contains("](docs/runbooks/index.md)") && !readme.contains("README.md)"),
        "{readme}"
    );
    let (_, again) = repository.build(&[]);
    assert_eq!(again, "", "it is installed once");
}

#[test]
fn diagrams_are_drawn_by_a_mermaid_of_the_expected_hash() {
    let repository = Repository::new();
    let (output, record) = repository.build(&[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        record.contains("npm pack") && record.contains("mermaid@11"),
        "{record}"
    );
    assert!(repository.source().join("mermaid.min.js").is_file());

    let repository = Repository::new();
    repository.programs.add("sha256sum", "exit 1");
    let (output, _) = repository.build(&[]);
    assert!(text(&output.stderr).contains("has another hash"), "{output:?}");
    assert!(!repository.source().exists(), "no book is built of another file");
}

#[test]
fn cargo_builds_mdbook_where_no_wheel_fits_and_a_wrong_name_is_refused() {
    let repository = Repository::new();
    repository.programs.add("python3", "exit 1");
    let (output, record) = repository.build(&[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        record.contains("cargo install --quiet --locked") && record.contains("mdbook --version 0.5.4"),
        "{record}"
    );
    let (output, _) = repository.build(&[("MDBOOK", "/nowhere")]);
    assert!(
        text(&output.stderr).contains("there is no program MDBOOK=/nowhere"),
        "{output:?}"
    );
    assert!(Path::new(ROOT).join("book.toml").is_file());
}
