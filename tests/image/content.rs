//! Tests the content of the image, and that it has no other files.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::json;

use crate::elf::interpreter;
use crate::image::image;

const LARGEST: u64 = 25 * 1024 * 1024;

fn files(folder: &Path, root: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, root, found);
        } else {
            found.insert(path.strip_prefix(root).unwrap().to_string_lossy().into_owned());
        }
    }
}

#[test]
#[ignore = "builds the image: `make test-image`"]
fn it_is_small_and_holds_two_files() {
    let image = image();
    let size = fs::metadata(&image.archive).unwrap().len();
    println!("{size} bytes");
    assert!(size <= LARGEST, "{size} bytes, more than {LARGEST}");
    let mut found = BTreeSet::new();
    files(&image.root(), &image.root(), &mut found);
    let wanted = ["etc/ssl/certs/ca-certificates.crt", "usr/local/bin/redlock"];
    assert_eq!(found, wanted.map(str::to_owned).into());
}

#[test]
#[ignore = "builds the image: `make test-image`"]
fn the_image_has_its_labels_and_its_user() {
    let image = image();
    let config = &image.config;
    assert_eq!(config["User"], "65532:65532");
    assert_eq!(config["Entrypoint"], json!(["/usr/local/bin/redlock"]));
    assert!(
        config["Env"]
            .as_array()
            .unwrap()
            .iter()
            .any(|set| set.as_str().unwrap().starts_with("PATH=/usr/local/bin:"))
    );
    let label = |name: &str| {
        config["Labels"][format!("org.opencontainers.image.{name}")]
            .as_str()
            .unwrap_or_default()
    };
    for (name, wanted) in [
        ("title", env!("CARGO_PKG_NAME")),
        ("version", env!("CARGO_PKG_VERSION")),
        ("licenses", env!("CARGO_PKG_LICENSE")),
        ("source", env!("CARGO_PKG_REPOSITORY")),
        ("description", env!("CARGO_PKG_DESCRIPTION")),
    ] {
        assert_eq!(label(name), wanted, "{name}");
    }
    assert!(!label("revision").is_empty());
    let cpu = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    assert_eq!(image.architecture, cpu);
}

#[test]
#[ignore = "builds the image: `make test-image`"]
fn the_program_is_linked_statically() {
    let program = fs::read(image().root().join("usr/local/bin/redlock")).unwrap();
    assert_eq!(interpreter(&program), None);
}
