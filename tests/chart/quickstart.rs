//! Tests the masters of the quickstart with a real server: their configuration, and when one is ready.

use std::process::Command;

use redlock_testkit::free_port;
use serde_json::{Value, json};

use crate::render::{of_kind, one, render, try_render};
use redlock_testkit::{ChildGuard, eventually_blocking};

const ON: &str = "quickstart.enabled=true";
const PASSWORD: &str = "a password";

/// A container of the StatefulSet on this machine: the same shell lines, on another port and folder.
struct Master {
    port: u16,
    folder: tempfile::TempDir,
    container: Value,
}

impl Master {
    fn new() -> Self {
        let objects = render(&[ON]);
        Self {
            port: free_port().unwrap(),
            folder: tempfile::tempdir().unwrap(),
            container: one(&objects, "StatefulSet")["spec"]["template"]["spec"]["containers"][0].clone(),
        }
    }

    fn command(&self, words: &Value) -> Command {
        let text = |word: &Value| {
            let word = word
                .as_str()
                .unwrap()
                .replace("port 6379", &format!("port {}", self.port));
            let word = word.replace("redis-cli ", &format!("redis-cli -p {} ", self.port));
            word.replace("dir /data", &format!("dir {}", self.folder.path().display()))
        };
        let words: Vec<String> = words.as_array().unwrap().iter().map(text).collect();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env("REDISCLI_AUTH", PASSWORD);
        command
    }

    fn start(&self) -> ChildGuard {
        let server = ChildGuard::spawn("master", &mut self.command(&self.container["command"]));
        eventually_blocking(std::time::Duration::from_secs(30), "it answers", || {
            let answer = self.cli(&["ping"]);
            if answer == "PONG" { Ok(()) } else { Err(answer) }
        });
        server
    }

    fn cli(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("redis-cli");
        command
            .args(["-p", &self.port.to_string()])
            .args(arguments)
            .env("REDISCLI_AUTH", PASSWORD);
        let output = command
            .output()
            .expect("redis-cli is missing: `make tools` installs it");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn is_ready(&self) -> bool {
        let probe = &self.container["readinessProbe"]["exec"]["command"];
        self.command(probe).output().unwrap().status.success()
    }

    fn seal(&self) {
        let info = self.cli(&["info"]);
        let field = |name: &str| {
            info.lines()
                .find_map(|line| line.trim().strip_prefix(name))
                .unwrap()
        };
        let replication = format!("{}|0", field("master_replid:"));
        let run_id = field("run_id:");
        self.cli(&[
            "hset",
            "redlock:meta",
            "seal",
            run_id,
            "replication",
            &replication,
        ]);
    }
}

#[test]
fn a_master_is_ready_when_it_is_sealed_under_its_own_run() {
    let master = Master::new();
    let mut server = master.start();
    assert_eq!(
        master.cli(&["config", "get", "maxmemory-policy"]),
        "maxmemory-policy\nnoeviction"
    );
    assert_eq!(master.cli(&["config", "get", "appendonly"]), "appendonly\nyes");
    assert!(!master.is_ready(), "never sealed");
    master.seal();
    assert!(master.is_ready());
    master.cli(&["save"]);
    server.signal(nix::sys::signal::Signal::SIGTERM);
    server.wait(std::time::Duration::from_secs(30));
    // Its file has the seal of the previous run.
    let _server = master.start();
    assert_ne!(master.cli(&["hget", "redlock:meta", "seal"]), "");
    assert!(!master.is_ready(), "the seal of another run");
    master.seal();
    assert!(master.is_ready());
    master.cli(&["replicaof", "127.0.0.1", "1"]);
    master.cli(&["replicaof", "no", "one"]);
    assert!(!master.is_ready(), "the seal from before a promotion");
    let without = Command::new("redis-cli")
        .args(["-p", &master.port.to_string(), "ping"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&without.stdout).contains("NOAUTH"));
}

#[test]
fn masters_start_together_and_are_rolled_one_by_one() {
    let objects = render(&[ON]);
    let masters = &one(&objects, "StatefulSet")["spec"];
    assert_eq!(masters["replicas"], 3);
    assert_eq!(masters["podManagementPolicy"], "Parallel");
    assert_eq!(
        masters["updateStrategy"],
        Value::Null,
        "RollingUpdate, one at a time"
    );
    let labels = &masters["selector"]["matchLabels"];
    assert_eq!(labels["app.kubernetes.io/component"], "quickstart-master");
    assert_eq!(&masters["template"]["metadata"]["labels"], labels);
    let services = of_kind(&objects, "Service");
    let service = services
        .into_iter()
        .find(|service| &service["spec"]["selector"] == labels)
        .unwrap();
    assert_eq!(service["spec"]["clusterIP"], "None");
    assert_eq!(
        service["spec"]["publishNotReadyAddresses"], true,
        "nobody could seal them"
    );
    let budgets = of_kind(&objects, "PodDisruptionBudget");
    assert!(
        budgets
            .iter()
            .any(|budget| &budget["spec"]["selector"]["matchLabels"] == labels
                && budget["spec"]["maxUnavailable"] == 1)
    );
}

#[test]
fn the_quorum_names_the_masters_and_their_password() {
    let objects = render(&[ON, "quickstart.masters=5", "quickstart.quorumName=tryout"]);
    let all = of_kind(&objects, "ConfigMap");
    let text = all
        .iter()
        .find_map(|map| map["data"]["quorums.yaml"].as_str())
        .unwrap();
    let quorum: Value = serde_yaml::from_str(text.trim_start_matches("---\n")).unwrap();
    assert_eq!(quorum["metadata"]["name"], "tryout");
    assert_eq!(quorum["spec"]["firstStart"], "Immediate");
    let master = json!({
        "name": "m4",
        "url": "redis://redlock-operator-quickstart-4.redlock-operator-quickstart.redlock.svc:6379",
    });
    assert_eq!(quorum["spec"]["masters"][4], master);
    let secret = &quorum["spec"]["auth"]["secretRef"]["name"];
    let container = &one(&objects, "StatefulSet")["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(&container["env"][0]["valueFrom"]["secretKeyRef"]["name"], secret);
    assert_eq!(one(&objects, "StatefulSet")["spec"]["replicas"], 5);
}

#[test]
fn only_the_operator_creates_the_password() {
    let makes = |values: &[&str]| {
        let text = serde_json::to_string(&render(values)).unwrap();
        (
            text.contains("REDLOCK_NEW_PASSWORD_SECRET"),
            text.contains("-new-password\""),
        )
    };
    assert_eq!(makes(&[]), (false, false));
    assert_eq!(makes(&[ON]), (true, true));
    assert_eq!(makes(&[ON, "quickstart.existingSecret=mine"]), (false, false));
    // A second rendering would have another password.
    assert!(of_kind(&render(&[ON]), "Secret").is_empty());
}

#[test]
fn two_quorums_of_one_name_are_refused() {
    let twice = ["--set=quickstart.enabled=true,quorums.default.masters[0].name=m0"];
    let error = try_render(&twice).unwrap_err();
    assert!(error.contains("quickstart.quorumName"), "{error}");
}
