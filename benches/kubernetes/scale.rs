//! Measures ten thousand locks on one operator, and the cost of a second operator that only stands by.

use std::time::{Duration, Instant};

use kube::core::Request;
use kube::core::params::GetParams;

use crate::fixture::{Operator, Options};
use crate::log::{self, Kind};
use crate::stage::{BOUND, LEASE, Stage};
use crate::table;
use crate::usage::{Usage, cpu, memory};

/// `LOCKS=1000` for a quick run.
const LOCKS: usize = 10_000;
const STEADY: Duration = Duration::from_secs(30);
const SCRAPES: usize = 10;

pub async fn run() {
    let locks = std::env::var("LOCKS").map_or(LOCKS, |locks| locks.parse().unwrap());
    // Only the operator works during the measurement.
    let options = Options {
        controller_manager: false,
        ..Options::default()
    };
    let stage = Stage::with(locks, options, Duration::from_secs(60)).await;
    table::begin(&format!("{locks} locks on one operator"));
    let creating = stage.creating.as_secs_f64();
    table::row(
        "creating the objects (the API server's time)",
        &format!("{creating:.1} s"),
        "",
    );

    let written = status_writes(&stage).await;
    let (began, at) = (Instant::now(), log::now());
    let first = stage.operator("replica-0").await;
    let pid = first.child.pid();
    let events = log::wait_for(&[&first.child], Kind::Acquired, locks, at).await;
    let last = events.iter().map(|event| event.at).max().unwrap();
    let held = (last - at).as_secs_f64();
    table::row(
        "from the start of the process to all held",
        &format!("{held:.1} s"),
        "",
    );
    redlock_testkit::eventually(BOUND * 2, "every status is written", async || {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = status_writes(&stage).await - written;
        if now >= locks as f64 { Ok(()) } else { Err(now) }
    })
    .await;
    let reported = began.elapsed().as_secs_f64();
    let used = cpu(pid).as_secs_f64();
    table::row(
        "from the start to all statuses written",
        &format!("{reported:.1} s ({used:.1} s of CPU)"),
        "",
    );
    stage.wait_held().await;

    settle(&stage, &first).await;
    let steady = steady(&stage, &[pid]).await;
    let (now, most) = memory(pid);
    table::row(
        "memory (RSS)",
        &format!("{now:.0} MiB, {most:.0} MiB at most"),
        "≤ 200 MiB",
    );
    table::row(
        "CPU in the steady state",
        &format!("{:.1} % of a core", steady.percent[0]),
        "≤ 10 %",
    );
    let redis = format!(
        "{:.0} script calls/s, {:.0}/s with what they call",
        steady.scripts, steady.calls
    );
    table::row("Redis commands, all 5 masters", &redis, "");
    let (size, slowest) = scrape(&first);
    table::row(
        "`/metrics`",
        &format!("{size:.1} MiB, slowest of {SCRAPES} {slowest:.0} ms"),
        "< 1000 ms",
    );

    let second = stage.operator("replica-1").await;
    second.wait_ready();
    settle(&stage, &second).await;
    let beside = self::steady(&stage, &[pid, second.child.pid()]).await;
    let (now, most) = memory(second.child.pid());
    table::row(
        "a second one that stands by: memory",
        &format!("{now:.0} MiB, {most:.0} MiB at most"),
        "",
    );
    table::row(
        "its CPU in the steady state",
        &format!("{:.1} % of a core", beside.percent[1]),
        "",
    );
    let redis = format!(
        "{:.0} script calls/s, {:.0}/s with what they call",
        beside.scripts, beside.calls
    );
    table::row("Redis commands of both", &redis, "");
    table::row(
        "CPU of the first one meanwhile",
        &format!("{:.1} % of a core", beside.percent[0]),
        "",
    );
    println!("\nLoad average {} at the end.", redlock_bench::stats::load());
}

struct Steady {
    percent: Vec<f64>,
    scripts: f64,
    calls: f64,
}

async fn steady(stage: &Stage, pids: &[u32]) -> Steady {
    let (before, began) = (stage.masters.calls().await, Instant::now());
    let usages: Vec<Usage> = pids.iter().map(|pid| Usage::begin(*pid)).collect();
    tokio::time::sleep(STEADY).await;
    let percent = usages.iter().map(Usage::percent).collect();
    let (after, seconds) = (stage.masters.calls().await, began.elapsed().as_secs_f64());
    Steady {
        percent,
        scripts: (after.0 - before.0) as f64 / seconds,
        calls: (after.1 - before.1) as f64 / seconds,
    }
}

/// Waits until the first renewals are done and the CPU usage is steady: writing the events of the start takes
/// longest.
async fn settle(stage: &Stage, operator: &Operator) {
    tokio::time::sleep(LEASE).await;
    let mut last = f64::INFINITY;
    redlock_testkit::eventually(BOUND * 2, "the operator does no more than before", async || {
        let usage = Usage::begin(operator.child.pid());
        let (before, began) = (writes(stage).await, Instant::now());
        tokio::time::sleep(LEASE / 3).await;
        let rate = (writes(stage).await - before) / began.elapsed().as_secs_f64();
        let percent = usage.percent();
        let settled = rate < 1.0 && percent < last * 1.2;
        last = percent;
        if settled { Ok(()) } else { Err((rate, percent)) }
    })
    .await;
}

fn scrape(operator: &Operator) -> (f64, f64) {
    let mut slowest = Duration::ZERO;
    let mut size = 0;
    for _ in 0..SCRAPES {
        let began = Instant::now();
        let (status, body) = operator.get("/metrics");
        slowest = slowest.max(began.elapsed());
        assert_eq!(status, 200);
        size = body.len();
    }
    (size as f64 / 1024.0 / 1024.0, slowest.as_secs_f64() * 1e3)
}

/// Returns the number of status writes that the API server has counted; only the operator writes statuses here.
async fn status_writes(stage: &Stage) -> f64 {
    count(stage, |line| {
        line.contains("resource=\"leaderlocks\"") && line.contains("subresource=\"status\"")
    })
    .await
}

/// Returns the number of write requests, except those that the API server sends to itself.
async fn writes(stage: &Stage) -> f64 {
    let read = ["GET", "LIST", "WATCH"];
    count(stage, |line| {
        (line.contains("group=\"redlock.dev\"") || line.contains("resource=\"events\""))
            && !read.iter().any(|verb| line.contains(&format!("verb=\"{verb}\"")))
    })
    .await
}

async fn count(stage: &Stage, wanted: impl Fn(&str) -> bool) -> f64 {
    let request = Request::new("").get("metrics", &GetParams::default()).unwrap();
    let text = stage.plane.admin().request_text(request).await.unwrap();
    text.lines()
        .filter(|line| line.starts_with("apiserver_request_total{") && wanted(line))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum()
}
