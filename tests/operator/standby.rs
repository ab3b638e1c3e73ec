//! Tests the reports of a process about a lock that it does not hold.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::replica::{BOUND, Folder, Replica, lock, masters};
use redlock_testkit::eventually_blocking;

const STEPPED_DOWN: &str = ", state: SteppedDown, reason: drill";

#[tokio::test]
async fn holder_whose_lease_has_ended_is_no_holder_for_an_observer() {
    let masters = masters(3).await;
    let folder = Folder::with(&masters, &["a"]);
    let mut first = Replica::start("first", &folder);
    first.wait_active("a");
    let aside = Folder::with(&masters, &["a"]);
    aside.write("a.yaml", &lock("a", STEPPED_DOWN));
    let second = Replica::start("second", &aside);
    let holder = |what: &str, wanted: &dyn Fn(&Value) -> bool| {
        eventually_blocking(BOUND, what, || {
            let lock = second.lock("a");
            wanted(&lock).then_some(()).ok_or(lock)
        });
    };
    holder("it sees the holder", &|lock| lock["holderIdentity"] == "first");
    first.child.kill();
    holder("no replica holds it", &|lock| {
        lock["holderIdentity"].is_null() && lock["validForMilliseconds"] == 0
    });
}

fn unheld(replica: &Replica) -> f64 {
    let (_, text) = replica.get("/metrics");
    let mut lines = text.lines();
    let line = lines.find(|line| line.starts_with("redlock_lock_unheld_seconds_total{"));
    line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn time_held_between_two_scrapes_is_not_counted_as_unheld() {
    const HELD: Duration = Duration::from_secs(12);
    let masters = masters(3).await;
    let folder = Folder::with(&masters, &["a"]);
    let mut first = Replica::start("first", &folder);
    first.wait_active("a");
    let before = unheld(&first);
    let since = Instant::now();
    eventually_blocking(BOUND, "held for a while, without a scrape", || {
        assert_eq!(first.lock("a")["role"], "Active");
        (since.elapsed() > HELD).then_some(()).ok_or(())
    });
    folder.write("a.yaml", &lock("a", STEPPED_DOWN));
    first.child.wait_for_line(BOUND, "\"reason\":\"SteppedDown\"");
    let given_up = Instant::now();
    let counted = unheld(&first) - before;
    // The time since the release, and half of the held time for samples that are late on a busy machine.
    let most = given_up.elapsed().as_secs_f64() + HELD.as_secs_f64() / 2.0;
    assert!(counted < most, "{counted} s counted, {most} s at most");
}
