//! What the Dockerfile repeats of other files. Builds nothing.

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
