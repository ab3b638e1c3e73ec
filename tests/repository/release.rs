//! Tests that `scripts/release-check` finds each difference from the version, and that the annotations of the chart
//! are those that Artifact Hub reads.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::programs::Programs;
use super::source::ROOT;

/// The files that the script reads.
const READ: [&str; 11] = [
    ".github",
    "Cargo.toml",
    "Cargo.lock",
    "Dockerfile",
    "CHANGELOG.md",
    "README.md",
    "krew",
    "docs",
    "examples",
    "charts",
    "scripts",
];
const USED: [&str; 10] = [
    "bash", "env", "awk", "grep", "dirname", "mktemp", "rm", "tr", "cat", "git",
];

struct Repository {
    programs: Programs,
    folder: tempfile::TempDir,
}

impl Repository {
    /// Creates a copy, with a cargo and a helm that accept everything.
    fn copy() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in READ {
            let mut copy = Command::new("cp");
            copy.args(["-r", name]).arg(folder.path()).current_dir(ROOT);
            assert!(copy.status().unwrap().success(), "{name}");
        }
        let programs = Programs::real(&USED);
        programs.add("cargo", "echo \"$*\"");
        programs.add("helm", "echo \"$*\"");
        Self { programs, folder }
    }

    fn replace(&self, path: &str, from: &str, to: &str) {
        let path = self.folder.path().join(path);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{}: no {from}", path.display());
        fs::write(path, text.replacen(from, to, 1)).unwrap();
    }

    /// Returns the exit code and the output lines of the script.
    fn check(&self, tag: Option<&str>) -> (i32, String) {
        let mut command = Command::new(self.folder.path().join("scripts/release-check"));
        command.args(tag).env_clear().env("PATH", self.programs.path());
        let output = command.output().unwrap();
        let mut text = String::from_utf8(output.stdout).unwrap();
        text.push_str(&String::from_utf8(output.stderr).unwrap());
        (output.status.code().unwrap(), text)
    }

    fn dated(&self) {
        self.replace(
            "CHANGELOG.md",
            "## [Unreleased]",
            &format!("## [{VERSION}] - 2026-12-01"),
        );
    }

    fn pinned(&self) {
        let digest = format!("bookworm@sha256:{}", "0".repeat(64));
        self.replace("Dockerfile", "bookworm", &digest);
    }

    fn git(&self, arguments: &[&str]) {
        let mut git = Command::new("git");
        // A hook of git exports the repository that it runs in, and the commands would change that one.
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"GIT_") {
                git.env_remove(name);
            }
        }
        git.args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@t",
            "-c",
            "commit.gpgsign=false",
        ]);
        let status = git.args(arguments).current_dir(self.folder.path()).status();
        assert!(status.unwrap().success(), "{arguments:?}");
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[test]
fn the_repository_is_consistent_and_only_a_tag_needs_a_date() {
    let repository = Repository::copy();
    let (code, text) = repository.check(None);
    assert_eq!(code, 0, "{text}");
    let tag = format!("v{VERSION}");
    let (code, text) = repository.check(Some(&tag));
    let wanted = format!("heading of the version is \"missing\"; it must be \"## [{VERSION}] - YYYY-MM-DD\"");
    assert!(code == 1 && text.contains(&wanted), "{code}: {text}");
    repository.dated();
    let (code, text) = repository.check(Some(&tag));
    assert!(
        code == 1 && text.contains("Dockerfile: ARG BUILD_BASE"),
        "{code}: {text}"
    );
    repository.pinned();
    let (code, text) = repository.check(Some(&tag));
    assert_eq!(code, 0, "{text}");
    let (code, text) = repository.check(Some("v9.9.9"));
    let wanted = format!("the tag is \"v9.9.9\"; it must be \"v{VERSION}\"");
    assert!(code == 1 && text.contains(&wanted), "{code}: {text}");
}

#[test]
fn each_difference_is_reported_with_the_expected_value() {
    let chart = "charts/redlock-operator/Chart.yaml";
    for (path, from, field) in [
        (chart, "\nversion: ", "Chart.yaml: version"),
        (chart, "appVersion: ", "Chart.yaml: appVersion"),
        (chart, "redlock-operator:", "Chart.yaml: tag of redlock-operator"),
        ("krew/redlock.yaml", "version: v", "spec.version"),
        ("krew/redlock.yaml", "download/v", "uri"),
        ("Dockerfile", "ARG VERSION=", "ARG VERSION"),
        ("README.md", "image.tag=", "README.md: image.tag"),
        (
            "docs/install.md",
            "\n  tag: ",
            "docs/install.md: tag in the values",
        ),
        (
            "Cargo.toml",
            "crates/redlock-core\", version = \"",
            "version of redlock-core",
        ),
        (
            "Cargo.lock",
            "name = \"redlock-core\"\nversion = \"",
            "Cargo.lock: version of redlock-core",
        ),
    ] {
        let repository = Repository::copy();
        repository.replace(path, &format!("{from}{VERSION}"), &format!("{from}9.9.9"));
        let (code, text) = repository.check(None);
        let line = text
            .lines()
            .find(|line| line.contains(field) && line.contains("9.9.9"));
        let line = line.unwrap_or_else(|| panic!("{path}: no {field} in {text}"));
        let (_, wanted) = line.split_once("; it must be ").unwrap();
        assert!(code == 1 && wanted.contains(VERSION), "{code}: {text}");
    }
}

