//! Tests connections to the API server that become silent without being closed.

use std::time::Duration;

use crate::fixture::{BOUND, Operator};
use crate::status_claims::{active_by, world};
use crate::targets::{GATE, Gates, guarded};
use crate::world::{lasting, lock, throughout, timed};
use redlock_testkit::{Mode, Proxy, eventually};

/// Longer than the operator waits before it closes a silent connection to the API server.
const CUT: Duration = Duration::from_secs(13);

/// Returns the samples of targets that are enforced.
fn enforced(operator: &Operator) -> Vec<String> {
    let (_, metrics) = operator.get("/metrics");
    let samples = metrics
        .lines()
        .filter(|line| line.starts_with("redlock_target_enforced{"));
    let samples = samples.filter(|line| line.ends_with(" 1"));
    samples.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_to_the_api_server_that_went_silent_is_noticed() {
    let world = world().await;
    let gates = Gates::of(&world);
    let proxy = Proxy::to(world.plane.address()).await;
    let server = format!("https://127.0.0.1:{}", proxy.port());
    let kubeconfig = world.kubeconfig(Some(server)).await;
    let operator = Operator::start_with(&kubeconfig, world.namespace.name(), "replica-1", |_| {});
    world.apply(GATE);
    world.apply(&lasting(&guarded("report", "gate")));
    gates.until("gate", 1).await;
    gates.count("gate", 1).await;
    world
        .lock_status("report", "is active", active_by("replica-1"))
        .await;
    assert_eq!(enforced(&operator).len(), 1);

    proxy.set(Mode::BlackHole);
    throughout(CUT, || {}).await;
    world.apply(&lock("new", ""));
    gates.scale("gate", 0, "kubectl").await;
    eventually(
        BOUND,
        "the status does not claim that the target is enforced",
        async || {
            let enforced = enforced(&operator);
            if enforced.is_empty() {
                Ok(())
            } else {
                Err(enforced)
            }
        },
    )
    .await;
    operator.assert_holds("report", &operator.lock("report")["fencingToken"]);

    // Open connections stay silent and are not closed.
    proxy.strand();
    let (_, took) = timed("it sees what was made meanwhile", async || {
        let seen = operator.lock("new");
        if seen["role"] == "Active" {
            Ok(())
        } else {
            Err(seen)
        }
    })
    .await;
    assert!(took < Duration::from_secs(20), "{took:?}");
    gates.until("gate", 1).await;
    world
        .lock_status("report", "is active", active_by("replica-1"))
        .await;
    eventually(BOUND, "the target is reported as enforced", async || {
        let enforced = enforced(&operator);
        if enforced.len() == 1 {
            Ok(())
        } else {
            Err(enforced)
        }
    })
    .await;
}
