//! Tests mistakes in objects and around them: a condition names each mistake soon, and its repair is noticed.

use std::time::Duration;

use serde_json::Value;

use crate::pauses::Answers;
use crate::world::{World, condition, message, quorum_of, timed};
use redlock_testkit::{FakeServer, RedisServer, Scripts, ServerOptions};

/// The documented limit is two seconds; the rest is for a machine that runs all tests at once. A longer pause of the
/// machine is measured.
const SOON: Duration = Duration::from_secs(8);
const PASSWORD: &str = "right";

fn server(password: Option<&str>) -> RedisServer {
    RedisServer::start(&ServerOptions {
        password: password.map(str::to_owned),
        ..ServerOptions::default()
    })
    .unwrap()
}

fn secret(name: &str, data: &str) -> String {
    format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\nstringData: {data}\n")
}

fn lock(name: &str, quorum: &str, more: &str) -> String {
    format!(
        "apiVersion: redlock.dev/v1alpha1\nkind: LeaderLock\nmetadata: {{name: {name}}}\n\
         spec: {{quorumRef: {{name: {quorum}}}, leaseDurationSeconds: 6{more}}}\n"
    )
}

/// An object with a mistake. `shows` waits for its condition.
struct Case<'a> {
    world: &'a World,
    /// `quorum` or `lock`.
    kind: &'a str,
    name: &'a str,
    answers: &'a Answers,
}

