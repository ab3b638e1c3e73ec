//! Tests the packages of the workspace: what each may depend on, and that the image is built from all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::source::{ROOT, packages};

/// The decision stays pure while no dependency can wait, read a clock or open a connection.
const CORE_MAY_USE: [&str; 3] = ["serde", "serde_json", "thiserror"];
/// These turn values into text and back, and only where traces are recorded or replayed.
const FOR_TRACES: [&str; 2] = ["serde", "serde_json"];
/// The packages that a program without Kubernetes can use.
const WITHOUT_KUBERNETES: [&str; 7] = [
    "redlock-core",
    "redlock-client",
    "redlock-csi",
    "redlock-node",
    "redlock-testkit",
    "redlock-bench",
    "redlock-demo",
];

fn read(path: impl AsRef<Path>) -> String {
    let path = Path::new(ROOT).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the names in a table of a manifest: `thiserror` of `thiserror.workspace = true`.
fn keys<'a>(manifest: &'a str, table: &str) -> Vec<&'a str> {
    let header = format!("[{table}]");
    let lines = manifest.lines().skip_while(|line| *line != header).skip(1);
    lines
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| Some(line.split_once(['.', ' ', '='])?.0))
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
        .collect()
}

#[test]
fn the_core_can_do_no_io() {
    let manifest = read("crates/redlock-core/Cargo.toml");
    assert_eq!(keys(&manifest, "dependencies"), CORE_MAY_USE);
    for table in ["[dependencies.", "[target.", "[build-dependencies"] {
        assert!(!manifest.contains(table), "{table} would add dependencies");
    }
    assert_eq!(keys(&manifest, "features"), ["planted", "trace"]);
    for name in FOR_TRACES {
        let optional = format!("{name} = {{ workspace = true, optional = true }}");
        assert!(manifest.contains(&optional), "missing: {optional}");
    }
}

/// Returns the packages of Cargo.lock with their dependencies; for workspace members, also those of tests.
fn locked(lock: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let mut lines = package.lines();
        let name = lines.find_map(|line| line.strip_prefix("name = \"")).unwrap();
        let uses = lines.filter_map(|line| line.strip_prefix(" \""));
        // Where two versions are locked, the version follows the name.
        let uses = uses.map(|line| line.split(['"', ' ']).next().unwrap());
        all.entry(name.trim_end_matches('"')).or_default().extend(uses);
    }
    all
}

fn reached<'a>(locked: &BTreeMap<&'a str, Vec<&'a str>>, from: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(name) = open.pop() {
        if reached.insert(name) {
            open.extend(&locked[name]);
        }
    }
    reached
}

#[test]
fn a_library_does_not_build_the_client_of_kubernetes() {
    let lock = read("Cargo.lock");
    let locked = locked(&lock);
    assert!(reached(&locked, "redlock-operator").contains("kube-client"));
    for package in WITHOUT_KUBERNETES {
        let found: Vec<&str> = reached(&locked, package)
            .into_iter()
            .filter(|name| name.starts_with("kube") || *name == "k8s-openapi")
            .collect();
        assert!(found.is_empty(), "{package} depends on {found:?}");
    }
}

#[test]
fn the_image_knows_every_package_before_the_sources() {
    let dockerfile = read("Dockerfile");
    for folder in packages() {
        let folder = folder.strip_prefix(ROOT).unwrap().display().to_string();
        let line = format!("COPY {folder}/Cargo.toml {folder}/");
        assert!(
            dockerfile.lines().any(|found| found == line),
            "the Dockerfile has no line: {line}"
        );
    }
}
