//! Measures how long before the end of its permit the last code of a pod runs, on a busy node.

use std::process::Command;

use nix::sys::signal::Signal;
use redlock_client::lease::BootInstant;
use redlock_core::fence;
use redlock_testkit::{ChildGuard, eventually};

use super::world::{BOUND, Pod, World};

/// Number of measured ends of permits.
const TRIALS: usize = 200;
/// Number of pods whose permits end at the same moment.
const PODS: usize = 5;

fn freeze_before() -> i128 {
    i128::try_from(fence::FREEZE_BEFORE.as_micros()).unwrap()
}

/// Prints the distribution while `stress -c 4` runs. `REDLOCK_ALONE=agent` runs without a guardian,
/// `REDLOCK_ALONE=guardian` with an agent that stands still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement of ten minutes"]
async fn margin_at_the_end_of_a_permit() {
    let Some(mut world) = World::guarded("the latency of a freeze").await else {
        return;
    };
    let alone = std::env::var("REDLOCK_ALONE").unwrap_or_default();
    let trials = std::env::var("REDLOCK_TRIALS").map_or(TRIALS, |text| text.parse().unwrap());
    let _holder = world.holder("here").await;
    let mut pods = Vec::new();
    for _ in 0..PODS {
        pods.push(world.run_pod().await);
    }
    if alone == "agent" {
        world.guardian.as_mut().unwrap().kill();
    }
    let _load = ChildGuard::spawn("stress", Command::new("stress").args(["-c", "4"]));
    // The times from the moment at which a freeze is due until the last code ran, in microseconds.
    let mut late = Vec::new();
    while late.len() < trials {
        if alone == "guardian" {
            world.agent().freeze();
        } else {
            world.cut();
        }
        late.extend(ends(&pods, &world).await);
        if alone == "guardian" {
            world.agent().signal(Signal::SIGCONT);
        }
        world.heal();
        for pod in &pods {
            pod.writes().await;
        }
    }
    late.sort_unstable();
    let part = |percent: usize| late[(late.len() - 1) * percent / 100];
    println!(
        "alone={alone:?}: {} ends of permits, {PODS} at once, beside stress -c 4: the last code of the pod ran after the \
         freeze was due by p50 {} µs, p99 {} µs, max {} µs; the permit ends {} µs after that",
        late.len(),
        part(50),
        part(99),
        part(100),
        freeze_before()
    );
    let guardian = world.guardian.as_ref().unwrap().stderr();
    let froze = |line: &&String| line.contains("froze the pod") && !line.contains("µs");
    guardian.iter().filter(froze).for_each(|line| println!("{line}"));
    assert!(part(100) < freeze_before(), "code ran after the end: {late:?}");
}

/// Waits until the pods are frozen. Returns how long after the freeze was due the last code of each pod ran,
/// in microseconds.
async fn ends(pods: &[Pod], world: &World) -> Vec<i128> {
    // The greatest stored end: with the freeze, the agent stores an earlier end.
    let mut untils = [BootInstant::default(); PODS];
    eventually(BOUND, "the pods are frozen", async || {
        for (until, pod) in untils.iter_mut().zip(pods) {
            *until = pod.stored_until(world).max(*until);
        }
        let running = pods.iter().filter(|pod| !pod.events()["frozen"]).count();
        if running == 0 { Ok(()) } else { Err(running) }
    })
    .await;
    let lateness = |(until, pod): (&BootInstant, &Pod)| {
        let last = pod.last().unwrap();
        i128::from(last.as_nanos() / 1_000) - (i128::from(until.as_nanos() / 1_000) - freeze_before())
    };
    untils.iter().zip(pods).map(lateness).collect()
}
