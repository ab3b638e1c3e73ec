//! Tests sizes, words that lints miss, dependencies and generated text.

use std::fs;
use std::path::Path;

use super::layers::LAYERS;
use super::{
    generated,
    source::{ROOT, mentions, sources},
};

/// A longer file holds two ideas.
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
    // Clippy denies them, too; an `allow` in the source would silence clippy, but not this test.
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
        "one TLS provider, and no C: {found:?}; `cargo tree -i NAME` shows the dependent crate"
    );
}

#[test]
fn the_continuous_integration_runs_the_make_targets() {
    let has = |path: &str, start: &str| read(path).lines().any(|line| line.starts_with(start));
    for target in ["lint", "test"] {
        assert!(has(".ci/run", &format!("timed make {target}")), "make {target}");
        assert!(has("Makefile", &format!("{target}: ")), "{target}");
    }
    assert!(has("Makefile", "test: tools "));
    for (workflow, target) in [("check", "check"), ("check", "lint"), ("test", "test")] {
        let workflow = format!(".github/workflows/{workflow}.yml");
        assert!(
            has(&workflow, &format!("    - run: make {target}")),
            "{workflow}: make {target}"
        );
    }
}

/// One release of Rust for all checks: with different ones a lint or a language feature would fail in only one of
/// them.
#[test]
fn the_toolchain_is_the_release_that_the_manifest_names() {
    let toolchain = read("rust-toolchain.toml");
    let release = env!("CARGO_PKG_RUST_VERSION");
    let channel = format!("channel = \"{release}.");
    assert!(
        toolchain.lines().any(|line| line.starts_with(&channel)),
        "{channel}: {toolchain}"
    );
    let image = format!("docker.io/library/rust:{release}-");
    assert!(read("Dockerfile").contains(&image), "Dockerfile: {image}");
}

#[test]
fn the_matrix_has_the_newest_and_the_oldest_supported_kubernetes() {
    let modules = read("tests/control-plane/go.mod");
    let mut required = modules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("k8s.io/kubernetes v"));
    let newest = required.next().and_then(|rest| rest.split(' ').next()).unwrap();
    let workflow = read(".github/workflows/kubernetes.yml");
    let contributing = read("CONTRIBUTING.md");
    let row = format!("the version that is built: {newest}, and ");
    let (_, oldest) = contributing
        .split_once(&row)
        .expect("the row of KUBE_VERSION names the version of go.mod");
    let oldest = oldest.split(' ').next().unwrap();
    assert!(
        workflow.contains(&format!("version: [{oldest}, {newest}]")),
        "[{oldest}, {newest}]: {workflow}"
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
