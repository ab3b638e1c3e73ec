//! Random worlds: users and faults at any moment, and an observer that judges from objects and pods.

use std::{collections::BTreeMap, time::Duration};

use tokio::time;

use super::{
    cluster::ClusterWorld,
    observer::{has_condition, running_in},
    universe::Universe,
    users::{Users, WORKLOADS},
};
use crate::clock;

/// The time for which users and faults act.
const ACTIVE: Duration = Duration::from_secs(500);
/// The time after the last operation and fault within which everything is as declared.
const REST: Duration = Duration::from_secs(200);
/// The interval between two observations.
const SAMPLE: Duration = Duration::from_millis(100);

/// Runs one world. Returns its virtual time, or the story of a violation.
async fn run(seed: u64) -> Result<Duration, String> {
    let started = clock::now();
    let clusters = 1 + usize::try_from(seed % 2).unwrap_or_default();
    let replicas = 1 + u32::try_from(seed / 2 % 3).unwrap_or_default();
    let universe = Universe::start(seed, clusters, replicas);
    let mut users = Users::new(seed, clusters);
    let judged = live(&universe, &mut users).await;
    let told = |broken: String| {
        format!(
            "{clusters} clusters, {replicas} replicas: {broken}\nusers:\n{}writes:\n{}",
            users.done.concat(),
            universe.story()
        )
    };
    judged.map_err(told)?;
    Ok(clock::now().since(started))
}

async fn live(universe: &Universe, users: &mut Users) -> Result<(), String> {
    users.begin(universe);
    let until = clock::now() + ACTIVE;
    while clock::now() < until {
        users.act(universe);
        watch(universe, users.pause()).await?;
    }
    users.end(universe);
    let healed = clock::now();
    let mut broken = at_rest(universe);
    while let Err(why) = &broken {
        if clock::now().since(healed) >= REST {
            return Err(format!("not at rest after {REST:?}: {why}"));
        }
        watch(universe, Duration::from_secs(2)).await?;
        broken = at_rest(universe);
    }
    watch(universe, Duration::from_secs(45)).await?;
    at_rest(universe)
}

/// Watches the world: no workload runs in two clusters.
async fn watch(universe: &Universe, length: Duration) -> Result<(), String> {
    let until = clock::now() + length;
    loop {
        for (workload, _) in WORKLOADS {
            let running = running_in(universe, workload);
            if running.len() > 1 {
                let now = super::cluster::now();
                return Err(format!("{now:.3}: {workload} runs in {running:?}"));
            }
        }
        if clock::now() >= until {
            return Ok(());
        }
        time::sleep(SAMPLE.min(until.left(clock::now()).max(Duration::from_millis(1)))).await;
    }
}

/// Checks that the present objects and pods are as declared.
fn at_rest(universe: &Universe) -> Result<(), String> {
    // Clusters whose locks declare different targets run what the holder declares.
    let mut wanted: BTreeMap<&str, Vec<bool>> = BTreeMap::new();
    for cluster in &universe.clusters {
        for (workload, lock) in WORKLOADS {
            let named = names(cluster, lock, workload);
            let running = cluster.running_pods(workload);
            if !named && running > 0 {
                return Err(format!(
                    "{}: {workload} runs, and no lock that is enabled names it",
                    cluster.name
                ));
            }
            if is_enabled(cluster, lock) {
                wanted.entry(workload).or_default().push(named);
            }
        }
        for lock in ["a", "b"] {
            if let Some(object) = cluster.lock(lock) {
                if !object["metadata"]["deletionTimestamp"].is_null() {
                    return Err(format!("{}: {lock} is deleted and not gone", cluster.name));
                }
                if !has_condition(cluster, lock, "Ready") {
                    return Err(format!("{}: {lock} is not Ready", cluster.name));
                }
            }
        }
    }
    for (workload, wanted) in wanted {
        let running = running_in(universe, workload);
        if wanted.iter().all(|named| *named) && running.len() != 1 {
            return Err(format!(
                "{workload} is to run in one cluster, and runs in {running:?}"
            ));
        }
    }
    Ok(())
}

/// Reports whether a cluster has the lock, and has not stepped down from it.
fn is_enabled(cluster: &ClusterWorld, lock: &str) -> bool {
    let object = cluster.lock(lock);
    object.is_some_and(|object| object["spec"]["state"] != "SteppedDown")
}

/// Reports whether an enabled lock of a cluster names a workload.
fn names(cluster: &ClusterWorld, lock: &str, workload: &str) -> bool {
    let Some(object) = cluster.lock(lock) else {
        return false;
    };
    let targets = object["spec"]["targets"].as_array();
    let mut targets = targets.into_iter().flatten();
    is_enabled(cluster, lock) && targets.any(|target| target["name"] == workload)
}

/// Prints the logs of all operators, with the time of the world. `RUST_LOG` selects them.
fn trace() {
    struct WorldTime;
    impl tracing_subscriber::fmt::time::FormatTime for WorldTime {
        fn format_time(&self, writer: &mut tracing_subscriber::fmt::format::Writer<'_>) -> std::fmt::Result {
            write!(writer, "{:.3}", super::cluster::now())
        }
    }
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_timer(WorldTime)
        .with_ansi(false)
        .init();
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs worlds on all cores. Returns their virtual time, and the violations.
fn worlds(seeds: std::ops::Range<u64>) -> (Duration, Vec<String>) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let found = std::sync::Mutex::new((Duration::ZERO, Vec::new()));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (found, seeds) = (&found, seeds.clone());
            scope.spawn(move || {
                for seed in seeds.filter(|seed| seed % threads == thread) {
                    let end = redlock_world::runtime::run(seed, run(seed));
                    let mut found = found.lock().unwrap();
                    match end {
                        Ok(length) => found.0 += length,
                        Err(story) => found.1.push(format!("SEED={seed}: {story}")),
                    }
                }
            });
        }
    });
    found.into_inner().unwrap()
}

/// `make world` sets the number of worlds and the first seed; `SEED` runs one.
#[test]
fn random_worlds_keep_their_promises() {
    let seeds = match number("SEED") {
        Some(seed) => {
            trace();
            seed..seed + 1
        }
        None => {
            let first = number("FIRST_SEED").unwrap_or_default();
            first..first + number("WORLDS").unwrap_or(8)
        }
    };
    let started = std::time::Instant::now();
    let count = seeds.end - seeds.start;
    let (length, broken) = worlds(seeds);
    println!(
        "{count} worlds, {:.1} virtual hours in {:.1} s, {} violations",
        length.as_secs_f64() / 3_600.0,
        started.elapsed().as_secs_f64(),
        broken.len()
    );
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
