//! Tests `scripts/build-image` with a buildah that records its arguments: the output of the script, and the commands
//! that pages print after it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use super::pages::blocks;
use super::programs::Programs;
use super::source::ROOT;

/// Runs the script with these variables in a repository that has only its input files; returns its output and
/// the arguments of buildah.
fn build(variables: &[(&str, &str)]) -> (String, String) {
    let place = tempfile::tempdir().unwrap();
    symlink(
        Path::new(ROOT).join("Cargo.toml"),
        place.path().join("Cargo.toml"),
    )
    .unwrap();
    fs::create_dir(place.path().join("scripts")).unwrap();
    let script = place.path().join("scripts/build-image");
    symlink(Path::new(ROOT).join("scripts/build-image"), &script).unwrap();
    let programs = Programs::real(&["bash", "env", "dirname", "awk", "mkdir", "rm", "cat"]);
    programs.add("buildah", "echo \"$*\" >>\"$SAID\"");
    programs.add("git", "exit 1");
    let record = place.path().join("said");
    let output = Command::new(script)
        .env_clear()
        .env("PATH", programs.path())
        .env("SAID", &record)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{stderr}");
    (stderr, fs::read_to_string(record).unwrap())
}

/// Returns the commands of a text that begin with these words, each on one line.
fn commands(text: &str, begin: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    let lines = joined
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with(begin));
    let plain = lines.map(|line| line.split(" #").next().unwrap_or_default());
    plain
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

/// Returns the commands of the pages that install the masters of the chart.
fn on_pages(begin: &str) -> Vec<(&'static str, Vec<String>)> {
    let pages = [
        "README.md",
        "docs/install.md",
        "docs/image.md",
        "examples/quickstart/README.md",
    ];
    let found = pages.map(|page| {
        let texts = blocks(page).into_iter().map(|block| block.text);
        let all = texts.flat_map(|text| commands(&text, begin)).collect();
        (page, all)
    });
    found.into_iter().collect()
}

#[test]
fn pages_install_the_image_that_was_built() {
    let (stderr, arguments) = build(&[]);
    let printed = commands(&stderr, "helm install");
    assert_eq!(printed.len(), 1, "{stderr}");
    assert!(printed[0].contains("quickstart.enabled=true"), "{printed:?}");
    for (page, found) in on_pages("helm install") {
        assert!(
            found.contains(&printed[0]),
            "{page} installs otherwise than `make image` prints: {found:#?}"
        );
    }
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        arguments.contains(&format!("--tag redlock-operator:{version} ")),
        "{arguments}"
    );
    let values = [
        "image.repository=redlock-operator".to_owned(),
        format!("image.tag={version}"),
    ];
    for value in values {
        assert!(printed[0].contains(&format!("--set {value} ")), "{printed:?}");
    }
}

#[test]
fn pages_load_the_archive_that_was_written() {
    let (stderr, arguments) = build(&[]);
    let printed = commands(&stderr, "kind load image-archive");
    let archive = "target/image/redlock-operator.tar";
    assert_eq!(
        printed,
        [format!("kind load image-archive {archive}")],
        "{stderr}"
    );
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        arguments.contains(&format!("/{archive}:redlock-operator:{version}")),
        "{arguments}"
    );
    for (page, found) in on_pages("kind load image-archive") {
        assert!(
            found.iter().all(|command| *command == printed[0]),
            "{page}: {found:?}"
        );
    }
}

#[test]
fn an_image_of_another_name_is_installed_by_it() {
    let (stderr, _) = build(&[("TAG", "registry.example:5000/redlock:e2e")]);
    let printed = commands(&stderr, "helm install");
    assert!(
        printed[0].contains("--set image.repository=registry.example:5000/redlock --set image.tag=e2e "),
        "{printed:?}"
    );
}

/// An installation without the name of an image would pull an unpublished one.
#[test]
fn no_page_installs_the_image_of_a_release() {
    for (page, found) in on_pages("helm install") {
        for command in found {
            assert!(
                command.contains("--values") || command.contains("--set image.repository="),
                "{page}: {command}"
            );
        }
    }
    let values = fs::read_to_string(Path::new(ROOT).join("docs/install.md")).unwrap();
    assert!(values.contains("  repository: registry.example/redlock-operator\n"));
}
