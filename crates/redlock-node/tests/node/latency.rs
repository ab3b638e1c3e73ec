//! How long before or after the end of a permit the last code of a pod runs.

use std::process::Command;

use redlock_testkit::ChildGuard;

use super::world::World;

const TRIALS: usize = 200;

/// Prints the distribution over 200 ends beside `stress -c 4`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement of about half an hour"]
async fn margin_at_the_end_of_a_permit() {
    let Some(mut world) = World::guarded("the latency of a freeze").await else {
        return;
    };
    let trials = std::env::var("REDLOCK_TRIALS").map_or(TRIALS, |text| text.parse().unwrap());
    let _holder = world.holder("here").await;
    let pod = world.run_pod().await;
    let _load = ChildGuard::spawn("stress", Command::new("stress").args(["-c", "4"]));
    // Of the last code of the pod before the end of the permit, in microseconds.
    let mut margins = Vec::new();
    for trial in 0..trials {
        world.cut();
        pod.frozen().await;
        let (last, until) = (pod.last().unwrap(), pod.valid_until());
        let margin = i128::from(until.as_nanos()) - i128::from(last.as_nanos());
        margins.push(margin / 1_000);
        world.heal();
        pod.writes().await;
        world.lines("Thawed", trial + 1).await;
    }
    margins.sort_unstable();
    let part = |percent: usize| margins[(margins.len() - 1) * (100 - percent) / 100];
    println!(
        "{trials} trials: the last code of the pod ran before the end of its permit by p50 {} µs, p99 {} µs, least {} µs",
        part(50),
        part(99),
        margins[0]
    );
    assert!(margins[0] > 0, "code ran after the end: {margins:?}");
}
