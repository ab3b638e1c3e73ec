//! Measures how long the write of a freeze takes while other containers of the node start and end.
//!
//! The kernel serializes freezes with the creation and removal of cgroups and with each move of a process between cgroups,
//! and a move waits for all CPUs. Real-time scheduling does not shorten this wait.

use std::{
    fs,
    path::Path,
    process::{Child, Command},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use redlock_client::clock;
use redlock_core::fence::FREEZE_BEFORE;
use redlock_node::{cgroup::pod, realtime};

use super::cgroups::{Made, own_or_report};

const FREEZES: usize = 2_000;
/// The pause between two freezes, so that they meet different moments of the other work.
const PAUSE: Duration = Duration::from_millis(7);
/// Number of processes in each pod that is frozen.
const PROCESSES: usize = 8;

/// Reads the number of threads of a kind of work from the environment.
fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

fn move_to(cgroup: &Path, process: &Child) {
    // The process may have ended.
    let _ = fs::write(cgroup.join("cgroup.procs"), process.id().to_string());
}

fn start_processes(cgroup: &Path) -> [Child; PROCESSES] {
    let processes = [(); PROCESSES].map(|()| Command::new("sleep").arg("3600").spawn().unwrap());
    processes.iter().for_each(|process| move_to(cgroup, process));
    processes
}

fn end(mut process: Child) {
    let _ = process.kill();
    process.wait().unwrap();
}

/// Starts a container that forks in a cgroup of its own, moves it to a second one, and removes both.
fn start_and_end_containers(parent: &Path, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let cgroups = [(); 2].map(|()| Made::below(parent, "container").unwrap());
        let forks = "for i in 1 2 3 4 5 6 7 8 9 10; do /bin/true; done";
        let mut process = Command::new("sh").args(["-c", forks]).spawn().unwrap();
        cgroups.iter().for_each(|cgroup| move_to(&cgroup.0, &process));
        process.wait().unwrap();
    }
}

/// Moves a process between two cgroups without a pause.
fn move_without_a_pause(parent: &Path, stop: &AtomicBool) {
    let cgroups = [(); 2].map(|()| Made::below(parent, "moves").unwrap());
    let process = Command::new("sleep").arg("3600").spawn().unwrap();
    while !stop.load(Ordering::Relaxed) {
        cgroups.iter().for_each(|cgroup| move_to(&cgroup.0, &process));
    }
    end(process);
}

/// Freezes pods whose permits end at the same moment, one after the other. Returns the times until all were written, sorted.
fn freeze_often(pods: &[Made], freezes: usize) -> Vec<Duration> {
    if let Err(reason) = realtime::schedule_first() {
        println!("degraded: {reason}");
    }
    let mut took = Vec::new();
    for _ in 0..freezes {
        let begun = clock::now();
        pods.iter().for_each(|made| _ = pod::freeze(&made.0).unwrap());
        took.push(clock::now().since(begun));
        pods.iter().for_each(|made| _ = pod::thaw(&made.0).unwrap());
        thread::sleep(PAUSE);
    }
    took.sort_unstable();
    took
}

/// Prints the distribution beside `REDLOCK_CONTAINERS` threads that start and end containers, and `REDLOCK_MOVES` threads
/// that move processes without a pause. `REDLOCK_PODS` pods are frozen at once.
#[test]
#[ignore = "a measurement of minutes"]
fn freeze_beside_container_churn() {
    let Some(own) = own_or_report("the time of a freeze beside container churn") else {
        return;
    };
    let containers = number("REDLOCK_CONTAINERS", 4);
    let moves = number("REDLOCK_MOVES", 1);
    let freezes = number("REDLOCK_TRIALS", FREEZES);
    let count = number("REDLOCK_PODS", 1);
    let pods: Vec<Made> = (0..count).map(|_| Made::below(&own, "frozen").unwrap()).collect();
    let processes: Vec<Child> = pods.iter().flat_map(|made| start_processes(&made.0)).collect();
    let stop = AtomicBool::new(false);
    let took = thread::scope(|scope| {
        for _ in 0..containers {
            scope.spawn(|| start_and_end_containers(&own, &stop));
        }
        for _ in 0..moves {
            scope.spawn(|| move_without_a_pause(&own, &stop));
        }
        let took = scope.spawn(|| freeze_often(&pods, freezes)).join();
        stop.store(true, Ordering::Relaxed);
        took.unwrap()
    });
    processes.into_iter().for_each(end);
    let part = |per_mille: usize| took[(took.len() - 1) * per_mille / 1_000];
    println!(
        "{containers} threads with containers, {moves} with moves, {} times {count} pods of {PROCESSES} processes: p50 {:?}, p99 {:?}, \
         p99.9 {:?}, max {:?}; the margin is {FREEZE_BEFORE:?}",
        took.len(),
        part(500),
        part(990),
        part(999),
        part(1_000)
    );
    assert!(
        part(1_000) < FREEZE_BEFORE,
        "a freeze took longer than the margin"
    );
}
