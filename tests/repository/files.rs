//! Sizes, words that lints miss, dependencies, generated text.

use std::fs;
use std::path::Path;

use super::layers::LAYERS;
use super::{
    generated,
    source::{ROOT, mentions, sources},
};

/// A file above it holds two ideas.
const MOST_LINES: usize = 400;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn no_file_is_too_long() {
    let long: Vec<String> = sources()
        .iter()
        .filter(|source| source.lines > MOST_LINES)
        .map(|source| format!("{}: {} lines", source.path, source.lines))
        .collect();
    assert!(
        long.is_empty(),
        "more than {MOST_LINES} lines; split by idea: {long:#?}"
    );
}

#[test]
fn a_module_with_a_folder_is_a_file_beside_it() {
    let found: Vec<String> = sources()
        .into_iter()
        .map(|source| source.path)
        .filter(|path| path.ends_with("/mod.rs"))
        .collect();
    assert!(found.is_empty(), "foo.rs and foo/, not foo/mod.rs: {found:?}");
}

#[test]
fn production_code_never_panics_on_purpose() {
    // Clippy denies them, too; an `allow` in the source would silence clippy, and nothing silences this.
    let words = [".unwrap(", ".expect(", "panic!", "todo!", "unimplemented!"];
    let found: Vec<String> = sources()
        .iter()
        .flat_map(|source| {
            let found = words.iter().filter(|word| mentions(&source.code, word));
            found
                .map(|word| format!("{}: {word}", source.path))
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(
        found.is_empty(),
        "a lease that dies by a panic is a lease that nobody gives back: {found:#?}"
    );
}

#[test]
fn no_banned_crate_is_in_the_lock_file() {
    let deny = read("deny.toml");
    let banned: Vec<&str> = deny
        .lines()
        .filter_map(|line| line.trim().strip_prefix("{ crate = \"")?.split('"').next())
        .collect();
    assert!(
        banned.contains(&"openssl-sys"),
        "the list of bans in deny.toml was not found: {banned:?}"
    );
    let lock = read("Cargo.lock");
    let found: Vec<&str> = banned
        .into_iter()
        .filter(|name| lock.lines().any(|line| line == format!("name = \"{name}\"")))
        .collect();
    assert!(
        found.is_empty(),
        "one TLS provider, and no C: {found:?}; `cargo tree -i NAME` says who brings it"
    );
}

#[test]
fn the_continuous_integration_runs_what_everybody_runs() {
    assert!(read(".ci/run").lines().any(|line| line == "make test"));
    assert!(
        read("Makefile")
            .lines()
            .any(|line| line.starts_with("test: tools "))
    );
}

#[test]
fn the_table_of_layers_is_the_one_that_is_checked() {
    let rows: String = LAYERS
        .iter()
        .map(|layer| {
            let parts: Vec<String> = layer.parts.iter().map(|part| format!("`{part}`")).collect();
            format!(
                "| `{}` | {} | {} |\n",
                layer.package,
                parts.join(", "),
                layer.what
            )
        })
        .collect();
    generated::part(
        "CONTRIBUTING.md",
        "layers",
        &format!("| package | module | is |\n|---|---|---|\n{rows}"),
    );
}
