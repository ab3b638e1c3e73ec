//! Reads the comments of the repository, file by file. Leaves out code and quotations.

use std::fs;
use std::path::{Path, PathBuf};

use super::source::{ROOT, collect};
use super::visible_text::{Passage, after_quote, of_page, string};

const RUST: [&str; 4] = ["src", "crates", "tests", "benches"];

/// Returns the comments of all Rust files, of the scripts, of the Makefile and of the templates of the chart.
pub fn comments() -> Vec<Passage> {
    let mut rust = vec![Path::new(ROOT).join("build.rs")];
    for folder in RUST {
        collect(&Path::new(ROOT).join(folder), &mut rust);
    }
    let mut found = passages(rust, of_rust);
    let mut others = vec![Path::new(ROOT).join("Makefile")];
    for folder in ["scripts", "charts/redlock-operator/templates"] {
        let entries = Path::new(ROOT).join(folder).read_dir().unwrap();
        others.extend(entries.map(|entry| entry.unwrap().path()));
    }
    found.extend(passages(others, of_hashes));
    found
}

fn passages(mut paths: Vec<PathBuf>, of: fn(&str) -> Vec<String>) -> Vec<Passage> {
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let path = path.strip_prefix(ROOT).unwrap().to_string_lossy().into_owned();
        found.extend(of(&text).into_iter().map(|text| Passage {
            path: path.clone(),
            text,
        }));
    }
    found
}

/// Returns the paragraphs of `//`, `///` and `//!`. Comments on consecutive lines are one text.
fn of_rust(code: &str) -> Vec<String> {
    let mut text = String::new();
    let (mut rest, mut marker) = (code, "");
    let mut between = String::new();
    while let Some(at) = rest.find(['"', '\'', '/']) {
        let (before, from) = rest.split_at(at);
        between.push_str(before);
        if let Some(found) = ["//!", "///", "//"]
            .into_iter()
            .find(|found| from.starts_with(found))
        {
            let end = from.find('\n').unwrap_or(from.len());
            let joined = between.trim().is_empty() && between.matches('\n').count() == 1 && marker == found;
            text.push_str(if joined { "\n" } else { "\n\n" });
            text.push_str(from[found.len()..end].trim());
            (rest, marker) = (&from[end..], found);
            between.clear();
            continue;
        }
        rest = match from.as_bytes()[0] {
            b'"' => string(before, from).1,
            b'\'' => after_quote(from),
            _ => &from[1..],
        };
        between.push('x');
    }
    of_page(&text)
}

/// Returns the paragraphs of `#` at the beginning of a line, and of the help after a target of the Makefile.
fn of_hashes(script: &str) -> Vec<String> {
    let mut text = String::new();
    for line in script.lines() {
        let comment = line
            .trim_start()
            .strip_prefix('#')
            .filter(|rest| !rest.starts_with('!'));
        let help = line.split_once(" ## ").map(|(_, help)| help);
        match comment {
            Some(comment) => text.push_str(comment.trim()),
            None => {
                text.push('\n');
                text.push_str(help.unwrap_or_default());
                text.push('\n');
            }
        }
        text.push('\n');
    }
    of_page(&text)
}

fn trimmed(passages: &[String]) -> Vec<&str> {
    passages.iter().map(|text| text.trim()).collect()
}

#[test]
fn comments_of_rust_are_read_without_code() {
    let code = r###"//! The module
//! has two lines.

/// A function with `who` and "who
/// what".
fn f(url: &'static str) -> char {
    let url = "redis://who"; // behind code
    let raw = r#"// who "quoted" // who"#;
    // One.

    // Two / three.
    let half = 1 / 2;
    'x'; '"'; // after a character
    '\''
}
/// ```
/// who
/// ```
struct S;
"###;
    let found = of_rust(code);
    assert_eq!(
        trimmed(&found),
        [
            "The module has two lines.",
            "A function with § and §.",
            "behind code",
            "One.",
            "Two / three.",
            "after a character",
        ]
    );
}

#[test]
fn comments_of_scripts_are_read_without_code() {
    let script = "#!/bin/sh\n# One, with `who`\n# and more.\n#\n# Two.\nfoo=${bar#who} # who\n  # Three.\n\
                  test: tools ## All tests\n";
    let found = of_hashes(script);
    assert_eq!(
        trimmed(&found),
        ["One, with § and more.", "Two.", "Three.", "All tests"]
    );
}
