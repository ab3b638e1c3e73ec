//! Tests the manifest of the kubectl plugin: the requirements of krew, and the manifest of a release.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn manifest(text: &str) -> Value {
    serde_yaml::from_str(text).unwrap()
}

fn written() -> String {
    fs::read_to_string(Path::new(ROOT).join("krew/redlock.yaml")).unwrap()
}

/// Returns a text that exists and is not empty.
fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    let found = value.pointer(pointer).and_then(Value::as_str);
    let found = found.unwrap_or_else(|| panic!("{pointer} is no text"));
    assert!(!found.trim().is_empty(), "{pointer} is empty");
    found
}

fn platforms(manifest: &Value) -> &[Value] {
    manifest["spec"]["platforms"].as_array().unwrap()
}

/// Makes the checks of krew: sigs.k8s.io/krew, internal/index/validation.
#[test]
fn the_manifest_meets_the_requirements_of_krew() {
    let manifest = manifest(&written());
    assert_eq!(
        text(&manifest, "/apiVersion"),
        "krew.googlecontainertools.github.com/v1alpha2"
    );
    assert_eq!(text(&manifest, "/kind"), "Plugin");
    assert_eq!(text(&manifest, "/metadata/name"), "redlock");
    assert_eq!(
        text(&manifest, "/spec/version"),
        format!("v{}", env!("CARGO_PKG_VERSION"))
    );
    assert_eq!(text(&manifest, "/spec/homepage"), env!("CARGO_PKG_REPOSITORY"));
    let short = text(&manifest, "/spec/shortDescription");
    assert!(
        short.len() <= 50 && !short.contains('\n') && !short.ends_with('.'),
        "{short}"
    );
    text(&manifest, "/spec/description");
    text(&manifest, "/spec/caveats");
    let known = [
        "version",
        "homepage",
        "shortDescription",
        "description",
        "caveats",
        "platforms",
    ];
    for field in manifest["spec"].as_object().unwrap().keys() {
        assert!(
            known.contains(&field.as_str()),
            "spec.{field} is no field of krew's"
        );
    }
    assert!(!platforms(&manifest).is_empty());
    for platform in platforms(&manifest) {
        let arch = text(platform, "/selector/matchLabels/arch");
        assert_eq!(text(platform, "/selector/matchLabels/os"), "linux");
        let archive = format!("redlock-v{}-linux-{arch}.tar.gz", env!("CARGO_PKG_VERSION"));
        let of_release = format!(
            "{}/releases/download/v{}",
            env!("CARGO_PKG_REPOSITORY"),
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(text(platform, "/uri"), format!("{of_release}/{archive}"));
        assert_eq!(text(platform, "/sha256"), format!("SHA256_OF_{archive}"));
        assert_eq!(text(platform, "/bin"), "redlock");
        let files = platform["files"].as_array().unwrap();
        let from: Vec<&str> = files.iter().map(|file| text(file, "/from")).collect();
        // Krew refuses a plugin without its licence.
        assert_eq!(from, ["redlock", "LICENSE"]);
        assert!(files.iter().all(|file| text(file, "/to") == "."));
    }
}

fn archive(folder: &Path, name: &str, files: &[&str]) {
    for file in files {
        fs::write(folder.join(file), format!("{file} of {name}")).unwrap();
    }
    let mut tar = Command::new("tar");
    tar.args(["-czf", name]).args(files).current_dir(folder);
    assert!(tar.status().unwrap().success());
}

fn released(folder: &Path) -> std::process::Output {
    let mut script = Command::new(Path::new(ROOT).join("scripts/krew-manifest"));
    script.arg(folder).output().unwrap()
}

#[test]
fn a_release_fills_in_the_sum_of_each_archive_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = platforms(&manifest(&written()))
        .iter()
        .map(|platform| text(platform, "/uri").rsplit('/').next().unwrap().to_owned())
        .collect();
    for name in &names {
        archive(folder.path(), name, &["redlock", "LICENSE"]);
    }
    let output = released(folder.path());
    assert!(output.status.success(), "{output:?}");
    let filled = String::from_utf8(output.stdout).unwrap();
    let mut expected = written();
    for (platform, name) in platforms(&manifest(&filled)).iter().zip(&names) {
        let sum = text(platform, "/sha256");
        assert!(
            sum.len() == 64 && sum.chars().all(|c| c.is_ascii_hexdigit()),
            "{sum}"
        );
        let bytes = fs::read(folder.path().join(name)).unwrap();
        let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
        let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(sum, digest);
        expected = expected.replace(&format!("SHA256_OF_{name}"), sum);
    }
    assert_eq!(filled, expected);

    archive(folder.path(), &names[0], &["redlock"]);
    let output = released(folder.path());
    assert!(
        !output.status.success(),
        "an archive without its licence: {output:?}"
    );
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("no file LICENSE"),
        "{output:?}"
    );
}
