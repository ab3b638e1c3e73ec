//! The commands that pages print. A comment before each block names the test that runs it:
//!
//! - `<!-- runs: shell -->`: tests/commands/pages.rs, in bash, with masters;
//! - `<!-- runs: cluster -->`: tests/kubernetes/pages.rs, line by line, where the chart is installed and a lock is held;
//! - `<!-- runs: tests/FILE.rs -->`: that test file, by name;
//! - `<!-- not run: REASON -->`.

use std::fs;
use std::path::{Path, PathBuf};

/// The test that runs a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    Shell,
    Cluster,
    By(String),
    NotRun(String),
}

impl Mark {
    fn of(line: &str) -> Option<Self> {
        let text = line.trim().strip_prefix("<!-- ")?.strip_suffix(" -->")?;
        match text.split_once(": ")? {
            ("runs", "shell") => Some(Self::Shell),
            ("runs", "cluster") => Some(Self::Cluster),
            ("runs", file) => Some(Self::By(file.into())),
            ("not run", reason) => Some(Self::NotRun(reason.into())),
            _ => None,
        }
    }
}

/// A block of commands.
#[derive(Clone, Debug)]
pub struct Block {
    /// The path below the repository.
    pub page: String,
    /// The line of its first command.
    pub line: usize,
    pub mark: Option<Mark>,
    pub text: String,
}

impl Block {
    /// Returns its commands; a command with continuation lines stays whole.
    pub fn commands(&self) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for line in self.text.lines().filter(|line| !line.trim().is_empty()) {
            match found.last_mut().filter(|last| last.ends_with('\\')) {
                Some(last) => *last = format!("{last}\n{line}"),
                None => found.push(line.to_owned()),
            }
        }
        found
    }
}

/// Returns all pages of the repository, sorted by name.
pub fn pages() -> Vec<String> {
    let mut found = Vec::new();
    for folder in [
        "",
        "docs",
        "docs/runbooks",
        "examples",
        "charts/redlock-operator",
        "crates/redlock-client",
    ] {
        collect(Path::new(folder), &mut found);
    }
    for folder in folders("examples") {
        collect(&folder, &mut found);
    }
    found.sort();
    found
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn folders(of: &str) -> Vec<PathBuf> {
    let entries = root().join(of).read_dir().unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.is_dir())
        .map(|path| path.strip_prefix(root()).unwrap().to_owned())
        .collect()
}

fn collect(folder: &Path, found: &mut Vec<String>) {
    for entry in root().join(folder).read_dir().unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") {
            found.push(folder.join(name).to_str().unwrap().to_owned());
        }
    }
}

pub fn blocks(page: &str) -> Vec<Block> {
    let text = fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
    read(page, &text)
}

/// Returns the blocks of a page that this file runs, `tests/….rs`.
pub fn blocks_for(page: &str, file: &str) -> Vec<Block> {
    let mark = Some(Mark::By(file.to_owned()));
    let found: Vec<Block> = blocks(page)
        .into_iter()
        .filter(|block| block.mark == mark)
        .collect();
    assert!(!found.is_empty(), "{page} has no block that {file} runs");
    found
}

pub fn read(page: &str, text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut lines = text.lines().zip(1..);
    let mut before = "";
    while let Some((line, number)) = lines.next() {
        let fence = line.trim_start();
        if fence.starts_with("```") {
            let indent = line.len() - fence.len();
            let inside = lines.by_ref().take_while(|(line, _)| line.trim_start() != "```");
            let inside: Vec<&str> = inside
                .map(|(line, _)| line.get(indent..).unwrap_or_default())
                .collect();
            if fence == "```sh" {
                found.push(Block {
                    page: page.to_owned(),
                    line: number + 1,
                    mark: Mark::of(before),
                    text: inside.join("\n") + "\n",
                });
            }
        }
        before = line;
    }
    found
}