#[test]
fn actions_are_named_by_their_commits() {
    let repository = Repository::copy();
    let pinned = "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1";
    repository.replace(".github/workflows/check.yml", pinned, "actions/checkout@v7");
    let (code, text) = repository.check(None);
    let wanted = "check.yml: action is \"actions/checkout@v7\"; it must be \"OWNER/NAME@COMMIT # vVERSION\"";
    assert!(code == 1 && text.contains(wanted), "{code}: {text}");
}

#[test]
fn tag_is_on_main() {
    let repository = Repository::copy();
    repository.dated();
    repository.pinned();
    let tag = format!("v{VERSION}");
    repository.git(&["init", "--quiet", "--initial-branch=main"]);
    repository.git(&["commit", "--quiet", "--allow-empty", "--message=one"]);
    let (code, text) = repository.check(Some(&tag));
    assert_eq!(code, 0, "{text}");
    repository.git(&["switch", "--quiet", "--create", "other"]);
    repository.git(&["commit", "--quiet", "--allow-empty", "--message=two"]);
    let (code, text) = repository.check(Some(&tag));
    assert!(
        code == 1 && text.contains("which is not on main"),
        "{code}: {text}"
    );
    repository.git(&["branch", "--quiet", "--delete", "--force", "main"]);
    let (code, text) = repository.check(Some(&tag));
    assert!(code == 1 && text.contains("fetch-depth: 0"), "{code}: {text}");
}

#[test]
fn invalid_date_and_a_failing_helm_are_reported() {
    let repository = Repository::copy();
    repository.replace(
        "CHANGELOG.md",
        "## [Unreleased]",
        &format!("## [{VERSION}] - soon"),
    );
    repository
        .programs
        .add("helm", "echo 'chart is broken' >&2; exit 1");
    let (code, text) = repository.check(None);
    assert_eq!(code, 1, "{text}");
    for wanted in [
        "- soon\"; it must be",
        "helm lint failed",
        "chart is broken",
        "3 of the checks failed",
    ] {
        assert!(text.contains(wanted), "{wanted:?} in {text}");
    }
}

fn annotations() -> Value {
    let chart = fs::read_to_string(Path::new(ROOT).join("charts/redlock-operator/Chart.yaml")).unwrap();
    let chart: Value = serde_yaml::from_str(&chart).unwrap();
    chart["annotations"].clone()
}

/// The annotations that https://artifacthub.io/docs/topics/annotations/helm lists: the name, and the fields
/// of an entry; a text has no fields.
const KNOWN: [(&str, &[&str]); 6] = [
    ("license", &[]),
    ("operator", &[]),
    ("operatorCapabilities", &[]),
    ("images", &["name", "image", "platforms"]),
    ("crds", &["kind", "version", "name", "displayName", "description"]),
    ("links", &["name", "url"]),
];

#[test]
fn the_annotations_of_the_chart_are_valid_for_artifact_hub() {
    let annotations = annotations();
    for (name, value) in annotations.as_object().unwrap() {
        let text = value
            .as_str()
            .unwrap_or_else(|| panic!("{name} must be a string: {value}"));
        let known = KNOWN
            .iter()
            .find(|(known, _)| name.strip_prefix("artifacthub.io/") == Some(known));
        let (_, fields) = known.unwrap_or_else(|| panic!("{name} is not known"));
        if fields.is_empty() {
            continue;
        }
        let entries: Vec<Value> =
            serde_yaml::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        for entry in entries {
            let found: Vec<&str> = entry.as_object().unwrap().keys().map(String::as_str).collect();
            assert!(
                found.iter().all(|field| fields.contains(field)),
                "{name}: {found:?}, known are {fields:?}"
            );
            assert!(
                fields[..2].iter().all(|field| found.contains(field)),
                "{name}: {found:?} needs {fields:?}"
            );
        }
    }
    let capabilities = [
        "Basic Install",
        "Seamless Upgrades",
        "Full Lifecycle",
        "Deep Insights",
        "Auto Pilot",
    ];
    let capability = annotations["artifacthub.io/operatorCapabilities"]
        .as_str()
        .unwrap();
    assert!(capabilities.contains(&capability), "{capability}");
}

#[test]
fn the_annotations_list_the_definitions_that_the_chart_installs() {
    let text = annotations()["artifacthub.io/crds"].as_str().unwrap().to_owned();
    let mut listed: Vec<(String, String, String)> = Vec::new();
    for entry in serde_yaml::from_str::<Vec<Value>>(&text).unwrap() {
        let field = |name: &str| entry[name].as_str().unwrap().to_owned();
        listed.push((field("name"), field("kind"), field("version")));
    }
    let mut installed: Vec<(String, String, String)> = Vec::new();
    for entry in Path::new(ROOT).join("crds").read_dir().unwrap() {
        let crd: Value = serde_yaml::from_str(&fs::read_to_string(entry.unwrap().path()).unwrap()).unwrap();
        let text = |pointer: &str| crd.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
        installed.push((
            text("/metadata/name"),
            text("/spec/names/kind"),
            text("/spec/versions/0/name"),
        ));
    }
    listed.sort();
    installed.sort();
    assert_eq!(listed, installed);
}

#[test]
fn the_notes_of_a_release_are_its_section() {
    let repository = Repository::copy();
    repository.dated();
    let notes = |version: &str| {
        let mut command = Command::new(repository.folder.path().join("scripts/release-notes"));
        command
            .arg(version)
            .env_clear()
            .env("PATH", repository.programs.path());
        command.output().unwrap()
    };
    let output = notes(VERSION);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && text.contains("### Added") && !text.contains("## ["),
        "{text}"
    );
    let output = notes("9.9.9");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && text.contains("has no section \"## [9.9.9]\""),
        "{text}"
    );
}
