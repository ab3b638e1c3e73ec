//! Tests the parts of other files that the Dockerfile repeats. Builds nothing.

use std::fs;
use std::path::Path;

#[test]
fn the_dockerfile_names_the_version_and_a_rust_that_is_new_enough() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Dockerfile");
    let text = fs::read_to_string(file).unwrap();
    let version = concat!("ARG VERSION=", env!("CARGO_PKG_VERSION"));
    assert!(text.lines().any(|line| line == version), "no line {version}");
    let base = format!(
        "ARG BUILD_BASE=docker.io/library/rust:{}-",
        env!("CARGO_PKG_RUST_VERSION")
    );
    assert!(
        text.lines().any(|line| line.starts_with(&base)),
        "no line {base}..."
    );
}

#[test]
fn the_dockerfile_copies_every_member_of_the_workspace() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dockerfile = fs::read_to_string(root.join("Dockerfile")).unwrap();
    let ignored = fs::read_to_string(root.join(".dockerignore")).unwrap();
    let members = fs::read_dir(root.join("crates")).unwrap();
    let members = members.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    for member in members {
        let line = format!("COPY crates/{member}/Cargo.toml crates/{member}/");
        assert!(dockerfile.lines().any(|it| it == line), "no line {line}");
    }
    assert!(dockerfile.lines().any(|line| line == "COPY crates crates"));
    assert!(ignored.lines().any(|line| line == "!crates"), "crates is ignored");
}
