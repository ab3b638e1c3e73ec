//! Tests many slots in two clusters while operators are killed and masters lose memory: each slot runs at
//! most once, nearly all run, and a fault explains each slot that does not run.

#[path = "soak/account.rs"]
mod account;
#[path = "soak/faults.rs"]
mod faults;

use std::time::{Duration, Instant};

use fastrand::Rng;
use redlock::clock;
use tokio::time::sleep;

use super::{
    now,
    pair::{NAMES, Pair, REGISTER, cron_job, declared, label, suspended, yearly},
};
use crate::fixture::kubelet::{Recorder, Run};
use crate::fixture::{BOUND, Kubelet, Options, seed};
use account::{Account, Findings};
use faults::Faults;
use redlock_testkit::eventually;

/// Tests run one at a time: two of them would disturb each other's measurements.
#[tokio::test(flavor = "multi_thread")]
async fn a_few_slots_run_at_most_once_while_operators_are_killed() {
    slots(30, Duration::from_millis(250), Memory::Kept).await.check();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: make soak-slots"]
async fn soak_slots() {
    let count = std::env::var("REDLOCK_SLOTS").map_or(500, |count| count.parse().unwrap());
    slots(count, Duration::from_millis(400), Memory::Kept)
        .await
        .check();
}

/// The check detects a slot that runs twice, which happens when the masters forget the claims.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: make soak-slots"]
async fn soak_control() {
    let findings = slots(60, Duration::from_millis(400), Memory::Lost).await;
    assert!(!findings.twice.is_empty(), "nobody sees it: {findings:?}");
}

/// Returns a lock with a short lease, because operators are killed frequently.
fn short() -> String {
    declared().replace("Seconds: 12", "Seconds: 3")
}

/// The memory of the masters for claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    Kept,
    /// The test deletes each claim from the masters.
    Lost,
}

/// Creates this many slots, one for each `pace` on average.
async fn slots(count: usize, pace: Duration, memory: Memory) -> Findings {
    let seed = seed();
    let mut random = Rng::with_seed(seed);
    let pair = Pair::new(5, Options::default()).await;
    let recorder = Recorder::default();
    let kubelets = [0, 1].map(|cluster| {
        let plane = &pair.clusters[cluster].plane;
        Kubelet::start(plane, NAMES[cluster], random.u64(..), &recorder)
    });
    for world in &pair.clusters {
        world.apply(&yearly());
        world.apply(&short());
    }
    let mut faults = Faults::new(&pair, random.fork()).await;
    pair.is_active(0).await;
    pair.forget_first_start().await;
    faults.second_cluster(&pair).await;
    pair.is_standby(1).await;

    let first = now() - 3_000;
    let mut account = Account::default();
    let began = Instant::now();
    for index in 0..count {
        let (made, name) = (Instant::now(), account.slot(index, clock::now()));
        let slot = first + i64::try_from(index).unwrap();
        let earlier = usize::from(random.bool());
        pair.schedule(earlier, &name, slot).await;
        sleep(pace.mul_f64(random.f64() / 2.0)).await;
        pair.schedule(1 - earlier, &name, slot).await;
        if memory == Memory::Lost {
            pair.set_registers(REGISTER, "0|nobody").await;
        }
        if index == count / 3 && memory == Memory::Kept {
            faults.wipe_one_master_and_stop_another(&pair).await;
        }
        sleep(pace.mul_f64(0.5 + random.f64() / 2.0)).await;
        faults.record_stall(made.elapsed().saturating_sub(pace.mul_f64(1.5)));
        // No fault in the last slots, so that lost slots can be distinguished from those in progress.
        if index + 10 < count {
            faults.maybe(&pair, began.elapsed()).await;
        }
    }
    faults.end(&pair).await;
    for cluster in [0, 1] {
        let what = format!("nothing waits in {}", NAMES[cluster]);
        eventually(BOUND, &what, async || {
            let jobs = pair.all_jobs(cluster).await.into_values();
            let waiting: Vec<_> = jobs.filter(suspended).map(|job| job.metadata.name).collect();
            // Without memory on the masters, a standby sees no claim.
            if waiting.is_empty() || memory == Memory::Lost {
                Ok(())
            } else {
                Err(waiting)
            }
        })
        .await;
    }
    eventually(BOUND, "what was let run runs", async || {
        let mut missing = Vec::new();
        for cluster in [0, 1] {
            for (name, job) in pair.all_jobs(cluster).await {
                if suspended(&job) {
                    continue;
                }
                assert_eq!(label(&job), Some("claimed"), "{name} runs unclaimed");
                let owner = format!("Job {name}");
                let of = |run: &Run| run.cluster == NAMES[cluster] && run.owner == owner;
                if !recorder.runs().iter().any(of) {
                    missing.push(name);
                }
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    })
    .await;
    drop(kubelets);
    account.judge(&pair, &recorder, &faults, began.elapsed())
}

/// Slots of the real controllers: with Forbid, a waiting Job prevents the next one.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: make soak-slots"]
async fn soak_every_minute() {
    let minutes = std::env::var("REDLOCK_MINUTES").map_or(5, |count| count.parse().unwrap());
    let pair = Pair::new(3, Options::default()).await;
    let recorder = Recorder::default();
    let _kubelets = [0, 1].map(|cluster| {
        let plane = &pair.clusters[cluster].plane;
        Kubelet::start(plane, NAMES[cluster], 1, &recorder)
    });
    // The slots of the first minute belong to new masters.
    let mut operators = Vec::new();
    for cluster in [0, 1] {
        pair.clusters[cluster].apply(&short());
        operators.push(pair.operator(cluster, "one").await);
        if cluster == 0 {
            pair.clusters[0].apply(&yearly());
            pair.is_active(0).await;
            pair.forget_first_start().await;
        }
    }
    for world in &pair.clusters {
        world.apply(&cron_job("* * * * *", "Forbid", 1));
    }
    let bound = Duration::from_secs(60 * (minutes + 2));
    let runs = eventually(bound, "so many slots ran", async || {
        let runs = recorder.runs();
        if runs.len() as u64 >= minutes {
            Ok(runs)
        } else {
            Err(runs.len())
        }
    })
    .await;
    // Each run was in the cluster with the lock, which on a busy machine may be the other cluster.
    for run in &runs {
        println!("{} ran in {}", run.owner, run.cluster);
    }
    let minute = |run: &Run| -> u64 { run.owner.rsplit_once('-').unwrap().1.parse().unwrap() };
    let mut slots: Vec<u64> = runs.iter().map(minute).collect();
    slots.sort_unstable();
    let all: Vec<u64> = (slots[0]..).take(slots.len()).collect();
    assert_eq!(slots, all, "each slot once");
    // Each of these Jobs was also created in the other cluster, and deleted there.
    eventually(BOUND, "what ran elsewhere was deleted", async || {
        let notes = ["get", "events.events.k8s.io", "-o", "jsonpath={.items[*].note}"];
        let notes = pair.clusters.iter().map(|world| world.kubectl(&notes));
        let deleted: usize = notes.map(|notes| notes.matches("runs in cluster").count()).sum();
        if deleted >= runs.len() {
            Ok(())
        } else {
            Err(deleted)
        }
    })
    .await;
    println!(
        "{} slots ran once, and their Jobs in the other cluster were deleted",
        runs.len()
    );
}
