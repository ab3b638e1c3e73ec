//! Tests that only authorized clients may read `/metrics` and `/locks`.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::common::http::wait_alive;
use crate::fixture::BOUND;
use crate::world::World;
use redlock_testkit::{eventually, free_port};

/// Sends a request with this value of `Authorization`; returns status and body.
fn get(port: u16, path: &str, authorization: Option<&str>) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let header = authorization.map_or_else(String::new, |value| format!("Authorization: {value}\r\n"));
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}Connection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn token(world: &World, account: &str) -> String {
    let token = world.kubectl(&["create", "token", account]);
    format!("Bearer {}", token.trim())
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_and_locks_need_a_token_whose_user_may_get_them() {
    let world = World::small(3).await;
    let namespace = world.namespace.name().to_owned();
    let value = ["metrics.requireToken=true"];
    world.plane.install_rbac_with(&namespace, &value).await;
    for account in ["reader", "stranger"] {
        world.kubectl(&["create", "serviceaccount", account]);
    }
    let role = format!("--clusterrole={namespace}:redlock-operator-metrics-reader");
    let account = format!("--serviceaccount={namespace}:reader");
    world.kubectl(&["create", "clusterrolebinding", "reader", &role, &account]);
    let operator = world
        .operator_with("replica-1", |command| {
            command.args(["--require-token", "true"]);
        })
        .await;
    let port = operator.port();
    let (reader, stranger) = (token(&world, "reader"), token(&world, "stranger"));
    for path in ["/metrics", "/locks"] {
        assert_eq!(get(port, path, None).0, 401, "{path}");
        assert_eq!(get(port, path, Some("Basic abc")).0, 401, "{path}");
        assert_eq!(get(port, path, Some("Bearer made-up")).0, 401, "{path}");
        let (status, body) = get(port, path, Some(&stranger));
        assert_eq!(status, 403, "{path}: {body}");
        assert!(body.contains("stranger") && body.contains(path), "{body}");
        eventually(BOUND, "the binding is in effect", async || {
            match get(port, path, Some(&reader)) {
                (200, _) => Ok(()),
                other => Err(other),
            }
        })
        .await;
    }
    // The kubelet has no token.
    wait_alive(port);
    operator.wait_ready();
    // Answers are cached: a scrape does not cause a request to the API server each time.
    let asked = || {
        let reviews = |event: &crate::fixture::audit::Event| {
            let object = event.object_ref.as_ref();
            object.is_some_and(|object| object.resource == "tokenreviews")
        };
        world.requests().iter().filter(|event| reviews(event)).count()
    };
    let before = asked();
    assert!(before > 0);
    for _ in 0..20 {
        assert_eq!(get(port, "/metrics", Some(&reader)).0, 200);
    }
    assert_eq!(asked(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_review_tokens_nothing_is_answered() {
    let world = World::small(3).await;
    let details = free_port().unwrap();
    let operator = world
        .operator_with("replica-1", |command| {
            command.args(["--require-token", "true"]);
            command.args(["--listen-details", &format!("127.0.0.1:{details}")]);
        })
        .await;
    world.kubectl(&["create", "serviceaccount", "reader"]);
    let reader = token(&world, "reader");
    assert_eq!(get(details, "/metrics", Some(&reader)).0, 503);
    assert_eq!(get(details, "/locks", None).0, 401);
    // These paths are not served at the address of the probes, and the probes are not served at this one.
    for path in ["/metrics", "/locks"] {
        assert_eq!(get(operator.port(), path, Some(&reader)).0, 404, "{path}");
    }
    wait_alive(operator.port());
    assert_eq!(get(details, "/livez", None).0, 404);
}
