//! Reads the comments of the repository, file by file. Leaves out code and quotations.

use std::fs;
use std::path::{Path, PathBuf};

use super::source::{ROOT, collect, collect_all};
use super::visible_text::{Passage, after_quote, behind, of_page, string};

const RUST: [&str; 4] = ["src", "crates", "tests", "benches"];
/// Other files with comments, and their folders.
const OTHERS: [&str; 17] = [
    ".cargo",
    ".github",
    "Cargo.toml",
    "Dockerfile",
    "Makefile",
    "book.toml",
    "charts",
    "clippy.toml",
    "crates/redlock-core/src/scripts",
    "deny.toml",
    "examples",
    "krew",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "scripts",
    "tests/client-go",
    "tests/control-plane",
];

/// Returns the comments of all Rust files, of the Lua scripts, of the chart and the examples, and of the tools.
pub fn comments() -> Vec<Passage> {
    let mut rust = vec![Path::new(ROOT).join("build.rs")];
    for folder in RUST {
        collect(&Path::new(ROOT).join(folder), &mut rust);
    }
    let mut found = passages(rust, of_rust);
    let mut others = Vec::new();
    for place in OTHERS {
        collect_all(&Path::new(ROOT).join(place), &mut others);
    }
    for (extensions, of) in OTHER_MARKERS {
        let these = others
            .extract_if(.., |path| has_extension(path, extensions))
            .collect();
        found.extend(passages(these, of));
    }
    found.extend(passages(others, |text| {
        [of_lines(text, "#"), of_template(text)].concat()
    }));
    found
}

/// Reads the comments of one file.
type Reader = fn(&str) -> Vec<String>;

/// The files whose comments do not begin with `#`.
const OTHER_MARKERS: [(&[&str], Reader); 4] = [
    (&["json", "rs", "sum"], |_| Vec::new()),
    (&["md"], of_page),
    (&["go", "mod"], |text| of_lines(text, "//")),
    (&["lua"], |text| of_lines(text, "--")),
];

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| extensions.contains(&extension))
}

fn passages(mut paths: Vec<PathBuf>, of: Reader) -> Vec<Passage> {
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

/// Returns the paragraphs of the comments that begin with this marker, alone on a line or behind code.
fn of_lines(code: &str, marker: &str) -> Vec<String> {
    let mut text = String::new();
    for line in code.lines().map(str::trim) {
        let comment = line.strip_prefix(marker).filter(|rest| !rest.starts_with('!'));
        match comment {
            Some(comment) => text.push_str(comment.trim()),
            None => {
                text.push('\n');
                text.push_str(behind(line, marker).unwrap_or_default());
                text.push('\n');
            }
        }
        text.push('\n');
    }
    of_page(&text)
}

/// Returns the paragraphs of the comments of a template.
fn of_template(code: &str) -> Vec<String> {
    let comments = code
        .split("{{")
        .filter_map(|action| action.trim_start_matches(['-', ' ']).strip_prefix("/*"))
        .filter_map(|action| action.split_once("*/"));
    comments.flat_map(|(comment, _)| of_page(comment)).collect()
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
    let script = "#!/bin/sh\n# One, with `who`\n# and more.\n#\n# Two.\nfoo=${bar#who} # Three.\n  # Four.\n\
                  test: tools ## All tests\n";
    let found = of_lines(script, "#");
    assert_eq!(
        trimmed(&found),
        ["One, with § and more.", "Two.", "Three.", "Four.", "All tests"]
    );
}

#[test]
fn comments_of_templates_and_lua_are_read_without_code() {
    let template = "{{/* One,\n`who`. */}}\n{{- /* Two. */ -}}\n{{ .Values.who }} # who\n";
    assert_eq!(trimmed(&of_template(template)), ["One, §.", "Two."]);
    let lua = "-- One,\n-- two.\nlocal who = 1 -- three\nreturn who - 1\n";
    assert_eq!(trimmed(&of_lines(lua, "--")), ["One, two.", "three"]);
}
