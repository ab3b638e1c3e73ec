//! Tests the examples on real servers.

// The lints exempt test functions, but not the programs.
#[allow(dead_code, reason = "the program has a main of its own")]
#[path = "../examples/exactly_one_worker.rs"]
mod exactly_one_worker;
#[allow(dead_code, reason = "the program has a main of its own")]
#[path = "../examples/guarded_write.rs"]
mod guarded_write;

use std::{error::Error, time::Duration};

use redlock_testkit::{RedisServer, RedisServers, ServerOptions, eventually};

/// Starts three masters and seals them. If a master answers late on a busy machine, the sealing fails, and the helper
/// starts new masters.
async fn sealed(seal: impl AsyncFn(&[String]) -> Result<(), Box<dyn Error + Send + Sync>>) -> RedisServers {
    eventually(Duration::from_secs(60), "sealed masters", async || {
        let servers = RedisServers::start(3, &ServerOptions::default())?;
        seal(&servers.urls()).await.map(|()| servers)
    })
    .await
}

#[tokio::test]
async fn one_worker_works_at_a_time_and_the_other_continues_with_a_greater_token() {
    let servers = sealed(exactly_one_worker::seal).await;
    let steps = exactly_one_worker::relay(&servers.urls()).await.unwrap();
    let change = steps
        .iter()
        .position(|step| step.worker != steps[0].worker)
        .unwrap();
    let (before, after) = steps.split_at(change);
    assert!(
        before.iter().all(|step| step.token == before[0].token),
        "{steps:?}"
    );
    assert!(
        after
            .iter()
            .all(|step| step.worker == after[0].worker && step.token == after[0].token),
        "{steps:?}"
    );
    assert!(before[0].token < after[0].token, "{steps:?}");
}

#[tokio::test]
async fn the_late_write_of_a_former_holder_is_refused() {
    use guarded_write::Write::{Accepted, Refused};
    let servers = sealed(guarded_write::seal).await;
    let resource = RedisServer::start(&ServerOptions::default()).unwrap();
    let outcome = guarded_write::run(&servers.urls(), &resource.url())
        .await
        .unwrap();
    assert!(outcome.tokens.0 < outcome.tokens.1, "{outcome:?}");
    assert_eq!(
        (outcome.first, outcome.second, outcome.late),
        (Accepted, Accepted, Refused)
    );
}

#[test]
fn the_page_runs_programs_that_are_there() {
    let page = include_str!("../README.md");
    let file = "crates/redlock-client/tests/examples.rs";
    let (_, block) = page
        .split_once(&format!("<!-- runs: {file} -->\n```sh\n"))
        .unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let programs = ["guarded_write", "exactly_one_worker"]
        .map(|name| format!("cargo run --package redlock-client --example {name}\n"));
    assert_eq!(block, programs.concat(), "crates/redlock-client/README.md");
}
