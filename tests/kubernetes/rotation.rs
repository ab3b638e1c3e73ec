//! Tests a change of the password while locks are held.

use std::time::{Duration, Instant};

use crate::fixture::BOUND;
use crate::world::{World, condition, lasting, lock, message, throughout, timed};
use redlock_testkit::{RedisServer, ServerOptions, eventually, patient};

const LEASE: Duration = Duration::from_secs(12);
pub const USER: &str = "app on >first ~redlock:* &redlock:* +@all";

pub fn secret(password: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: masters}}\nstringData: {{username: app, password: {password}}}\n"
    )
}

async fn everywhere(world: &World, words: &[&str]) {
    for server in &world.masters {
        let client = redis::Client::open(server.url()).unwrap();
        let mut connection = patient(&client).await.unwrap();
        let mut command = redis::cmd("ACL");
        command.arg("SETUSER").arg("app").arg(words);
        let _: redis::Value = command.query_async(&mut connection).await.unwrap();
    }
}

/// Another chart made the Secret, from a file that ends with a line break, and knows the default user alone.
#[tokio::test(flavor = "multi_thread")]
async fn secret_of_another_chart_is_used_and_followed() {
    let options = ServerOptions {
        password: Some("first".into()),
        ..ServerOptions::default()
    };
    let masters = (0..3).map(|_| RedisServer::start(&options).unwrap()).collect();
    let world = World::of(masters, World::small_options()).await;
    let secret = |password: &str| {
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: masters}}\nstringData: {{user: \"\", redis-password: \
             \"{password}\\n\", sentinel-password: other}}\n"
        )
    };
    world.apply(&secret("first"));
    let auth = format!(
        "  firstStart: Immediate\n  auth: {{secretRef: {{name: masters, namespace: {}}}, passwordKey: redis-password, \
         usernameKey: user}}\n",
        world.namespace.name()
    );
    world.apply(&lasting(&world.quorum("default", &auth)));
    world.apply(&lasting(&lock("report", "")));
    let _operator = world.operator("replica-1").await;
    world
        .lock_status("report", "is held", |status| status["role"] == "Active")
        .await;
    let ready =
        |reason: &'static str| move |status: &serde_json::Value| condition(status, "Ready").1 == reason;
    world.apply(&secret("wrong"));
    let refused = |status: &serde_json::Value| condition(status, "Degraded").1 == "CredentialsRefused";
    world
        .quorum_status("default", "reports the wrong password", refused)
        .await;
    world.apply(&secret("first"));
    world
        .quorum_status("default", "uses the password again", ready("MajorityVotes"))
        .await;
    world.redlock(&["doctor", "--quorum", "default"]).expect(0, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_rotated_without_losing_a_lease() {
    let options = ServerOptions {
        users: vec![USER.into()],
        ..ServerOptions::default()
    };
    // A master that drops a connection is lost while the password is wrong: two of five may do so.
    let masters = (0..5).map(|_| RedisServer::start(&options).unwrap()).collect();
    let world = World::of(masters, World::small_options()).await;
    world.apply(&secret("first"));
    let auth = format!(
        "  firstStart: Immediate\n  auth: {{secretRef: {{name: masters, namespace: {}}}}}\n",
        world.namespace.name()
    );
    world.apply(&lasting(&world.quorum("default", &auth)));
    world.apply(&lasting(&lock("report", "")));
    let operator = world.operator("replica-1").await;
    let token = world
        .lock_status("report", "is held", |status| status["role"] == "Active")
        .await["fencingToken"]
        .clone();
    let degraded = async |reason: &str, what: &str| {
        let (status, _) = timed(what, async || {
            let status = serde_json::to_value(world.quorums().get("default").await.unwrap().status).unwrap();
            if condition(&status, "Degraded").1 == reason {
                Ok(status)
            } else {
                Err(status)
            }
        })
        .await;
        println!("            {}", message(&status, "Degraded"));
        assert_eq!(condition(&status, "Ready").0, "True", "{status:#}");
        status
    };

    // With a wrong password, nothing is lost, and the quorum reports it.
    world.apply(&secret("wrong"));
    let status = degraded("CredentialsRefused", "a wrong password is reported").await;
    assert!(!status.to_string().contains("first"), "{status:#}");
    throughout(Duration::from_secs(3), || {
        operator.assert_holds("report", &token);
    })
    .await;

    // The repair is accepted: add the new password, change the Secret, remove the old one.
    everywhere(&world, &[">second"]).await;
    world.apply(&secret("second"));
    degraded("AllVote", "the right password is taken").await;
    everywhere(&world, &["<first"]).await;
    let mut least = u64::MAX;
    throughout(Duration::from_secs(3), || {
        least = least.min(operator.assert_holds("report", &token))
    })
    .await;
    println!("at least {least} ms of the lease were left");

    // The masters close every connection: the next connection uses the current content of the Secret.
    for server in &world.masters {
        let client = redis::Client::open(server.url()).unwrap();
        let mut connection = patient(&client).await.unwrap();
        let mut command = redis::cmd("CLIENT");
        command.arg("KILL").arg("USER").arg("app");
        let _: redis::Value = command.query_async(&mut connection).await.unwrap();
    }
    let cut = Instant::now();
    eventually(BOUND, "renewed on new connections", async || {
        let asked = Instant::now();
        let left = operator.assert_holds("report", &token);
        // A lease that was renewed before the cut ends before this time.
        if asked + Duration::from_millis(left) > cut + LEASE {
            Ok(())
        } else {
            Err(left)
        }
    })
    .await;
    let log = operator.child.stderr().join("\n");
    assert!(
        ["first", "second", "wrong"]
            .iter()
            .all(|word| !log.contains(&format!("{word}\""))),
        "{log}"
    );
    let status = world.lock_status("report", "is as it was", |_| true).await;
    assert_eq!(status["leaseTransitions"], 0);
}
