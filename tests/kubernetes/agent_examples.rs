//! Tests `examples/agent`: the API server accepts the manifests, and the commands of their containers work together.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Container;
use nix::sys::signal::Signal;
use serde::Deserialize;
use serde_json::Value;

use crate::common::http;
use crate::fixture::BOUND;
use crate::program::{init, redlock, redlock_until};
use crate::typed::{commands, typed};
use crate::world::World;
use redlock_testkit::{ChildGuard, RedisServer, eventually_blocking, free_port, write_executable};

/// The port of the manifests; the test replaces it by a free one.
const PORT: &str = "4040";
const FOLDER: &str = "examples/agent";

/// A pod of one Deployment, on this machine.
struct Pod {
    containers: Vec<Container>,
    variables: BTreeMap<String, String>,
    port: u16,
}

impl Pod {
    fn of(file: &str, masters: &str) -> Self {
        let text = fs::read_to_string(Path::new(FOLDER).join(file)).unwrap();
        let deployment = serde_yaml::Deserializer::from_str(&text)
            .map(|document| Value::deserialize(document).unwrap())
            .find(|object| object["kind"] == "Deployment")
            .unwrap();
        let deployment: Deployment = serde_json::from_value(deployment).unwrap();
        let spec = deployment.spec.unwrap().template.spec.unwrap();
        let first = spec.init_containers.unwrap_or_default();
        let variables = [
            ("POD_NAMESPACE", "payments"),
            ("POD_NAME", "pod-0"),
            ("POD_UID", "uid-0"),
            ("REDLOCK_MASTERS", masters),
            ("REDLOCK_CLUSTER", "eu-1/uid"),
        ];
        Self {
            containers: first.into_iter().chain(spec.containers).collect(),
            variables: variables.map(|(name, value)| (name.into(), value.into())).into(),
            port: free_port().unwrap(),
        }
    }

    fn container(&self, name: &str) -> &Container {
        self.containers.iter().find(|found| found.name == name).unwrap()
    }

    /// Returns the whole command line, as the kubelet expands it. An image of redlock begins with the
    /// program.
    fn line(&self, name: &str) -> Vec<String> {
        let container = self.container(name);
        let entry = container
            .command
            .clone()
            .unwrap_or_else(|| vec!["redlock".into()]);
        let words = entry
            .into_iter()
            .chain(container.args.clone().unwrap_or_default());
        words.map(|word| self.expanded(&word)).collect()
    }

    fn expanded(&self, word: &str) -> String {
        let word = word.replace(PORT, &self.port.to_string());
        self.variables.iter().fold(word, |word, (name, value)| {
            word.replace(&format!("$({name})"), value)
        })
    }

    fn start(&self, name: &str) -> ChildGuard {
        let line = self.line(name);
        assert!(line[0].ends_with("redlock"), "{line:?}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
        ChildGuard::spawn(name, self.with_variables(command.args(&line[1..])))
    }

    /// Sets the variables of the pod, and removes those of this process.
    fn with_variables<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        crate::common::forget_variables(command);
        command.envs(&self.variables)
    }
}

/// The programs of the app's image: a shell, and a `wget` with the behaviour of busybox.
struct Image(tempfile::TempDir);

const WGET: &str = "#!/bin/sh
method=GET
for word in \"$@\"; do
  case $word in --post-data=*) method=POST ;; esac
done
exec curl -sf -m 20 -o /dev/null -X $method \"$word\"
";

impl Image {
    fn new() -> Self {
        let curl = Command::new("curl").arg("--version").output();
        assert!(curl.is_ok(), "curl is missing: install the package curl");
        let folder = tempfile::tempdir().unwrap();
        let wget = folder.path().join("wget");
        write_executable(&wget, WGET);
        fs::create_dir(folder.path().join("tmp")).unwrap();
        Self(folder)
    }

    /// Returns a command with its own `/tmp`, and with a stand-in for the server of the app.
    fn command(&self, line: &[String]) -> Command {
        let folder = self.0.path().display();
        let words = line
            .iter()
            .map(|word| word.replace("httpd -f -p 8080 -h /tmp", "sleep 1000"))
            .map(|word| word.replace("/tmp/", &format!("{folder}/tmp/")));
        let words: Vec<String> = words.collect();
        let mut command = Command::new(&words[0]);
        if words[0] == "wget" {
            command = Command::new(self.0.path().join("wget"));
        }
        let path = format!("{folder}:{}", std::env::var("PATH").unwrap());
        command.args(&words[1..]).env("PATH", path);
        command
    }

    fn run(&self, line: &[String]) -> ExitStatus {
        self.command(line).status().unwrap()
    }

