//! Many locks in one process.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use redlock::{
    clock,
    elector::{Elector, Silent},
    lease::{
        ClusterId, Participation, Terms, Timings,
        timing::{self, GivenTimings},
    },
    masters::Acquired,
};

use crate::{
    floor::Floor,
    setup::{Quorum, eventually_voting, holder, lock, open},
    stats::cpu_time,
};

const TASKS: usize = 64;
const FOR: Duration = Duration::from_secs(4);

/// 64 tasks with a lock each, acquire and release in a loop.
pub async fn tasks(quorum: &Quorum) {
    println!(
        "\n## {TASKS} tasks with a lock each, {} s a turn, two turns each",
        FOR.as_secs()
    );
    let floor = Floor::connect(&quorum.servers.urls()).await;
    let (mut ours, mut theirs, mut calls) = (0.0, 0.0, 0);
    for _ in 0..2 {
        let floor = floor.clone();
        theirs += turn(move |task, count| {
            let floor = floor.clone();
            async move {
                // A new key each time: the two slowest masters may not have deleted the old one yet.
                let (key, value) = (format!("floor:task:{task}:{count}"), format!("value-{task}"));
                floor.acquire(&key, &value).await;
                floor.release(&key, &value).await;
            }
        })
        .await;
        let masters = quorum.masters.clone();
        let before = script_calls(quorum).await;
        ours += turn(move |task, _| {
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
        .await;
        calls += script_calls(quorum).await - before;
    }
    println!("floor                  {:>10.0} cycles/s", theirs / 2.0);
    let together = ours * FOR.as_secs_f64() * 2.0 * 5.0 / calls as f64;
    println!("locks in a script call {together:>10.1} on average");
    println!(
        "acquire + release      {:>10.0} cycles/s ({:.2} × the floor, goal ≥ 1)",
        ours / 2.0,
        ours / theirs
    );
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

/// 10,000 leases held by one elector: what renewing them costs. With the lease that is derived, and with the longest
/// one that the default quorum allows.
pub async fn leases(quorum: &Quorum) {
    hold(quorum, Timings::derive(Duration::ZERO)).await;
    let given = GivenTimings {
        lease_duration: Some(timing::DEFAULT_LONGEST_LEASE),
        ..GivenTimings::default()
    };
    let longest = Timings::resolve(given, Duration::ZERO, None, timing::DEFAULT_LONGEST_LEASE).unwrap();
    hold(quorum, longest).await;
}

async fn hold(quorum: &Quorum, timings: Timings) {
    const LOCKS: usize = 10_000;
    println!(
        "\n## {LOCKS} leases of {} s held by one process",
        timings.lease_duration.as_secs()
    );
    let (masters, notices, tasks) = open(&quorum.servers);
    eventually_voting(&masters, 5).await;
    let (elector, task) = Elector::start(masters.clone(), notices, holder("many"), Arc::new(Silent));
    let started = Instant::now();
    for number in 0..LOCKS {
        let terms = Terms {
            cluster: ClusterId::default(),
            timings,
            participation: Participation::Contend,
            ordered_delay: Duration::ZERO,
            guards: false,
            siblings_first: false,
        };
        elector.put(lock(&format!("leases/{number}")), terms);
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
    println!("script calls/s         {per_second:>10.1} over all masters (goal ≤ 600)");
    println!("CPU of this process    {share:>10.2} % of a core (goal < 1)");
    let releasing = Instant::now();
    elector.shut_down(Default::default());
    task.await.unwrap().unwrap();
    println!(
        "all released after     {:>10.0} ms",
        releasing.elapsed().as_secs_f64() * 1e3
    );
    tasks.close().await;
}

/// EVALSHA calls that the masters counted.
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
