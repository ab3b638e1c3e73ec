//! Measures `redlock run LOCK -- true` compared with `flock FILE true`, and the memory of its processes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a measurement that fails must stop"
)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "numbers for people"
)]

use std::{
    fs,
    io::Read,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use redlock_bench::stats::{self, Stats};
use redlock_testkit::{RedisServers, ServerOptions};

const REDLOCK: &str = env!("CARGO_BIN_EXE_redlock");
const ROUNDS: usize = 300;
const WARM_UP: usize = 20;

fn main() {
    println!("{}", stats::machine());
    let servers = RedisServers::start(5, &ServerOptions::default()).expect("redis-server starts");
    let urls = servers.urls().join(",");
    succeed(
        Command::new(REDLOCK)
            .args(["init", "--masters", &urls])
            .stdout(Stdio::null()),
    );
    time(&urls);
    memory(&urls);
}

fn succeed(command: &mut Command) -> Duration {
    let started = Instant::now();
    let status = command
        .status()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let took = started.elapsed();
    assert!(status.success(), "{command:?}: {status}");
    took
}

/// Measures the times. The rounds alternate between the commands, so that noise affects all of them equally.
fn time(urls: &str) {
    println!("\n## from start to end, {ROUNDS} rounds in turns, five masters");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lock");
    let (mut bare, mut flock, mut redlock) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS + WARM_UP {
        let took = [
            succeed(&mut Command::new("true")),
            succeed(Command::new("flock").arg(&file).arg("true")),
            succeed(Command::new(REDLOCK).args(["run", "bench", "--masters", urls, "--", "true"])),
        ];
        if round >= WARM_UP {
            bare.push(took[0]);
            flock.push(took[1]);
            redlock.push(took[2]);
        }
    }
    Stats::of(&bare).line("true");
    let (flock, redlock) = (Stats::of(&flock), Stats::of(&redlock));
    flock.line("flock FILE true");
    redlock.line("redlock run LOCK -- true");
    let more = (redlock.quantile(0.5) - flock.quantile(0.5)) / 1e3;
    println!("redlock run takes {more:.2} ms more than flock, medians (goal: less than 10)");
}

/// Prints the proportional set size, which divides shared pages among the processes that share them.
fn memory(urls: &str) {
    println!("\n## memory, Pss in KiB");
    let holds = [
        "run",
        "memory",
        "--masters",
        urls,
        "--",
        "sh",
        "-c",
        "echo ready; exec sleep 1000",
    ];
    let mut holder = start(&holds);
    wait_for_output(&mut holder);
    print_memory("holds the lock", &holder);
    let mut waits = Command::new(REDLOCK);
    waits.args(holds).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut waits = waits.spawn().unwrap();
    let length = waits.stderr.as_mut().unwrap().read(&mut [0; 200]).unwrap();
    assert!(length > 0, "the wrapper prints that it waits");
    print_memory("waits for it", &waits);
    for mut one in [waits, holder] {
        one.kill().unwrap();
        one.wait().unwrap();
    }
}

fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new(REDLOCK);
    command.args(arguments).stdout(Stdio::piped()).spawn().unwrap()
}

fn wait_for_output(child: &mut Child) {
    let mut output = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut output).unwrap();
}

fn print_memory(what: &str, wrapper: &Child) {
    let id = wrapper.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    let name = |id: &str| {
        fs::read_to_string(format!("/proc/{id}/cmdline"))
            .unwrap()
            .replace('\0', " ")
    };
    let own = children
        .split_whitespace()
        .filter(|child| name(child).starts_with("redlock-"));
    let mut all = vec![("wrapper".to_owned(), pss(&id.to_string()))];
    all.extend(own.map(|child| (name(child).split(' ').next().unwrap().to_owned(), pss(child))));
    let parts: Vec<String> = all.iter().map(|(name, pss)| format!("{name} {pss}")).collect();
    let sum: u64 = all.iter().map(|(_, pss)| pss).sum();
    println!(
        "{what:<16} {} = {:.1} MiB",
        parts.join(" + "),
        sum as f64 / 1024.0
    );
}

fn pss(id: &str) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{id}/smaps_rollup")).unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
