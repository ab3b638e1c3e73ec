//! Measures the cost of many idle processes with one lock each, for a master.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use redlock_client::{
    clock,
    elector::{Elector, Silent},
};
use redlock_core::Timings;

use crate::{
    goals::{Goal, Goals},
    setup::{Quorum, contend, eventually_voting, holder, lock, open, watch},
};
use redlock_bench::stats::{Stats, cpu_time_of};

/// The number of connection sets in this process. To a master, each is a process of its own.
const PROCESSES: usize = 100;
/// The number of processes that the figure is scaled to. The load of a master grows in proportion, because processes
/// share nothing.
const OF: usize = 1_000;
const SPAN: Duration = Duration::from_secs(10);
const SPANS: usize = 3;

/// Returns the percentages of a core that these servers use.
async fn span(ids: &[u32]) -> Vec<f64> {
    let before: Vec<_> = ids.iter().map(|id| cpu_time_of(*id)).collect();
    let began = Instant::now();
    tokio::time::sleep(SPAN).await;
    let seconds = began.elapsed().as_secs_f64();
    ids.iter()
        .zip(before)
        .map(|(id, before)| (cpu_time_of(*id) - before).as_secs_f64() / seconds * 100.0)
        .collect()
}

pub async fn run(quorum: &Quorum, goals: &mut Goals) {
    println!(
        "\n## {PROCESSES} processes that hold one lock each, {SPANS} spans of {} s",
        SPAN.as_secs()
    );
    let timings = Timings::derive(Duration::ZERO);
    let ids: Vec<u32> = quorum.servers.iter().map(|s| s.pid().unwrap()).collect();
    // The own work of an idle server, which does not grow with the processes.
    let resting = span(&ids).await;
    let mut processes = Vec::new();
    for number in 0..PROCESSES {
        let (masters, notices, tasks) = open(&quorum.servers);
        eventually_voting(&masters, 5).await;
        let (elector, task) = Elector::start(masters, notices, holder("idle"), Arc::new(Silent));
        let name = format!("idle/{number}");
        elector.put(lock(&name), contend(timings));
        let mut view = watch(&elector, &name).await;
        view.wait_for(|s| s.authority_at(clock::now()).is_some())
            .await
            .unwrap();
        processes.push((elector, task, tasks));
    }
    tokio::time::sleep(timings.renew_interval() * 2).await;
    let mut shares = Vec::new();
    for _ in 0..SPANS {
        let of_all = span(&ids).await;
        shares.extend(
            of_all
                .iter()
                .zip(&resting)
                .map(|(share, resting)| share - resting),
        );
    }
    let stats = Stats::of_numbers(shares.clone());
    println!(
        "CPU of one master      {:>10.2} % of a core beyond that of a resting one, median; least {:.2} %",
        stats.quantile(0.5),
        stats.quantile(0.0)
    );
    let scaled: Vec<f64> = shares
        .iter()
        .map(|share| share * (OF / PROCESSES) as f64)
        .collect();
    let what = format!("CPU of one master for {OF} such processes, from {PROCESSES}");
    goals.add(&what, &scaled, "% of a core", Goal::AtMost(8.0));
    for (elector, task, tasks) in processes {
        elector.shut_down(Default::default());
        task.await.unwrap().unwrap();
        tasks.close().await;
    }
}
