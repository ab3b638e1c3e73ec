//! One caller, one lock.

use std::time::{Duration, Instant};

use redlock::masters::{Acquired, Masters, Renewal};

use crate::{
    floor::Floor,
    setup::{Quorum, holder, lock},
    stats::{Stats, ratio},
};

const LEASE: Duration = Duration::from_secs(15);
const ROUNDS: usize = 4_000;
/// Every round of one kind is followed by one of the other.
const WARM_UP: usize = 400;

async fn cycle(masters: &Masters, name: &str) -> (Duration, Duration) {
    let started = Instant::now();
    let Acquired::Won(mut lease) = masters
        .acquire(&lock(name), &holder("bench"), LEASE)
        .await
        .unwrap()
    else {
        panic!("{name} was not acquired")
    };
    let acquired = started.elapsed();
    let renewing = Instant::now();
    assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed);
    let renewed = renewing.elapsed();
    let releasing = Instant::now();
    assert!(lease.release().await.unwrap());
    (acquired + releasing.elapsed(), renewed)
}

async fn floor_cycle(floor: &Floor, key: &str) -> (Duration, Duration) {
    let value = "1|local|local|bench|0123456789abcdef0123456789abcdef|1";
    let started = Instant::now();
    floor.acquire(key, value).await;
    let acquired = started.elapsed();
    let renewing = Instant::now();
    floor.renew(key, value).await;
    let renewed = renewing.elapsed();
    let releasing = Instant::now();
    floor.release(key, value).await;
    (acquired + releasing.elapsed(), renewed)
}

pub async fn run(quorum: &Quorum) {
    println!("\n## one caller, {ROUNDS} rounds, protocol and floor alternate");
    let floor = Floor::connect(&quorum.servers.urls()).await;
    let (mut ours, mut theirs, mut scripts) = (Vec::new(), Vec::new(), Vec::new());
    let fingerprint = quorum.masters.fingerprint().to_string();
    let stem = "1|local|local|bench|fedcba9876543210fedcba9876543210|";
    for round in 0..ROUNDS + WARM_UP {
        // A new name each time: the replies of the two slowest masters may still be on their way.
        let a = cycle(&quorum.masters, &format!("bench/{round}")).await;
        let b = floor_cycle(&floor, &format!("floor:{round}")).await;
        // Always put back first: the key is healed, so that each round finds it.
        let bare = Instant::now();
        floor.full_renew(&fingerprint, "bench/bare", stem).await;
        let bare = bare.elapsed();
        if round >= WARM_UP {
            scripts.push(bare);
            ours.push(a);
            theirs.push(b);
        }
    }
    let stats = |all: &[(Duration, Duration)], pick: fn(&(Duration, Duration)) -> Duration| {
        Stats::of(&all.iter().map(pick).collect::<Vec<_>>())
    };
    let (acquire, floor_acquire) = (stats(&ours, |c| c.0), stats(&theirs, |c| c.0));
    let (renew, floor_renew) = (stats(&ours, |c| c.1), stats(&theirs, |c| c.1));
    floor_acquire.line("floor: acquire + release");
    acquire.line("acquire + release");
    floor_renew.line("floor: renew");
    Stats::of(&scripts).line("the protocol's script on the floor's connections");
    renew.line("renew");
    ratio(
        "acquire + release, medians",
        acquire.quantile(0.5),
        floor_acquire.quantile(0.5),
        "≤ 1.15",
    );
    ratio(
        "renew, medians",
        renew.quantile(0.5),
        floor_renew.quantile(0.5),
        "≤ 1.15",
    );
}

/// The same with one of the five masters stopped.
pub async fn hung(quorum: &Quorum) {
    const TRIALS: usize = 1_000;
    println!("\n## one of five masters hung (SIGSTOP), {TRIALS} rounds each");
    let measure = async |label: &str| {
        let mut rounds = Vec::new();
        for round in 0..TRIALS {
            rounds.push(cycle(&quorum.masters, &format!("hung/{label}/{round}")).await);
        }
        Stats::of(&rounds.iter().map(|c| c.0).collect::<Vec<_>>())
            .line(&format!("acquire + release, {label}"));
        Stats::of(&rounds.iter().map(|c| c.1).collect::<Vec<_>>()).line(&format!("renew, {label}"));
    };
    measure("all-answer").await;
    quorum.servers[0].pause().unwrap();
    measure("one-hung").await;
    quorum.servers[0].resume().unwrap();
}