    fn has_begun(&self) -> bool {
        self.0.path().join("tmp/begun").exists()
    }
}

fn active(port: u16) -> Option<u16> {
    http::get(port, "/v1/active").ok().map(|(status, _)| status)
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    eventually_blocking(BOUND, what, || condition().then_some(()).ok_or(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_and_the_manifests_work_as_written() {
    let world = World::small(3).await;
    for line in commands("examples/agent/README.md", "tests/kubernetes/agent_examples.rs") {
        typed(&world.plane, &line);
    }
    let shown = typed(
        &world.plane,
        "kubectl get deployments,services,ll -n payments -o name",
    );
    for name in ["ledger", "billing", "scheduler"] {
        assert_eq!(
            shown
                .lines()
                .filter(|line| line.ends_with(&format!("/{name}")))
                .count(),
            3,
            "{shown}"
        );
    }
    let urls: Vec<String> = world.masters.iter().map(RedisServer::url).collect();
    let urls = urls.join(",");
    init(&world.masters, &[], &[]);
    native_sidecar(&urls);
    plain_sidecar(&urls);
    wrapper(&urls);
}

/// Tests that the app waits, runs, and is stopped by its probe after its hook has begun the end.
fn native_sidecar(urls: &str) {
    let pod = Pod::of("native-sidecar.yaml", urls);
    let port = free_port().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
    command.args([
        "agent",
        "payments/ledger",
        "--identity",
        "other",
        "--masters",
        urls,
    ]);
    command.args(["--listen", &format!("127.0.0.1:{port}")]);
    let mut other = ChildGuard::spawn("other", &mut command);
    wait_for("another one is active", || active(port) == Some(200));

    let agent = pod.start("agent");
    wait_for("it stands by", || active(pod.port) == Some(409));
    let image = Image::new();
    let app = pod.container("app");
    let probe = app.liveness_probe.clone().unwrap().exec.unwrap().command.unwrap();
    let expanded = |words: &[String]| -> Vec<String> {
        let words = words.iter();
        words.map(|word| pod.expanded(word)).collect()
    };
    let probe = expanded(&probe);
    let _app = ChildGuard::spawn("app", &mut image.command(&pod.line("app")));
    assert!(image.run(&probe).success(), "it lives while it waits");
    assert!(!image.has_begun());
    other.signal(Signal::SIGTERM);
    wait_for("the app has begun", || image.has_begun());
    assert!(image.run(&probe).success());
    let hook = app
        .lifecycle
        .clone()
        .unwrap()
        .pre_stop
        .unwrap()
        .exec
        .unwrap()
        .command
        .unwrap();
    assert!(image.run(&expanded(&hook)).success());
    assert!(
        !image.run(&probe).success(),
        "it is stopped as soon as it may not act"
    );
    other.wait(BOUND);
    drop(agent);
}

/// Tests that the app works only while the agent is active.
fn plain_sidecar(urls: &str) {
    let pod = Pod::of("sidecar.yaml", urls);
    let image = Image::new();
    let app = ChildGuard::spawn("app", &mut image.command(&pod.line("app")));
    assert!(app.stdout().is_empty());
    let _agent = pod.start("agent");
    wait_for("it works", || app.stdout().iter().any(|line| line == "works"));
    assert_eq!(active(pod.port), Some(200));
    assert_eq!(http::post(pod.port, "/v1/step-down").unwrap().0, 200);
    assert_ne!(active(pod.port), Some(200));
}

/// Tests that the app is started under the lease, with its token.
fn wrapper(urls: &str) {
    let pod = Pod::of("wrapper.yaml", urls);
    let volume = tempfile::tempdir().unwrap();
    let shared = |line: Vec<String>| -> Vec<String> {
        let here = volume.path().to_str().unwrap();
        line.iter()
            .map(|word| word.replace("/redlock/", &format!("{here}/")))
            .collect()
    };
    let install = shared(pod.line("redlock"));
    assert_eq!(install[0], "redlock");
    let install: Vec<&str> = install[1..].iter().map(String::as_str).collect();
    redlock(&install).expect(0, &[]);
    let line = shared(pod.line("app"));
    let mut command = Command::new(&line[0]);
    let mut app = ChildGuard::spawn("app", pod.with_variables(command.args(&line[1..])));
    let output = app.wait_for_line(BOUND, "works with token");
    let token: u64 = output.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(token > 0);
    let status = ["status", "payments/scheduler", "--masters", urls];
    redlock_until(&status, 0, &["payments/pod-0/uid-0"]);
    app.signal(Signal::SIGTERM);
    app.wait(BOUND);
}
