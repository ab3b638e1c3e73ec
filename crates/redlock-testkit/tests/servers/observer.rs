//! Tests that the observer reports the state of a master, and that a master is down.

use std::sync::mpsc;
use std::time::Duration;

use redlock_testkit::observer::{Looks, Shown};
use redlock_testkit::{RedisServer, ServerOptions, admin, eventually};

const BOUND: Duration = Duration::from_secs(30);
const EVERY: Duration = Duration::from_millis(5);
const VALUE: &str = "1|eu-1|uid|replica-a|000000000000000000000000000000ab|42";

/// Waits for a read that is as wanted.
async fn look(looks: &mpsc::Receiver<Option<Shown>>, what: &str, wanted: impl Fn(&Option<Shown>) -> bool) {
    eventually(BOUND, what, async || {
        let last = looks.try_iter().last();
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
    let looks = Looks::start(&[server.url()], &["a/b".to_owned()], EVERY, report).unwrap();
    look(&seen, "a master without seal and lease", |shown| {
        shown
            .as_ref()
            .is_some_and(|shown| !shown.sealed() && !shown.any_lease())
    })
    .await;

    let _: String = admin(&server, &["SET", "redlock:lease:a/b", VALUE, "PX", "60000"]).await;
    look(&seen, "a lease without a seal", |shown| {
        shown.as_ref().is_some_and(|shown| {
            let found = shown.leases().next();
            !shown.sealed() && found.is_some_and(|(lease, ends)| lease.is_some() && ends > shown.at)
        })
    })
    .await;

    let info: redis::InfoDict = admin(&server, &["INFO", "server"]).await;
    let run_id: String = info.get("run_id").unwrap();
    let _: i64 = admin(&server, &["HSET", "redlock:meta", "seal", &run_id]).await;
    look(&seen, "the seal", |shown| {
        shown.as_ref().is_some_and(Shown::sealed)
    })
    .await;

    server.pause().unwrap();
    look(&seen, "a master that hangs", Option::is_none).await;
    server.resume().unwrap();
    server.restart_empty().unwrap();
    look(&seen, "another run without its seal", |shown| {
        shown
            .as_ref()
            .is_some_and(|shown| shown.run_id != run_id && !shown.sealed())
    })
    .await;
    assert!(looks.all_run());
}
