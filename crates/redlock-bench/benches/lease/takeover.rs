//! Measures the time from the end of a lease until the standby holds the lock.

use std::{sync::Arc, time::Duration};

use redlock_client::{
    clock,
    elector::{Elector, Silent},
    masters::{Acquired, Lease},
};
use redlock_core::{Authority, BootInstant, Timings, timing};
use tokio::task::JoinSet;

use crate::{
    goals::{Goal, Goals},
    setup::{Quorum, contend, eventually_voting, holder, lock, open, watch},
};
use redlock_bench::{
    floor::Floor,
    stats::{Stats, load},
};

const TRIALS: usize = 200;
/// The trials start one after the other, so that takeovers do not coincide.
const APART: Duration = Duration::from_millis(25);
const LEASE: Duration = Duration::from_secs(3);

pub async fn run(quorum: &Quorum, goals: &mut Goals) {
    println!(
        "\n## takeover by a standby, {TRIALS} trials, lease {} s, load average {}",
        LEASE.as_secs(),
        load()
    );
    println!("the end of a lease is counted from before its grant was sent + its duration: never too late");
    let (masters, notices, tasks) = open(&quorum.servers);
    eventually_voting(&masters, 5).await;
    let (elector, task) = Elector::start(masters.clone(), notices, holder("standby"), Arc::new(Silent));
    let floor = Floor::connect(&quorum.servers.urls()).await;
    crash(quorum, &elector, &floor, goals).await;
    release(quorum, &elector).await;
    println!("load average {}", load());
    elector.shut_down(Default::default());
    task.await.unwrap().unwrap();
    tasks.close().await;
}

async fn held_by_active(quorum: &Quorum, name: &str) -> (Lease, Authority) {
    let acquired = quorum
        .masters
        .acquire(&lock(name), &holder("active"), LEASE)
        .await
        .unwrap();
    let Acquired::Won(lease) = acquired else {
        panic!("{name} is not free")
    };
    let authority = lease.authority_at(clock::now()).unwrap();
    (lease, authority)
}

/// Waits until the standby is active and returns that instant.
async fn active(elector: &Elector, name: &str) -> BootInstant {
    let mut view = watch(elector, name).await;
    view.wait_for(|s| s.authority_at(clock::now()).is_some())
        .await
        .unwrap();
    clock::now()
}

fn put(elector: &Elector, name: &str) {
    let timings = Timings {
        lease_duration: LEASE,
        ..Timings::derive(Duration::ZERO)
    };
    elector.put(lock(name), contend(timings));
}

async fn crash(quorum: &Quorum, elector: &Elector, floor: &Floor, goals: &mut Goals) {
    let (mut trials, mut bare) = (JoinSet::new(), JoinSet::new());
    for trial in 0..TRIALS {
        let name = format!("crash/{trial}");
        let (lease, authority) = held_by_active(quorum, &name).await;
        // Like a holder that died, the lease is neither renewed nor released.
        std::mem::forget(lease);
        let end = authority.valid_until + timing::drift(LEASE);
        put(elector, &name);
        let elector = elector.clone();
        trials.spawn(async move { active(&elector, &name).await.since(end) });
        let floor = floor.clone();
        bare.spawn(async move {
            clock::sleep_until(end + Duration::from_millis(1)).await;
            floor.acquire(&format!("floor:crash:{trial}"), "value").await;
            clock::now().since(end)
        });
        tokio::time::sleep(APART).await;
    }
    let bare = Stats::of(&bare.join_all().await);
    let trials = Stats::of(&trials.join_all().await);
    bare.line("floor: bare timer + one round");
    trials.line("after a crash");
    let excess = (trials.quantile(0.99) - bare.quantile(0.99)) / 1e3;
    let what = "takeover after a crash, p99 beyond a bare timer's";
    goals.add(what, &[excess], "ms", Goal::AtMost(2.0));
}

async fn release(quorum: &Quorum, elector: &Elector) {
    let mut trials = JoinSet::new();
    for trial in 0..TRIALS {
        let name = format!("release/{trial}");
        let (lease, _) = held_by_active(quorum, &name).await;
        put(elector, &name);
        let mut view = watch(elector, &name).await;
        view.wait_for(|s| s.holder.is_some()).await.unwrap();
        let elector = elector.clone();
        trials.spawn(async move {
            let before = clock::now();
            let (released, at) = tokio::join!(lease.release(), active(&elector, &name));
            released.unwrap();
            at.since(before)
        });
        tokio::time::sleep(APART).await;
    }
    Stats::of(&trials.join_all().await).line("after a clean release (goal ≤ 5 ms)");
}
