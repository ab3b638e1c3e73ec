//! Tests a rollout whose new replica cannot use the masters, next to a replica that can.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::fixture::{BOUND, Operator};
use crate::rotation::{USER, secret};
use crate::targets::{GATE, Gates, guarded, install, replica, running_pod};
use crate::world::{World, condition, message, throughout, timed};
use redlock_testkit::{RedisServer, ServerOptions, eventually, patient};

const WRONG: &str = "mistaken";
const JSON_PATH: &str = r#"jsonpath={range .status.conditions[?(@.type=="ReplicasReady")]}{.status} {.reason}: {.message}{"\n"}{end}"#;
/// Longer than a minute after the start, when the event is emitted.
const LONG: Duration = Duration::from_secs(180);

/// Masters with a password, and replica-1, which holds a lock with a target.
struct Scene {
    gates: Gates,
    first: Operator,
    token: Value,
    generation: i64,
    // Dropped last: it returns the control plane to the pool.
    world: World,
}

impl Scene {
    async fn new() -> Self {
        let options = ServerOptions {
            users: vec![USER.into()],
            ..ServerOptions::default()
        };
        // A master that drops a connection is lost while the password is wrong: two of five may do so.
        let masters = (0..5).map(|_| RedisServer::start(&options).unwrap()).collect();
        let world = World::of(masters, World::options()).await;
        install(&world).await;
        let gates = Gates::of(&world);
        world.apply(&secret("first"));
        let auth = format!(
            "  firstStart: Immediate\n  auth: {{secretRef: {{name: masters, namespace: {}}}}}\n",
            world.namespace.name()
        );
        // A busy machine does not lose such leases.
        let long = |text: String| text.replace("Seconds: 6", "Seconds: 15");
        world.apply(&long(world.quorum("default", &auth)));
        let first = replica(&world, "replica-1").await;
        world.apply(GATE);
        world.apply(&long(guarded("report", "gate")));
        let status = world
            .lock_status("report", "is active", |status| {
                status["role"] == "Active" && condition(status, "Enforced").0 == "True"
            })
            .await;
        first.wait_ready();
        probe(&world, &first);
        Self {
            generation: gates.generation("gate").await,
            token: status["fencingToken"].clone(),
            world,
            gates,
            first,
        }
    }

    /// Gives the operators a wrong password; the masters keep theirs.
    async fn mistake(&self) {
        self.world.apply(&secret(WRONG));
        self.world
            .quorum_status("default", "has the wrong password", |status| {
                condition(status, "Degraded") == ("True", "CredentialsRefused")
                    && condition(status, "Ready").0 == "True"
            })
            .await;
    }

    /// Waits until the condition names exactly these replicas; returns its message.
    async fn not_ready(&self, names: &[&str]) -> String {
        let what = format!("the condition names {names:?}");
        let (status, _) = timed(&what, async || {
            let quorum = self.world.quorums().get("default").await.unwrap();
            let status = serde_json::to_value(quorum.status).unwrap();
            let listed = status["notReadyReplicas"].as_array().cloned().unwrap_or_default();
            let listed: Vec<&str> = listed.iter().filter_map(|entry| entry["name"].as_str()).collect();
            let wanted = if names.is_empty() {
                ("True", "NoneReported")
            } else {
                ("False", "ReplicaNotReady")
            };
            let text = message(&status, "ReplicasReady");
            let named = names
                .iter()
                .all(|name| text.contains(&format!("replica {name} ")));
            if listed == names && condition(&status, "ReplicasReady") == wanted && named {
                Ok(status)
            } else {
                Err(status)
            }
        })
        .await;
        // The quorum itself is ready: the reporting replica sees it.
        assert_eq!(condition(&status, "Ready").0, "True", "{status:#}");
        assert!(!status.to_string().contains(WRONG), "{status:#}");
        let text = message(&status, "ReplicasReady").to_owned();
        println!("            {text}");
        text
    }

    async fn assert_untouched(&self) {
        let now = (
            self.gates.replicas("gate").await,
            self.gates.generation("gate").await,
        );
        assert_eq!(now, (1, self.generation), "the target was written to");
    }

