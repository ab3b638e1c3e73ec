//! Tests that the observer reports the state of a master, and that a master is down.

use std::sync::mpsc;
use std::time::Duration;

use redlock_testkit::observer::{Poller, Shown};
use redlock_testkit::{RedisServer, ServerOptions, admin, eventually};

const BOUND: Duration = Duration::from_secs(30);
const EVERY: Duration = Duration::from_millis(5);
const VALUE: &str = "1|eu-1|uid|replica-a|000000000000000000000000000000ab|42";

/// Waits for a read that is as wanted.
async fn wait_for(
    reads: &mpsc::Receiver<Option<Shown>>,
    what: &str,
    wanted: impl Fn(&Option<Shown>) -> bool,
) {
    eventually(BOUND, what, async || {
        let last = reads.try_iter().last();
        match last {
            Some(shown) if wanted(&shown) => Ok(()),
            other => Err(other),
        }
    })
    .await;
}

#[tokio::test]
async fn the_observer_reports_leases_seals_and_a_master_that_is_gone() {
    let server = RedisServer::start(&ServerOptions::default()).unwrap();
    let (sender, seen) = mpsc::channel();
    let report = move |_, shown| drop(sender.send(shown));
    let poller = Poller::start(&[server.url()], &["a/b".to_owned()], EVERY, report).unwrap();
    wait_for(&seen, "a master without seal and lease", |shown| {
        shown
            .as_ref()
            .is_some_and(|shown| !shown.sealed() && !shown.any_lease())
    })
    .await;

    let _: String = admin(&server, &["SET", "redlock:lease:a/b", VALUE, "PX", "60000"]).await;
    wait_for(&seen, "a lease without a seal", |shown| {
        shown.as_ref().is_some_and(|shown| {
            let found = shown.leases().next();
            !shown.sealed() && found.is_some_and(|(lease, ends)| lease.is_some() && ends > shown.at)
        })
    })
    .await;

    let info: redis::InfoDict = admin(&server, &["INFO", "server"]).await;
    let run_id: String = info.get("run_id").unwrap();
    let _: i64 = admin(&server, &["HSET", "redlock:meta", "seal", &run_id]).await;
    wait_for(&seen, "the seal", |shown| {
        shown.as_ref().is_some_and(Shown::sealed)
    })
    .await;

    server.pause().unwrap();
    wait_for(&seen, "a master that hangs", Option::is_none).await;
    server.resume().unwrap();
    server.restart_empty().unwrap();
    wait_for(&seen, "another run without its seal", |shown| {
        shown
            .as_ref()
            .is_some_and(|shown| shown.run_id != run_id && !shown.sealed())
    })
    .await;
    assert!(poller.all_run());
}
