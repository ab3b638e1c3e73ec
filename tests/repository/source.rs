//! Reads the source for these tests: the production code, without comments and without tests.
//!
//! Reads lines, not syntax: rustfmt, which the same `make test` checks, puts the end of an item under its beginning.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

pub const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Code that only tests use, in a package that also ships.
const HARNESS: &str = "crates/redlock-testkit/src/harness";

/// Only tests use this package.
const WORLD: &str = "crates/redlock-world";

/// Only benches use this package.
const BENCH: &str = "crates/redlock-bench";

#[derive(Debug)]
pub struct Source {
    /// The path below the repository, with slashes: `src/cli/run.rs`, `crates/redlock-core/src/timing.rs`.
    pub path: String,
    pub lines: usize,
    /// The production code; empty for a file that contains only tests.
    pub code: String,
    /// The comments of the production code.
    pub comments: String,
}

impl Source {
    /// Returns the package of the file.
    pub fn package(&self) -> &str {
        match self.path.strip_prefix("crates/") {
            Some(path) => path.split('/').next().unwrap(),
            None => "redlock-operator",
        }
    }

    /// Returns the names from the crate's root to this file: `cli`, `run`. Empty for `lib.rs` and `main.rs`.
    pub fn module(&self) -> Vec<&str> {
        let (_, path) = self.path.split_once("src/").unwrap();
        match path.trim_end_matches(".rs") {
            "lib" | "main" => Vec::new(),
            path => path.split('/').collect(),
        }
    }
}

/// Returns the folders of the packages below `crates`.
pub fn packages() -> Vec<PathBuf> {
    let folders = fs::read_dir(Path::new(ROOT).join("crates")).unwrap();
    folders.map(|entry| entry.unwrap().path()).collect()
}

/// Returns all files under `src` and `crates/*/src`.
pub fn sources() -> Vec<Source> {
    let mut paths = Vec::new();
    collect(&Path::new(ROOT).join("src"), &mut paths);
    for package in packages() {
        collect(&package.join("src"), &mut paths);
    }
    paths.sort();
    let texts: Vec<(PathBuf, String)> = paths
        .into_iter()
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect();
    let tests: BTreeSet<PathBuf> = texts
        .iter()
        .flat_map(|(path, text)| test_files(path, text))
        .collect();
    texts
        .iter()
        .map(|(path, text)| {
            let of_tests = [HARNESS, WORLD, BENCH]
                .iter()
                .any(|of| path.starts_with(Path::new(ROOT).join(of)))
                || path
                    .ancestors()
                    .any(|path| tests.contains(path) || tests.contains(&path.with_extension("rs")));
            let (code, comments) = if of_tests {
                Default::default()
            } else {
                production(text)
            };
            Source {
                path: path.strip_prefix(ROOT).unwrap().to_string_lossy().into_owned(),
                lines: text.lines().count(),
                code,
                comments,
            }
        })
        .collect()
}

/// Appends the Rust files below a folder.
pub fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    let mut files = Vec::new();
    collect_all(folder, &mut files);
    files.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    paths.extend(files);
}

/// Appends a file, or all files below a folder.
pub fn collect_all(place: &Path, paths: &mut Vec<PathBuf>) {
    if !place.is_dir() {
        paths.push(place.to_owned());
        return;
    }
    for entry in fs::read_dir(place).unwrap() {
        collect_all(&entry.unwrap().path(), paths);
    }
}

/// Returns the files of `#[cfg(test)] mod name;`.
fn test_files(path: &Path, text: &str) -> Vec<PathBuf> {
    let folder = match path.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "main") => path.parent().unwrap().to_owned(),
        _ => path.with_extension(""),
    };
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines
        .windows(2)
        .filter(|pair| pair[0] == "#[cfg(test)]")
        .filter_map(|pair| pair[1].rsplit_once("mod ")?.1.strip_suffix(';'))
        .map(|name| folder.join(format!("{name}.rs")))
        .collect()
}

/// Returns the code and the comments of a file, both without tests.
fn production(text: &str) -> (String, String) {
    let (mut code, mut comments) = (String::new(), String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            skip_item(line.len() - line.trim_start().len(), &mut lines);
        } else if line.trim_start().starts_with("//") {
            comments.push_str(line);
            comments.push('\n');
        } else {
            // A comment behind code; a url has no space before its slashes.
            code.push_str(line.split(" // ").next().unwrap_or(line));
            code.push('\n');
        }
    }
    (code, comments)
}

/// Skips to the end of the item that begins here: a line that ends it at once, or the closing line at the same depth.
fn skip_item<'a>(depth: usize, lines: &mut impl Iterator<Item = &'a str>) {
    for line in lines {
        let same_depth = line.len() - line.trim_start().len() == depth;
        if same_depth && !line.trim_start().starts_with("#[") && line.ends_with([';', '}']) {
            return;
        }
    }
}

/// Reports whether `text` contains `word` as a separate word.
pub fn mentions(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        (!word.starts_with(is_part) || !text[..at].ends_with(is_part))
            && (!word.ends_with(is_part) || !text[at + word.len()..].starts_with(is_part))
    })
}

#[test]
fn production_is_without_comments_and_tests() {
    let text = "\
//! doc
use a::b;

fn f() -> u8 {
    1 // one
}

#[cfg(test)]
impl X {
    fn g() {}
}

#[cfg(test)]
use a::c;
const URL: &str = \"redis://x\";

#[cfg(test)]
#[allow(x)]
mod tests {
    fn h() {}
}
fn last() {}
";
    let wanted =
        "use a::b;\n\nfn f() -> u8 {\n    1\n}\n\nconst URL: &str = \"redis://x\";\n\nfn last() {}\n";
    let (code, comments) = production(text);
    assert_eq!(code.replace("\n\n\n", "\n\n"), wanted);
    assert_eq!(comments, "//! doc\n");
}

#[test]
fn a_word_is_found_as_a_word() {
    assert!(mentions("use kube::Client;", "kube"));
    assert!(!mentions("use minikube::Client;", "kube"));
    assert!(!mentions("kube_core::x", "kube"));
    assert!(mentions("x.unwrap()", ".unwrap("));
    assert!(mentions("redis::cmd", "redis::"));
    assert!(!mentions("demo_redis::cmd", "redis::"));
}
