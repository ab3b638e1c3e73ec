//! Measures an API server that is down for a minute and then slow: leases are not affected.

use std::time::{Duration, Instant};

use crate::fixture::Operator;
use crate::log::{self, Kind, milliseconds};
use crate::stage::{LEASE, Stage};
use crate::statuses::Statuses;
use crate::table;
use redlock_testkit::{Mode, Proxy};

const LOCKS: usize = 100;
const GONE: Duration = Duration::from_secs(60);
/// The delay in each direction, which adds up to a second for each request.
const SLOW: Duration = Duration::from_millis(500);
/// The time over which renewals are counted: longer than two renewals of each lock.
const COUNTED: Duration = Duration::from_secs(20);

pub async fn run() {
    let stage = Stage::new(LOCKS).await;
    let proxy = Proxy::to(stage.plane.address()).await;
    let server = format!("https://localhost:{}", proxy.port());
    let kubeconfig = stage.kubeconfig(Some(server)).await;
    let start = |identity: &str| Operator::start_with(&kubeconfig, stage.namespace.name(), identity, |_| {});
    let mut operators = vec![start("replica-0"), start("replica-1")];
    operators.iter().for_each(Operator::wait_ready);
    stage.wait_held().await;
    stage.wait_reported().await;
    slow(&stage, &proxy, &operators).await;
    gone(&stage, &mut operators).await;
}

async fn gone(stage: &Stage, operators: &mut Vec<Operator>) {
    table::begin(&format!(
        "API server killed for {} s, {LOCKS} locks, 2 replicas",
        GONE.as_secs()
    ));
    let names = stage.lock_names();
    let before = stage.masters.holders(&names).await;
    let began = log::now();
    stage.plane.stop_api_server();
    tokio::time::sleep(GONE).await;
    let after = stage.masters.holders(&names).await;
    let events: Vec<_> = operators
        .iter()
        .flat_map(|o| log::events(&o.child, began))
        .collect();
    let lost = events.iter().filter(|event| event.kind != Kind::Acquired).count();
    table::row("leases lost or given up", &lost.to_string(), "0");
    let moved = before
        .iter()
        .zip(&after)
        .filter(|(before, after)| before != after)
        .count();
    table::row(
        "locks with another holder or token on the masters",
        &moved.to_string(),
        "0",
    );
    // Causes changes that the statuses have to catch up with.
    let mut killed = operators.remove(0);
    killed.child.kill();
    let of_killed =
        |lease: &Option<crate::masters::Lease>| lease.as_ref().is_some_and(|l| l.identity == killed.name);
    let held = after.iter().filter(|lease| of_killed(lease)).count();
    let living: Vec<_> = operators.iter().map(|o| &o.child).collect();
    log::wait_for(&living, Kind::Acquired, held, began).await;
    stage.plane.start_api_server();
    let back = Instant::now();
    stage.wait_reported().await;
    let took = back.elapsed().as_secs_f64();
    let what = format!("{held} takeovers while it was gone: all statuses right, after it is ready again");
    table::row(&what, &format!("{took:.1} s"), "");
}

/// The failed renewals, the won renewals per second, and the average fraction of the lease that was left.
struct Renewals {
    failed: f64,
    per_second: f64,
    margin: f64,
}

async fn renewals(operators: &[Operator]) -> Renewals {
    let read = || {
        let texts: Vec<String> = operators.iter().map(|o| o.get("/metrics").1).collect();
        let sum = |name: &str, label: &str| -> f64 {
            let lines = texts.iter().flat_map(|text| text.lines());
            let lines = lines.filter(|line| line.starts_with(name) && line.contains(label));
            lines
                .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
                .sum()
        };
        let all = sum("redlock_renewals_total", "");
        let won = sum("redlock_renewals_total", "result=\"renewed\"");
        let margins = sum("redlock_renew_margin_ratio_sum", "");
        (
            won,
            all - won,
            margins,
            sum("redlock_renew_margin_ratio_count", ""),
        )
    };
    let (began, before) = (Instant::now(), read());
    tokio::time::sleep(COUNTED).await;
    let after = read();
    Renewals {
        failed: after.1 - before.1,
        per_second: (after.0 - before.0) / began.elapsed().as_secs_f64(),
        margin: (after.2 - before.2) / (after.3 - before.3),
    }
}

async fn slow(stage: &Stage, proxy: &Proxy, operators: &[Operator]) {
    table::begin(&format!(
        "API server slow, 1 s a request, {LOCKS} locks, 2 replicas"
    ));
    tokio::time::sleep(LEASE / 2).await;
    let ordinary = renewals(operators).await;
    let began = log::now();
    proxy.set(Mode::Delay(SLOW));
    let slow = renewals(operators).await;
    for (what, renewals) in [("as usual", &ordinary), ("slow", &slow)] {
        let measured = format!(
            "{:.1}/s, {:.0} failed, {:.1} % of the lease left on average",
            renewals.per_second,
            renewals.failed,
            renewals.margin * 100.0
        );
        table::row(&format!("renewals, {what}"), &measured, "unaffected");
    }
    let events: Vec<_> = operators
        .iter()
        .flat_map(|o| log::events(&o.child, began))
        .collect();
    table::row("leases that changed", &events.len().to_string(), "0");
    // A transition while the API server is slow is reported, only later.
    let statuses = Statuses::watch(stage.api());
    stage
        .patch(
            0,
            serde_json::json!({"state": "SteppedDown", "reason": "measured"}),
        )
        .await;
    let children: Vec<_> = operators.iter().map(|o| &o.child).collect();
    log::wait_for(&children, Kind::GivenUp, 1, began).await;
    stage
        .patch(0, serde_json::json!({"state": "Enabled", "reason": null}))
        .await;
    let events = log::wait_for(&children, Kind::Acquired, 1, began).await;
    stage.wait_reported().await;
    let acquired = events.iter().find(|event| event.kind == Kind::Acquired).unwrap();
    let reported = statuses
        .reported_at(&acquired.lock, acquired.token)
        .expect("the status reports the holder");
    let took = milliseconds(reported, acquired.at);
    table::row(
        "a transition meanwhile is in the status after",
        &format!("{took:.0} ms"),
        "",
    );
    proxy.heal();
    stage.wait_reported().await;
}
