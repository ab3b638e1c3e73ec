//! When the last code of a pod runs before the end of its permit, on a busy node.

use std::process::Command;

use nix::sys::signal::Signal;
use redlock_testkit::ChildGuard;

use super::world::{Pod, World};

/// Ends of permits.
const TRIALS: usize = 200;
/// Whose permits end at the same moment.
const PODS: usize = 5;
const FREEZE_BEFORE: i128 = 50_000;

/// Prints the distribution beside `stress -c 4`. `REDLOCK_ALONE=agent` runs without a guardian, `REDLOCK_ALONE=guardian` with
/// an agent that stands still.
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
    // How long after a freeze is due the last code ran, in microseconds.
    let mut late = Vec::new();
    while late.len() < trials {
        if alone == "guardian" {
            world.agent().freeze();
        } else {
            world.cut();
        }
        for pod in &pods {
            pod.frozen().await;
            late.push(lateness(pod, &world));
        }
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
         freeze was due by p50 {} µs, p99 {} µs, max {} µs; the permit ends 50000 µs after that",
        late.len(),
        part(50),
        part(99),
        part(100)
    );
    assert!(part(100) < FREEZE_BEFORE, "code ran after the end: {late:?}");
}

fn lateness(pod: &Pod, world: &World) -> i128 {
    // The agent stores an earlier end with the freeze, and leaves the volume as it was. One that stands still may not have
    // written the volume.
    let until = pod.stored_until(world).max(pod.valid_until());
    let last = pod.last().unwrap();
    i128::from(last.as_nanos() / 1_000) - (i128::from(until.as_nanos() / 1_000) - FREEZE_BEFORE)
}
