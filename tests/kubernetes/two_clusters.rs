//! Two clusters, five masters between them, and one workload: it never runs in both at once.
//!
//! This process records the runs of all pods on one clock. A short run is one of the tests; `make
//! soak-targets` runs the long one, and `make soak-fencing` that of node fencing, in which the pods
//! themselves record their runs.

#[path = "two_clusters/cluster.rs"]
mod cluster;
#[path = "two_clusters/controllers.rs"]
mod controllers;
#[path = "two_clusters/episode.rs"]
mod episode;
#[path = "two_clusters/faults.rs"]
mod faults;
#[path = "two_clusters/fenced.rs"]
mod fenced;
#[path = "two_clusters/fenced_node.rs"]
mod fenced_node;
#[path = "two_clusters/inject.rs"]
mod inject;
#[path = "two_clusters/leases.rs"]
mod leases;
#[path = "two_clusters/pair.rs"]
mod pair;
#[path = "two_clusters/soak.rs"]
mod soak;
#[path = "two_clusters/work.rs"]
mod work;
#[path = "two_clusters/writers.rs"]
mod writers;

use fastrand::Rng;

use crate::fixture::{BOUND, kubelet, seed};
use episode::Episode;
use faults::Fault;
use inject::bring_about;
use pair::{Held, Pair};
use redlock_testkit::eventually;
use work::Work;

/// The lease in seconds. A busy machine does not lose it: a loss would restart work that must stay untouched.
const LEASE: u64 = 8;

/// The number of times that a fault is repeated if the machine was too busy to renew the lease.
const ATTEMPTS: usize = 2;

/// Asserts that the work overlaps while the lock is not enforced: later assertions can detect an overlap.
async fn unguarded(pair: &Pair) {
    eventually(
        BOUND,
        "the work runs in both clusters, and that is seen",
        async || {
            let runs = pair.all_runs();
            if kubelet::overlaps(&runs).is_empty() {
                Err(runs)
            } else {
                Ok(())
            }
        },
    )
    .await;
}

/// Plays one fault, from a settled world to a settled world.
async fn episode(pair: &mut Pair, fault: Fault, before: Held, random: &mut Rng) -> Episode {
    let marks = bring_about(pair, fault, before, random).await;
    let after = pair.settled(fault.title()).await;
    Episode::of(pair, fault, before, after, marks)
}

/// Asserts that the tokens of leases strictly increase, in the order in which the leases were won.
fn assert_tokens_increase(pair: &Pair) {
    let mut won = pair.leases();
    won.retain(leases::Lease::is_acquired);
    for pair in won.windows(2) {
        assert!(pair[0].token < pair[1].token, "{pair:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_never_runs_in_both_clusters() {
    let seed = seed();
    let mut random = Rng::with_seed(seed);
    let mut pair = Pair::new(Work::Deployment, LEASE, seed).await;
    unguarded(&pair).await;
    let mut held = pair.enforce().await;
    let faults = [
        Fault::CutFromMasters,
        Fault::CutStandby,
        Fault::Rollout,
        Fault::CutHolder,
        Fault::CutFromApiServer,
        Fault::StepDown,
        Fault::KillSibling,
        Fault::PauseMasters,
        Fault::KillHolder,
        // This fault is the last one: the controllers of the cluster do not follow the API server at once.
        Fault::StopApiServer,
    ];
    let mut allowed = 0;
    for fault in faults {
        let mut attempts = 0..ATTEMPTS;
        loop {
            let episode = episode(&mut pair, fault, held, &mut random).await;
            println!("{}", episode.timeline());
            let overlaps = episode.overlaps();
            // A lease that is also lost on a busy machine is another fault, in which nothing stops the work. The loop
            // repeats such an episode.
            assert!(overlaps.is_empty() || episode.is_double(), "{overlaps:#?}");
            allowed += overlaps.len();
            held = episode.after;
            if !fault.is_unnoticed() || !episode.is_noticed() {
                break;
            }
            let again = episode.is_starved() && attempts.next().is_some();
            assert!(again, "a pod was restarted: {}", fault.title());
        }
    }
    assert_tokens_increase(&pair);
    let overlaps = pair.overlaps();
    assert_eq!(overlaps.len(), allowed, "{overlaps:#?}");
}
