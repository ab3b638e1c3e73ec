//! Measures many locks in one process.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use redlock_client::{
    clock,
    elector::{Elector, Silent},
    masters::{Acquired, Masters},
};
use redlock_core::{
    Timings,
    timing::{self, GivenTimings},
};

use crate::{
    contestant::Rslock,
    goals::{Goal, Goals},
    setup::{Quorum, contend, eventually_voting, holder, lock, open},
};
use redlock_bench::{floor::Floor, stats::cpu_time};

const TASKS: usize = 64;
const LOCKS: usize = 10_000;
const FOR: Duration = Duration::from_secs(3);
const TURNS: usize = 4;

/// Runs 64 tasks with a lock each, which acquire and release in a loop.
pub async fn tasks(quorum: &Quorum, goals: &mut Goals) {
    println!(
        "\n## {TASKS} tasks with a lock each, {} s a turn, {TURNS} turns each",
        FOR.as_secs()
    );
    let floor = Floor::connect(&quorum.servers.urls()).await;
    let rslock = Rslock::connect(&quorum.servers.urls()).await;
    let (mut of_floor, mut of_rslock, mut calls, mut cycles) = (Vec::new(), Vec::new(), 0, 0.0);
    for number in 1..=TURNS {
        let theirs = floor_turn(&floor).await;
        let before = script_calls(quorum).await;
        let ours = own_turn(&quorum.masters).await;
        calls += script_calls(quorum).await - before;
        cycles += ours * FOR.as_secs_f64();
        let rslocks = rslock_turn(&rslock).await;
        println!("turn {number}: floor {theirs:>7.0} cycles/s, rslock {rslocks:>7.0}, protocol {ours:>7.0}");
        of_floor.push(ours / theirs);
        of_rslock.push(ours / rslocks);
    }
    let together = cycles * 2.0 * 5.0 / calls as f64;
    println!("locks in a script call {together:>10.1} on average");
    let what = format!("cycles/s of {TASKS} tasks");
    goals.add(&what, &of_floor, "× the floor", Goal::AtLeast(0.9));
    goals.add(&what, &of_rslock, "× rslock", Goal::AtLeast(1.0));
}

async fn floor_turn(floor: &Floor) -> f64 {
    let floor = floor.clone();
    turn(move |task, count| {
        let floor = floor.clone();
        async move {
            // A new key each time: the two slowest masters may still have the old one.
            let (key, value) = (format!("floor:task:{task}:{count}"), format!("value-{task}"));
            floor.acquire(&key, &value).await;
            floor.release(&key, &value).await;
        }
    })
    .await
}

async fn rslock_turn(rslock: &Rslock) -> f64 {
    let rslock = rslock.clone();
    turn(move |task, count| {
        let rslock = rslock.clone();
        async move {
            let key = format!("rslock:task:{task}:{count}");
            let lock = rslock.acquire(&key, Duration::from_secs(15)).await;
            rslock.release(&lock).await;
        }
    })
    .await
}

async fn own_turn(masters: &Masters) -> f64 {
    let masters = masters.clone();
    turn(move |task, _| {
        let masters = masters.clone();
        async move {
            let name = lock(&format!("tasks/{task}"));
            let acquired = masters
                .acquire(&name, &holder("bench"), Duration::from_secs(15))
                .await
                .unwrap();
            let Acquired::Won(lease) = acquired else {
                panic!("nobody else wants {name}")
            };
            lease.release().await.unwrap();
        }
    })
    .await
}

async fn turn<F: Future<Output = ()> + Send + 'static>(
    cycle: impl Fn(usize, u64) -> F + Clone + Send + 'static,
) -> f64 {
    let end = Instant::now() + FOR;
    let mut set = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let cycle = cycle.clone();
        set.spawn(async move {
            let mut count = 0_u64;
            while Instant::now() < end {
                cycle(task, count).await;
                count += 1;
            }
            count
        });
    }
    let mut total = 0;
    while let Some(count) = set.join_next().await {
        total += count.unwrap();
    }
    total as f64 / FOR.as_secs_f64()
}

/// Measures the renewals of 10,000 leases that one elector holds, with the derived lease duration and with the longest
/// one that the default quorum allows.
pub async fn leases(quorum: &Quorum, goals: &mut Goals) {
    let (calls, share) = hold(quorum, Timings::derive(Duration::ZERO)).await;
    let what = format!("{LOCKS} leases of 15 s");
    goals.add(
        &format!("{what}, CPU of the client"),
        &[share],
        "% of a core",
        Goal::AtMost(1.0),
    );
    goals.add(&what, &[calls], "script calls/s", Goal::AtMost(100.0));
    let given = GivenTimings {
        lease_duration: Some(timing::DEFAULT_LONGEST_LEASE),
        ..GivenTimings::default()
    };
    let longest = Timings::resolve(given, Duration::ZERO, None, timing::DEFAULT_LONGEST_LEASE).unwrap();
    hold(quorum, longest).await;
}

/// Returns the script calls per second and the share of a core.
async fn hold(quorum: &Quorum, timings: Timings) -> (f64, f64) {
    println!(
        "\n## {LOCKS} leases of {} s held by one process",
        timings.lease_duration.as_secs()
    );
    let (masters, notices, tasks) = open(&quorum.servers);
    eventually_voting(&masters, 5).await;
    let (elector, task) = Elector::start(masters.clone(), notices, holder("many"), Arc::new(Silent));
    let started = Instant::now();
    for number in 0..LOCKS {
        elector.put(lock(&format!("leases/{number}")), contend(timings));
    }
    let held = || {
        elector
            .standings()
            .iter()
            .filter(|(_, s)| s.authority_at(clock::now()).is_some())
            .count()
    };
    while held() < LOCKS {
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "{} of {LOCKS} held",
            held()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!(
        "all held after         {:>10.0} ms",
        started.elapsed().as_secs_f64() * 1e3
    );
    // Renewals settle on their grid within an interval.
    tokio::time::sleep(timings.renew_interval() * 2).await;
    let (calls, cpu, began) = (script_calls(quorum).await, cpu_time(), Instant::now());
    tokio::time::sleep(Duration::from_secs(30).max(timings.renew_interval() * 2)).await;
    let seconds = began.elapsed().as_secs_f64();
    let per_second = (script_calls(quorum).await - calls) as f64 / seconds;
    let share = (cpu_time() - cpu).as_secs_f64() / seconds * 100.0;
    assert_eq!(held(), LOCKS, "every lease was kept");
    println!("script calls/s         {per_second:>10.1} over all masters");
    println!("CPU of this process    {share:>10.2} % of a core");
    let releasing = Instant::now();
    elector.shut_down(Default::default());
    task.await.unwrap().unwrap();
    println!(
        "all released after     {:>10.0} ms",
        releasing.elapsed().as_secs_f64() * 1e3
    );
    tasks.close().await;
    (per_second, share)
}

/// Returns the EVALSHA calls that the masters counted.
async fn script_calls(quorum: &Quorum) -> u64 {
    let mut total = 0;
    for url in quorum.servers.urls() {
        let client = redis::Client::open(url.as_str()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let info: String = redis::cmd("INFO")
            .arg("commandstats")
            .query_async(&mut connection)
            .await
            .unwrap();
        let calls = info.lines().find_map(|l| {
            l.strip_prefix("cmdstat_evalsha:calls=")?
                .split(',')
                .next()?
                .parse::<u64>()
                .ok()
        });
        total += calls.unwrap_or(0);
    }
    total
}