    async fn assert_nothing_reserved(&self) {
        for server in &self.world.masters {
            let client = redis::Client::open(server.url()).unwrap();
            let mut connection = patient(&client).await.unwrap();
            let reserved: Vec<String> = redis::cmd("KEYS")
                .arg("redlock:reserved:*")
                .query_async(&mut connection)
                .await
                .unwrap();
            assert!(reserved.is_empty(), "{reserved:?}");
        }
    }
}

/// Probes like a kubelet: the pod is Ready if the replica reports ready.
fn probe(world: &World, replica: &Operator) -> bool {
    let ready = replica.get("/readyz").0 == 200;
    running_pod(world, &replica.name, replica.port(), ready);
    ready
}

#[tokio::test(flavor = "multi_thread")]
async fn rollout_with_a_wrong_password_stalls_with_a_reason_and_continues() {
    let mut scene = Scene::new().await;
    let world = &scene.world;
    scene.mistake().await;
    let mut gone = replica(world, "replica-0").await;
    let second = replica(world, "replica-2").await;
    let text = scene.not_ready(&["replica-0", "replica-2"]).await;
    assert!(text.contains("m0: ") && text.contains("WRONGPASS"), "{text}");
    let described = world.kubectl(&["describe", "redisquorum", "default"]);
    assert!(described.contains("ReplicaNotReady"), "{described}");
    assert!(
        described.contains("replica replica-2 is not ready"),
        "{described}"
    );
    // As in docs/troubleshooting.md.
    let shown = world.kubectl(&["get", "redisquorum", "default", "-o", JSON_PATH]);
    assert!(
        shown.starts_with("False ReplicaNotReady: replica replica-0 is"),
        "{shown}"
    );
    gone.child.kill();

    let what = "an event gives the reason why replica-2 is not ready";
    let notes = eventually(LONG, what, async || {
        assert!(!probe(world, &second), "a pod that sees no majority is Ready");
        scene.first.assert_holds("report", &scene.token);
        let notes = world.events("default", "ReplicaNotReady").await;
        if notes.iter().any(|note| note.contains("replica replica-2 ")) {
            Ok(notes)
        } else {
            Err(notes)
        }
    });
    let notes = notes.await;
    println!("            {notes:?}");
    assert!(notes.iter().all(|note| note.contains("WRONGPASS")), "{notes:?}");
    assert!(notes.iter().all(|note| !note.contains(WRONG)), "{notes:?}");
    // The pod of the other replica no longer exists, and its entry was not written again.
    scene.not_ready(&["replica-2"]).await;
    scene.assert_nothing_reserved().await;
    scene.assert_untouched().await;

    world.apply(&secret("first"));
    scene.not_ready(&[]).await;
    second.wait_ready();
    assert!(probe(world, &second));
    scene.first.assert_holds("report", &scene.token);
    scene.assert_untouched().await;
    // The first replica learns by its watch that its sibling is ready. Nothing shows when.
    throughout(Duration::from_secs(3), || ()).await;
    // The rollout continues: running targets are adopted.
    scene.first.child.signal(Signal::SIGTERM);
    let (exit, _) = scene.first.child.wait(BOUND);
    assert!(exit.success(), "{exit}");
    scene
        .world
        .lock_status("report", "is taken over", |status| {
            status["role"] == "Active" && status["holderIdentity"] == "replica-2"
        })
        .await;
    scene.assert_untouched().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_never_saw_a_majority_adopts_nothing() {
    let mut scene = Scene::new().await;
    scene.mistake().await;
    let second = replica(&scene.world, "replica-2").await;
    scene.not_ready(&["replica-2"]).await;
    assert!(!probe(&scene.world, &second));
    scene.first.assert_holds("report", &scene.token);
    scene.assert_untouched().await;
    scene.first.child.signal(Signal::SIGTERM);
    let (exit, _) = scene.first.child.wait(BOUND);
    assert!(exit.success(), "{exit}");
    scene.assert_nothing_reserved().await;
    assert_eq!(
        scene.gates.replicas("gate").await,
        0,
        "left to a replica that cannot take it"
    );
}
