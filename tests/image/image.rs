//! Reads an image from its archive.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

/// The archive for `docker load`, unpacked.
pub struct Image {
    pub archive: PathBuf,
    folder: TempDir,
    /// As `config` of the image format: User, Entrypoint, Labels.
    pub config: Value,
    pub architecture: String,
}

/// Returns the image of the archive REDLOCK_IMAGE; without it, the image is built once for all tests.
pub fn image() -> &'static Image {
    static IMAGE: OnceLock<Image> = OnceLock::new();
    IMAGE.get_or_init(
        || match env::var_os("REDLOCK_IMAGE").filter(|archive| !archive.is_empty()) {
            Some(archive) => Image::open(archive.into()),
            None => Image::build(),
        },
    )
}

impl Image {
    fn build() -> Self {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
        let archive = repository.join("target/image/tested.tar");
        let mut build = Command::new(repository.join("scripts/build-image"));
        build
            .env("BASE", "machine")
            .env("ARCHIVE", &archive)
            .env("TAG", "redlock-operator:tested");
        // Its output is not captured: a cold build takes minutes.
        assert!(build.status().unwrap().success(), "scripts/build-image failed");
        Self::open(archive)
    }

    fn open(archive: PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        unpack(&archive, folder.path());
        let json = |name: &str| -> Value {
            serde_json::from_slice(&fs::read(folder.path().join(name)).unwrap()).unwrap()
        };
        let manifest = json("manifest.json")[0].take();
        let config = json(manifest["Config"].as_str().unwrap());
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        for layer in manifest["Layers"].as_array().unwrap() {
            unpack(&folder.path().join(layer.as_str().unwrap()), &root);
        }
        let architecture = config["architecture"].as_str().unwrap().to_owned();
        Self {
            archive,
            folder,
            config: config["config"].clone(),
            architecture,
        }
    }

    /// Returns the folder with the files of the image.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// Returns a copy of the files for one container.
    pub fn copy(&self) -> TempDir {
        let copy = tempfile::tempdir().unwrap();
        let copied = Command::new("cp")
            .arg("-a")
            .arg(self.root().join("."))
            .arg(copy.path())
            .status();
        assert!(copied.unwrap().success());
        copy
    }
}

fn unpack(archive: &Path, into: &Path) {
    let output = Command::new("tar")
        .arg("-xf")
        .arg(archive)
        .arg("-C")
        .arg(into)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", archive.display());
}
