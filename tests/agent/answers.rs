//! Tests the answers of an agent and their format.

use std::collections::BTreeSet;

use crate::fixture::{Agent, BOUND, LOCK, masters};
use redlock_testkit::eventually_blocking;

const STABLE: [&str; 11] = [
    "lock",
    "role",
    "holder",
    "holderCluster",
    "token",
    "validForMilliseconds",
    "validUntilBootMilliseconds",
    "identity",
    "cluster",
    "quorum",
    "leaseTransitions",
];

#[test]
fn the_active_one_and_a_standby_answer_in_one_shape() {
    let (_servers, urls) = masters();
    let one = Agent::start_with("one", &urls, |command| {
        command.args(["--cluster", "eu-1/uid", "--lease-duration", "10s"]);
        for (name, value) in [("POD_NAMESPACE", "ns"), ("POD_NAME", "web-0"), ("POD_UID", "u0")] {
            command.env(name, value);
        }
    });
    let token = one.wait_active();
    let two = Agent::start("two", &urls);
    two.wait_knows("ns/web-0/u0");
    eventually_blocking(BOUND, "all three vote", || {
        let lock = one.lock();
        (lock["quorum"] == "3/3").then_some(()).ok_or(lock)
    });

    let lock = one.lock();
    let keys: BTreeSet<&str> = lock.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, BTreeSet::from(STABLE));
    assert_eq!(lock["lock"], LOCK);
    assert_eq!(lock["role"], "Active");
    assert_eq!(lock["holder"], "ns/web-0/u0");
    assert_eq!(
        (&lock["identity"], &lock["cluster"]),
        (&lock["holder"], &"eu-1/uid".into())
    );
    assert_eq!(lock["holderCluster"], "eu-1");
    assert_eq!(lock["token"], token);
    assert!((1..=10_000).contains(&lock["validForMilliseconds"].as_u64().unwrap()));
    let boot = redlock::clock::now().as_nanos() / 1_000_000;
    let until = lock["validUntilBootMilliseconds"].as_u64().unwrap();
    assert!((boot..boot + 10_000).contains(&until), "{until} at {boot}");

    let lock = two.lock();
    let keys: BTreeSet<&str> = lock.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, BTreeSet::from(STABLE));
    assert_eq!(
        (&lock["role"], &lock["holder"]),
        (&"Standby".into(), &"ns/web-0/u0".into())
    );
    assert_eq!(
        (&lock["token"], &lock["holderCluster"]),
        (&token.into(), &"eu-1".into())
    );
    assert_eq!(lock["validForMilliseconds"], 0);
    assert!(lock["validUntilBootMilliseconds"].is_null());

    // As with the classic sidecar, the answer is the name of the pod.
    assert_eq!(one.get("/"), (200, "{\"name\":\"web-0\"}".into()));
    assert_eq!(two.get("/"), (200, "{\"name\":\"web-0\"}".into()));
    assert_eq!((one.get("/v1/active").0, two.get("/v1/active").0), (200, 409));
    // Both agents work, active or not.
    for agent in [&one, &two] {
        agent.wait_alive();
        agent.wait_ready();
        assert_eq!(agent.get("/nothing").0, 404);
        assert_eq!(agent.get("/v1/step-down").0, 405);
        assert_eq!(agent.post("/v1/active").0, 405);
    }
    let held = |agent: &Agent| {
        let (_, text) = agent.get("/metrics");
        let component = "component=\"agent\"";
        assert!(text.contains(component), "{text}");
        let series = "redlock_lock_held{lock_namespace=\"ns\",lock=\"api\"";
        let found = text.lines().find(|line| line.starts_with(series));
        found.unwrap_or_else(|| panic!("{text}")).ends_with(" 1")
    };
    assert!(held(&one) && !held(&two));
}

#[test]
fn pods_of_one_name_are_not_taken_for_each_other() {
    let (_servers, urls) = masters();
    let start = |uid: &str, cluster: &str| {
        Agent::start_with(uid, &urls, |command| {
            command.args(["--cluster", cluster, "--lease-duration", "10s"]);
            for (name, value) in [("POD_NAMESPACE", "ns"), ("POD_NAME", "web-0"), ("POD_UID", uid)] {
                command.env(name, value);
            }
        })
    };
    let here = start("u1", "eu-1/a");
    here.wait_active();
    let there = start("u2", "us-1/b");
    there.wait_knows("ns/web-0/u1");
    assert_eq!(here.json("/")["name"], "web-0");
    assert_eq!(there.json("/")["name"], "ns/web-0/u1");
}

#[test]
fn a_manifest_names_the_masters_as_well() {
    let (servers, _) = masters();
    let listed: String = servers
        .iter()
        .enumerate()
        .map(|(index, server)| format!("  - {{name: m{index}, url: \"{}\"}}\n", server.url()))
        .collect();
    let manifest = format!(
        "apiVersion: redlock.dev/v1alpha1\nkind: RedisQuorum\nmetadata: {{name: shared}}\nspec:\n  \
         maxLeaseDurationSeconds: 10\n  masters:\n{listed}"
    );
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    std::fs::write(file.path(), manifest).unwrap();
    let port = redlock_testkit::free_port().unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_redlock"));
    command.args([
        "agent",
        LOCK,
        "--identity",
        "one",
        "--listen",
        &format!("127.0.0.1:{port}"),
    ]);
    command
        .arg("--config")
        .arg(file.path())
        .env_remove("REDLOCK_MASTERS");
    let mut child = redlock_testkit::ChildGuard::spawn("one", &mut command);
    child.wait_for_line(BOUND, "agent started");
    let agent = Agent {
        name: "one".into(),
        child,
        port,
    };
    let lock = agent.wait(200);
    // The quorum does not allow a longer lease.
    assert!(
        (2_000..=10_000).contains(&lock["validForMilliseconds"].as_u64().unwrap()),
        "{lock}"
    );
    assert!(agent.get("/metrics").1.contains("quorum=\"shared\""));
}
