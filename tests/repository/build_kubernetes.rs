//! Tests `scripts/build-kubernetes` with a Go that records its arguments and compiles nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use super::programs::Programs;

const PROGRAMS: [&str; 5] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
];
const USED: [&str; 10] = [
    "bash", "sh", "dirname", "awk", "grep", "mkdir", "mktemp", "mv", "rm", "cp",
];

/// Replaces `go`: prints its version and the go.mod of another version, and creates programs that are empty files.
const GO: &str = r#"
echo "go $*" >>"$SAID"
case $1 in
version) echo "go version $GO_VERSION linux/amd64" ;;
list) echo "$UPSTREAM" ;;
mod) echo "\"Dir\": \"$PWD\"" ;;
build)
    case "$*" in
    *cmd/promtool)
        while [ "$1" != -o ]; do shift; done
        cp "$0" "$2/promtool"
        exit ;;
    esac
    cp go.mod "$SAID.mod"
    while [ "$1" != -o ]; do shift; done
    mkdir -p "$2"
    for name in server kube-apiserver kube-controller-manager kube-scheduler kubectl; do cp "$0" "$2$name"; done
    exit "${GO_FAILS:-0}" ;;
install) cp "$0" "$GOBIN/helm" ;;
esac
"#;

/// The go.mod as published, with a module that the go.mod of the other version does not have.
const UPSTREAM: &str = "\
module k8s.io/kubernetes
go 1.24.0
godebug default=go1.24
require example.com/other v1.2.3
replace (
\tk8s.io/api => ./staging/src/k8s.io/api
\tk8s.io/long-gone => ./staging/src/k8s.io/long-gone
)
";

struct System {
    programs: Programs,
    folder: tempfile::TempDir,
}

impl System {
    fn with_go() -> Self {
        let system = Self::without_go();
        system.programs.add("go", GO);
        system
    }

    fn without_go() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("upstream.mod"), UPSTREAM).unwrap();
        Self {
            programs: Programs::real(&USED),
            folder,
        }
    }

    /// Creates a folder with these programs.
    fn assets(&self, names: &[&str]) -> PathBuf {
        let folder = self.file("assets");
        fs::create_dir(&folder).unwrap();
        for name in names {
            self.programs.add("new", "exit 0");
            fs::rename(self.programs.path().join("new"), folder.join(name)).unwrap();
        }
        folder
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn cache(&self, folder: &str) -> PathBuf {
        self.file("cache/redlock-operator").join(folder)
    }

    /// Runs the script before a command that prints its environment.
    fn run(&self, environment: &[(&str, &str)]) -> Output {
        let mut command = self.programs.command("build-kubernetes");
        command
            .args(["sh", "-c", "echo \"$KUBEBUILDER_ASSETS $HELM $PROMTOOL\""])
            .env("XDG_CACHE_HOME", self.file("cache"))
            .env("SAID", self.file("said"))
            .env("UPSTREAM", self.file("upstream.mod"))
            .env("GO_VERSION", "go1.26.0")
            .envs(environment.iter().copied());
        command.output().unwrap()
    }

    /// Returns the arguments of Go since the last call.
    fn arguments(&self) -> String {
        let arguments = fs::read_to_string(self.file("said")).unwrap_or_default();
        let _ = fs::remove_file(self.file("said"));
        arguments
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Returns the environment of the command, after a successful run.
fn given(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone())
        .unwrap()
        .trim_end()
        .to_owned()
}

fn refused(output: &Output, wanted: &str) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(1), "{wanted}: {text}");
    assert!(text.contains(wanted), "{wanted:?} in {text}");
    assert!(output.stdout.is_empty(), "the command does not run");
}

fn all(assets: &Path, helm: &Path, promtool: &Path) -> String {
    format!("{} {} {}", assets.display(), helm.display(), promtool.display())
}

#[test]
fn everything_is_built_once_and_then_there_in_silence() {
    let system = System::with_go();
    let first = system.run(&[]);
    let (assets, helm, promtool) = (
        system.cache("kubernetes-v1.36.3"),
        system.cache("helm-v4.3.1/helm"),
        system.cache("promtool-v3.13.5/promtool"),
    );
    assert_eq!(given(&first), all(&assets, &helm, &promtool));
    let mut found: Vec<String> = assets
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, PROGRAMS);
    assert!(stderr(&first).contains("building Kubernetes v1.36.3"));
    let arguments = system.arguments();
    for wanted in [
        "-mod=readonly",
        "gitVersion=v1.36.3",
        "gitMinor=36 ",
        "helm.sh/helm/v4/cmd/helm@v4.3.1",
        "mod download -json github.com/prometheus/prometheus@v0.313.5",
    ] {
        assert!(arguments.contains(wanted), "{wanted:?} in {arguments}");
    }

    let second = system.run(&[]);
    assert_eq!(given(&second), given(&first));
    assert_eq!(
        (stderr(&second), system.arguments()),
        (String::new(), String::new())
    );
    let left: Vec<_> = system
        .cache("")
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 4, "three folders and the lock: {left:?}");
}

