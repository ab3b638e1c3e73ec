//! A master whose clock is set back, and a cluster that loses the masters.

use std::time::Duration;

use tokio::time;

use super::{runs_elsewhere, with_running_work};

/// The lease of 30 s, the takeover delay of 10 s, and the start. An end that only the wrong clock shows is up to 61 s away.
const TAKEOVER: Duration = Duration::from_secs(45);

/// The other cluster takes the lock over as soon as the lease has ended on the masters whose clocks are right.
pub(super) async fn stepped_clock(seed: u64) -> Result<(), String> {
    let (universe, active) = with_running_work(seed, 2).await?;
    let seconds = if seed.is_multiple_of(2) {
        fastrand::i64(30..60)
    } else {
        fastrand::i64(60..3_600)
    };
    universe.masters.get(0).step_clock(-seconds * 1_000_000);
    time::sleep(Duration::from_millis(fastrand::u64(..5_000))).await;
    universe.cut_from_masters(&active, true);
    universe
        .wait("the other cluster runs the work", TAKEOVER, |universe| {
            runs_elsewhere(universe, &active)
        })
        .await?;
    Ok(())
}
