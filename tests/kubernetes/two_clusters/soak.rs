//! The long run: faults in a random order until enough leases have been won.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;

use super::episode::Episode;
use super::faults::Fault;
use super::pair::Pair;
use super::work::Work;
use super::{assert_tokens_increase, controllers, episode, unguarded};
use crate::fixture::{number, seed};

/// The lease in seconds. Most faults last longer.
const LEASE: u64 = 4;

/// Returns all kinds, or the one that `REDLOCK_FAULT` names.
fn kinds() -> Vec<Fault> {
    let mut kinds = Fault::CLOSED.to_vec();
    if let Ok(only) = std::env::var("REDLOCK_FAULT") {
        kinds.retain(|fault| format!("{fault:?}") == only);
        assert!(
            !kinds.is_empty(),
            "unknown fault {only}: expected one of {:?}",
            Fault::CLOSED
        );
    }
    kinds
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes; `make soak-targets` runs it"]
async fn soak_deployment() {
    soak(Work::Deployment).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes; `make soak-targets` runs it"]
async fn soak_stubborn_deployment() {
    soak(Work::StubbornDeployment).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes; `make soak-targets` runs it"]
async fn soak_job() {
    soak(Work::Job).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes; `make soak-targets` runs it"]
async fn soak_cron_job() {
    soak(Work::CronJob).await;
}

async fn soak(work: Work) {
    let (seed, wanted) = (seed(), number("REDLOCK_TRANSITIONS", 200));
    let most = number("REDLOCK_FAULTS", usize::MAX);
    let mut random = Rng::with_seed(seed);
    let mut pair = Pair::new(work, LEASE, seed).await;
    unguarded(&pair).await;
    let mut held = pair.enforce().await;
    let mut done = Vec::new();
    let mut transitions = 0;
    // Each kind is played once, and then any kind.
    let kinds = kinds();
    let mut due = kinds.clone();
    random.shuffle(&mut due);
    while transitions < wanted && done.len() < most {
        let any = kinds[random.usize(..kinds.len())];
        let fault = due.pop().unwrap_or(any);
        let episode = episode(&mut pair, fault, held, &mut random).await;
        held = episode.after;
        if fault == Fault::StopApiServer {
            controllers::follow(&pair.clusters[episode.before.cluster]).await;
        }
        transitions += episode.transitions();
        let overlaps = episode.overlaps();
        println!(
            "{transitions:4}  {}{}",
            fault.title(),
            if episode.has_moved() { ", moved" } else { "" }
        );
        if !overlaps.is_empty() {
            println!("OVERLAP {overlaps:#?}\n{}", episode.timeline());
        }
        done.push(episode);
    }
    // These faults overlap until the operator is back: no overlap may remain when all is settled.
    let open = Fault::OPEN
        .into_iter()
        .filter(|_| std::env::var("REDLOCK_FAULT").is_err());
    for fault in open {
        let episode = episode(&mut pair, fault, held, &mut random).await;
        held = episode.after;
        done.push(episode);
    }
    report(work, &done);
    pair.keep_logs(&format!("soak-{work:?}-{seed}"));
    assert_tokens_increase(&pair);
    let closed = done
        .iter()
        .filter(|episode| !Fault::OPEN.contains(&episode.fault));
    let overlaps: Vec<_> = closed.flat_map(Episode::overlaps).collect();
    assert!(overlaps.is_empty(), "REDLOCK_SEED={seed}: {overlaps:#?}");
    // The fault does not affect the holder, and the replica that is cut off does not own the work.
    let cut = done.iter().filter(|episode| episode.fault == Fault::CutStandby);
    let noticed: Vec<String> = cut
        .filter(|episode| episode.is_noticed() && !episode.has_lost())
        .map(Episode::timeline)
        .collect();
    assert!(noticed.is_empty(), "REDLOCK_SEED={seed}: {noticed:#?}");
}

/// Prints tables in Markdown.
fn report(work: Work, done: &[Episode]) {
    let mut kinds: BTreeMap<(Fault, bool), Vec<&Episode>> = BTreeMap::new();
    for episode in done {
        let kind = (episode.fault, episode.is_double());
        kinds.entry(kind).or_default().push(episode);
    }
    println!("\n### {work:?}\n");
    println!(
        "| fault | times | leases won | moved to the other cluster | a pod ended | without work: median, longest (s) | overlaps: number, longest (s) |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for ((fault, double), episodes) in &kinds {
        let count = |is: &dyn Fn(&Episode) -> bool| episodes.iter().filter(|one| is(one)).count();
        let mut gaps: Vec<Duration> = episodes.iter().map(|one| one.gap()).collect();
        gaps.sort();
        let lengths: Vec<Duration> = episodes
            .iter()
            .flat_map(|one| one.overlaps())
            .map(|o| o.length)
            .collect();
        println!(
            "| {}{} | {} | {} | {} | {} | {:.1}, {:.1} | {}, {:.1} |",
            fault.title(),
            if *double {
                ", and the lease is lost meanwhile"
            } else {
                ""
            },
            episodes.len(),
            episodes.iter().map(|one| one.transitions()).sum::<usize>(),
            count(&Episode::has_moved),
            count(&Episode::is_noticed),
            gaps[gaps.len() / 2].as_secs_f64(),
            gaps[gaps.len() - 1].as_secs_f64(),
            lengths.len(),
            lengths.iter().max().map_or(0.0, Duration::as_secs_f64),
        );
    }
    for episodes in kinds.values() {
        // An episode in which the work moved, if there was one.
        let shown = episodes
            .iter()
            .find(|one| one.has_moved())
            .unwrap_or(&episodes[0]);
        println!("\n{}", shown.timeline());
    }
}