#[test]
fn only_a_missing_program_is_built() {
    let system = System::with_go();
    given(&system.run(&[]));
    system.arguments();
    fs::remove_file(system.cache("kubernetes-v1.36.3/kube-scheduler")).unwrap();
    given(&system.run(&[]));
    let arguments = system.arguments();
    assert!(
        arguments.contains("k8s.io/kubernetes/cmd/kube-scheduler"),
        "{arguments}"
    );
    for other in ["etcd", "kube-apiserver", "kube-controller-manager", "kubectl"] {
        assert!(!arguments.contains(other), "{other}: {arguments}");
    }
}

#[test]
fn another_version_brings_its_own_modules() {
    let system = System::with_go();
    let output = system.run(&[("KUBE_VERSION", "1.33.13")]);
    assert!(given(&output).starts_with(&system.cache("kubernetes-v1.33.13").display().to_string()));
    let arguments = system.arguments();
    for wanted in [
        "k8s.io/kubernetes@v1.33.13",
        "-mod=mod",
        "gitVersion=v1.33.13",
        "gitMinor=33 ",
    ] {
        assert!(arguments.contains(wanted), "{wanted:?} in {arguments}");
    }
    let modules = fs::read_to_string(system.file("said.mod")).unwrap();
    for wanted in [
        "godebug default=go1.24\n",
        "require k8s.io/kubernetes v1.33.13\n",
        "\tk8s.io/api => k8s.io/api v0.33.13\n",
        "\tk8s.io/long-gone => k8s.io/long-gone v0.33.13\n",
    ] {
        assert!(modules.contains(wanted), "{wanted:?} in {modules}");
    }
    assert!(
        !modules.contains("example.com"),
        "the rest is found by way of Kubernetes: {modules}"
    );
    for nonsense in ["latest", "1.33", "2.0.0"] {
        refused(&system.run(&[("KUBE_VERSION", nonsense)]), nonsense);
    }
}

#[test]
fn without_a_new_enough_go_the_error_names_it() {
    let system = System::without_go();
    refused(&system.run(&[]), "go is missing. The tests need Go >= 1.26");
    let system = System::with_go();
    for (version, accepted) in [
        ("go1.9", false),
        ("go1.25.9", false),
        ("what", false),
        ("go1.26rc1", true),
        ("go1.30.1", true),
        ("devel go1.27-abcdef", true),
        ("go2.0", true),
    ] {
        let output = system.run(&[("GO_VERSION", version)]);
        if accepted {
            given(&output);
            fs::remove_dir_all(system.cache("")).unwrap();
        } else {
            refused(&output, "The tests need Go >= 1.26");
            assert!(stderr(&output).contains("https://go.dev/dl/"));
        }
    }
}

#[test]
fn a_folder_that_is_named_is_taken_when_it_is_complete() {
    let system = System::without_go();
    let helm = system.programs.path().join("sh");
    let assets = system.assets(&PROGRAMS);
    let environment = [
        ("KUBEBUILDER_ASSETS", assets.to_str().unwrap()),
        ("HELM", helm.to_str().unwrap()),
        ("PROMTOOL", helm.to_str().unwrap()),
    ];
    assert_eq!(given(&system.run(&environment)), all(&assets, &helm, &helm));
    fs::remove_file(assets.join("etcd")).unwrap();
    fs::remove_file(assets.join("kube-controller-manager")).unwrap();
    refused(&system.run(&environment), ": etcd kube-controller-manager.");
}

#[test]
fn failed_build_leaves_no_programs() {
    let system = System::with_go();
    refused(
        &system.run(&[("GO_FAILS", "1")]),
        "building Kubernetes v1.36.3 failed",
    );
    let left: Vec<_> = system
        .cache("")
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["lock"]);
}

#[test]
fn the_helm_of_the_system_is_taken_when_it_is_new_enough() {
    for (version, accepted) in [
        ("v4.0.1+gabcdef", true),
        ("v3.8.0", true),
        ("v3.7.9", false),
        ("Client: v2.17.0", false),
    ] {
        let system = System::with_go();
        system.programs.add("helm", &format!("echo '{version}'"));
        let output = system.run(&[]);
        let own = system.programs.path().join("helm");
        assert_eq!(
            given(&output).contains(&format!(" {} ", own.display())),
            accepted,
            "{version}"
        );
        assert!(!stderr(&output).contains("error"), "{}", stderr(&output));
    }
}

#[test]
fn the_promtool_of_the_system_is_taken_when_it_is_new_enough() {
    for (version, accepted) in [
        ("promtool, version 3.13.5 (branch: HEAD)", true),
        ("promtool, version 2.42.0 (branch: HEAD)", false),
        ("what", false),
    ] {
        let system = System::with_go();
        system.programs.add("promtool", &format!("echo '{version}'"));
        let output = system.run(&[]);
        let own = system.programs.path().join("promtool");
        assert_eq!(
            given(&output).ends_with(&own.display().to_string()),
            accepted,
            "{version}"
        );
    }
}