impl Case<'_> {
    /// Waits until the condition has this reason and `text` in its message.
    async fn shows(&self, kind: &str, reason: &str, text: &str) -> Value {
        let what = format!("{} {}: {kind} {reason}", self.kind, self.name);
        self.answers.reset();
        let (status, took) = timed(&what, async || {
            let status = match self.kind {
                "quorum" => serde_json::to_value(self.world.quorums().get(self.name).await.unwrap().status),
                _ => serde_json::to_value(self.world.locks().get(self.name).await.unwrap().status),
            };
            let status = status.unwrap();
            if condition(&status, kind).1 == reason && message(&status, kind).contains(text) {
                Ok(status)
            } else {
                Err(status)
            }
        })
        .await;
        let delay = self.answers.delay();
        assert!(
            took < SOON + delay,
            "{what} took {took:?} with a pause of {delay:?}"
        );
        println!("            {}", message(&status, kind));
        status
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_is_named_within_two_seconds_and_its_repair_is_noticed() {
    let masters = (0..3).map(|_| server(Some(PASSWORD))).collect();
    let world = World::of(masters, World::small_options()).await;
    let operator = world.operator("replica-1").await;
    operator.wait_ready();
    let namespace = world.namespace.name().to_owned();
    let quorum = |name: &str| {
        let more = format!(
            "  firstStart: Immediate\n  keyPrefix: {name}\n  auth: {{secretRef: {{name: {name}, namespace: {namespace}}}}}\n"
        );
        world.quorum(name, &more)
    };
    let answers = Answers::of(operator.port());
    let case = |kind, name| Case {
        world: &world,
        kind,
        name,
        answers: &answers,
    };

    // The quorum does not exist.
    world.apply(&lock("orphan", "absent", ""));
    case("lock", "orphan")
        .shows("Ready", "QuorumNotFound", "absent")
        .await;
    // The Secret does not exist.
    world.apply(&quorum("absent"));
    case("quorum", "absent")
        .shows("Ready", "SecretNotFound", "absent")
        .await;
    case("lock", "orphan")
        .shows("Ready", "QuorumNotUsable", "SecretNotFound")
        .await;
    // The key is missing in the Secret.
    world.apply(&secret("absent", "{username: default}"));
    case("quorum", "absent")
        .shows("Ready", "SecretKeyMissing", "password")
        .await;
    world.apply(&secret("absent", "{username: default, password: \"\\n\"}"));
    case("quorum", "absent")
        .shows("Ready", "SecretKeyMissing", "is empty")
        .await;
    // The password is wrong.
    world.apply(&secret("absent", "{username: default, password: wrong}"));
    let status = case("quorum", "absent")
        .shows("Ready", "CredentialsRefused", "WRONGPASS")
        .await;
    assert!(!status.to_string().contains("wrong\""), "{status:#}");
    case("lock", "orphan")
        .shows("QuorumAvailable", "NoMajority", "absent")
        .await;
    // Everything is correct.
    world.apply(&secret(
        "absent",
        &format!("{{username: default, password: {PASSWORD}}}"),
    ));
    case("quorum", "absent")
        .shows("Ready", "MajorityVotes", "3 of 3")
        .await;
    case("lock", "orphan")
        .shows("Held", "HeldHere", "replica-1")
        .await;

    // This Secret is in a namespace for which the chart grants no right.
    let elsewhere = quorum_of(
        "elsewhere",
        &world.masters.iter().map(RedisServer::url).collect::<Vec<_>>(),
        "  keyPrefix: elsewhere\n  auth: {secretRef: {name: x, namespace: kube-system}}\n",
    );
    world.apply(&elsewhere);
    case("quorum", "elsewhere")
        .shows("Ready", "SecretNotReadable", "kube-system/x")
        .await;

    servers_that_are_not_there(&world, &case("quorum", "away"), &case("quorum", "nowhere")).await;
    servers_that_are_one(&world, &case("quorum", "one")).await;
    servers_that_cannot_keep_leases(&world, &case("quorum", "others")).await;
    answers.end();
    let log = operator.child.stderr().join("\n");
    assert!(!log.contains(PASSWORD), "{log}");
}

async fn servers_that_are_not_there(world: &World, away: &Case<'_>, nowhere: &Case<'_>) {
    let servers: Vec<RedisServer> = (0..3).map(|_| server(None)).collect();
    let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
    servers[1].kill();
    servers[2].kill();
    world.apply(&quorum_of("away", &urls, "  firstStart: Immediate\n"));
    away.shows("Ready", "Unreachable", "m1: ").await;
    servers[1].restart().unwrap();
    servers[2].restart().unwrap();
    away.shows("Ready", "MajorityVotes", "3 of 3").await;
    servers[0].kill();
    away.shows("Degraded", "Unreachable", "2 of 3").await;

    let urls = ["redis://no-such-host.invalid", "redis://192.0.2.1", &urls[0]].map(str::to_owned);
    world.apply(&quorum_of("nowhere", &urls, "  keyPrefix: nowhere\n"));
    nowhere.shows("Ready", "Unreachable", "m0: ").await;
}

async fn servers_that_are_one(world: &World, case: &Case<'_>) {
    let servers: Vec<RedisServer> = (0..3).map(|_| server(None)).collect();
    let port = servers[0].port();
    let mut urls = vec![
        servers[0].url(),
        format!("redis://localhost:{port}"),
        format!("redis://127.1:{port}"),
    ];
    world.apply(&quorum_of(case.name, &urls, "  firstStart: Immediate\n"));
    case.shows("Ready", "SameServer", "same server").await;
    let status = case.shows("Safe", "Unfit", "same server").await;
    assert_eq!(condition(&status, "Safe").0, "False");
    for (index, server) in servers.iter().enumerate().skip(1) {
        urls[index] = server.url();
    }
    world.apply(&quorum_of(case.name, &urls, "  firstStart: Immediate\n"));
    case.shows("Ready", "MajorityVotes", "3 of 3").await;
}

async fn servers_that_cannot_keep_leases(world: &World, case: &Case<'_>) {
    let server = server(None);
    let dragonfly = "redis_version:7.4.0\ndragonfly_version:df-v1.40.1";
    let garnet = "garnet_version:1.1.9\nredis_version:7.4.3";
    let fakes = [
        FakeServer::start(Some(dragonfly), Scripts::Facts { role: "master" }),
        FakeServer::start(Some(garnet), Scripts::Unknown),
    ];
    let urls = [fakes[0].url(), fakes[1].url(), server.url()];
    world.apply(&quorum_of(case.name, &urls, "  firstStart: Immediate\n"));
    case.shows(
        "Ready",
        "ServerUnsupported",
        "Dragonfly df-v1.40.1 cannot be a master",
    )
    .await;
    case.shows("Safe", "Unfit", "Garnet 1.1.9 cannot be a master")
        .await;
    // The condition may be written before the third master has answered.
    let status = world
        .quorum_status(case.name, "knows all three", |status| {
            status["masters"][2]["version"].is_string()
        })
        .await;
    let programs = ["Dragonfly", "Garnet"].map(Value::from);
    assert_eq!([0, 1].map(|n| status["masters"][n]["server"].clone()), programs);
    let of_server = &status["masters"][2];
    assert!(
        ["Redis", "Valkey"].contains(&of_server["server"].as_str().unwrap()),
        "{status:#}"
    );
}
