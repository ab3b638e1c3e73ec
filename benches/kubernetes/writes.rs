//! Measures the writes of the operator to the API server while nothing happens, and while one master flaps.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::core::Request;
use kube::core::params::GetParams;
use serde_json::json;

use crate::fixture::{Options, audit};
use crate::log::{self, Kind};
use crate::stage::{Stage, name};
use crate::table;

const LOCKS: usize = 1_000;
const FOR: Duration = Duration::from_secs(120);
/// Number of times that the flapping master is stopped. Each stop is longer than any debounce of the status,
/// and each pause between two stops is as long as a stop.
const STOPS: usize = 4;
const STOPPED: Duration = Duration::from_secs(10);

pub async fn run() {
    let options = Options {
        audit: true,
        ..Options::default()
    };
    let stage = Stage::with(LOCKS, options, Duration::from_secs(60)).await;
    let operators = stage.operators(&["replica-0", "replica-1", "replica-2"]).await;
    table::begin(&format!("API requests of 3 replicas with {LOCKS} held locks"));
    // The operator still writes events of a thousand acquisitions.
    quiet(&stage).await;

    let before = requests(&stage);
    let began = log::now();
    let children: Vec<_> = operators.iter().map(|o| &o.child).collect();
    stage
        .patch(0, json!({"state": "SteppedDown", "reason": "measured"}))
        .await;
    log::wait_for(&children, Kind::GivenUp, 1, began).await;
    stage.patch(0, json!({"state": "Enabled", "reason": null})).await;
    log::wait_for(&children, Kind::Acquired, 1, began).await;
    stage.wait_reported().await;
    quiet(&stage).await;
    let forced = difference(&before, &requests(&stage));
    let of_lock = format!("patch leaderlocks/status {}", name(0));
    let counted = forced.get(&of_lock).copied().unwrap_or(0);
    assert!(counted > 0, "a forced transition is counted: {forced:?}");
    table::row(
        "one lock stepped down and acquired again (shows that writes are counted)",
        &format!("{counted} writes of its status"),
        "> 0",
    );

    let (before, metric) = (requests(&stage), metric(&stage).await);
    tokio::time::sleep(FOR).await;
    let metric = self::metric(&stage).await - metric;
    let steady = difference(&before, &requests(&stage));
    let (writes, reads): (BTreeMap<_, _>, BTreeMap<_, _>) =
        steady.into_iter().partition(|(what, _)| is_write(what));
    let beats = writes
        .get("patch redisquorums/status default")
        .copied()
        .unwrap_or(0);
    let all: usize = writes.values().sum();
    let seconds = FOR.as_secs();
    table::row(
        &format!("writes of the reporter in {seconds} s"),
        &beats.to_string(),
        "one every 30 s",
    );
    table::row(
        "all other writes of the ServiceAccount",
        &(all - beats).to_string(),
        "0",
    );
    table::row(
        "`apiserver_request_total{group=\"redlock.dev\"}`, writes by any client",
        &format!("{metric:.0}"),
        "the same as the reporter's",
    );
    let reads: Vec<String> = reads
        .iter()
        .map(|(what, count)| format!("{count} × {what}"))
        .collect();
    let reads = if reads.is_empty() {
        "none".to_owned()
    } else {
        reads.join(", ")
    };
    table::row(
        &format!("reads in {seconds} s (a watch is one request for minutes)"),
        &reads,
        "`/livez` every 3 s for each replica",
    );
    if all > beats {
        println!("\n{writes:#?}");
    }
    flapping(&stage).await;
}

/// Stops one of five masters several times, so that it hangs and recovers; the majority is never lost.
async fn flapping(stage: &Stage) {
    table::begin(&format!(
        "API writes while one of {} masters flaps, {LOCKS} held locks, 3 replicas",
        crate::stage::MASTERS
    ));
    let before = requests(stage);
    let master = stage.servers.iter().next().unwrap();
    for _ in 0..STOPS {
        master.pause().unwrap();
        tokio::time::sleep(STOPPED).await;
        master.resume().unwrap();
        tokio::time::sleep(STOPPED).await;
    }
    quiet(stage).await;
    let writes = difference(&before, &requests(stage));
    let count = |wanted: &str| -> usize {
        let matching = writes.iter().filter(|(what, _)| what.starts_with(wanted));
        matching.map(|(_, count)| count).sum()
    };
    let times = format!("{STOPS} stops of {} s", STOPPED.as_secs());
    table::row(
        &format!("writes of lock statuses, {times}"),
        &count("patch leaderlocks/status").to_string(),
        "0",
    );
    table::row(
        &format!("writes of the quorum's status, {times}"),
        &count("patch redisquorums/status").to_string(),
        "a few for each change",
    );
    table::row(
        "events",
        &(count("create events") + count("patch events")).to_string(),
        "0",
    );
}

fn is_write(what: &str) -> bool {
    ["create", "update", "patch", "delete"]
        .iter()
        .any(|verb| what.starts_with(verb))
}

/// Waits until the operator writes nothing for some time except the heartbeats of the reporter.
async fn quiet(stage: &Stage) {
    let mut last = (0, log::now());
    redlock_testkit::eventually(
        crate::stage::BOUND * 2,
        "nothing is written any more",
        async || {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let counts = |what: &str| is_write(what) && !what.contains("redisquorums/status");
            let all: usize = requests(stage)
                .iter()
                .filter(|(what, _)| counts(what))
                .map(|(_, count)| count)
                .sum();
            if last.0 != all {
                last = (all, log::now());
            }
            let for_so_long = log::now() - last.1;
            if for_so_long > Duration::from_secs(5) {
                Ok(())
            } else {
                Err(all)
            }
        },
    )
    .await;
}

/// Returns the number of requests of the operator so far, by verb, resource and, for a status, name.
fn requests(stage: &Stage) -> BTreeMap<String, usize> {
    let user = stage.user();
    let mut requests = BTreeMap::new();
    for event in audit::events(&stage.plane.audit_log()) {
        if event.user.username != user || event.stage != "ResponseComplete" && event.verb != "watch" {
            continue;
        }
        let object = event.object_ref.unwrap_or_default();
        let what = if object.subresource.is_empty() {
            format!("{} {}", event.verb, object.resource)
        } else {
            format!(
                "{} {}/{} {}",
                event.verb, object.resource, object.subresource, object.name
            )
        };
        *requests.entry(what).or_default() += 1;
    }
    requests
}

fn difference(before: &BTreeMap<String, usize>, after: &BTreeMap<String, usize>) -> BTreeMap<String, usize> {
    let more = after
        .iter()
        .map(|(what, count)| (what.clone(), count - before.get(what).copied().unwrap_or(0)));
    more.filter(|(_, count)| *count > 0).collect()
}

/// Returns the number of write requests for the project's API group, as the API server itself counts them.
async fn metric(stage: &Stage) -> f64 {
    let request = Request::new("").get("metrics", &GetParams::default()).unwrap();
    let text = stage.plane.admin().request_text(request).await.unwrap();
    text.lines()
        .filter(|line| line.starts_with("apiserver_request_total{") && line.contains("group=\"redlock.dev\""))
        .filter(|line| {
            !["GET", "LIST", "WATCH"]
                .iter()
                .any(|verb| line.contains(&format!("verb=\"{verb}\"")))
        })
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum()
}
