//! What one call of a script costs a master, apart from clients and round trips.

use redis::{Cmd, Pipeline, aio::MultiplexedConnection};

use crate::{
    goals::{Goal, Goals},
    setup::Quorum,
};
use redlock_bench::{
    floor::{self, load},
    stats::{Stats, cpu_time_of},
};

macro_rules! script {
    ($($file:literal)+) => {
        concat!($(include_str!(concat!("../../../redlock-core/src/scripts/", $file))),+)
    };
}

pub const RENEW: &str =
    script!("fields_none.lua" "preamble.lua" "shortened.lua" "obstacle.lua" "cluster.lua" "renew.lua");
const GRANT: &str = script!("fields_marks.lua" "preamble.lua" "shortened.lua" "obstacle.lua" "cluster.lua" "grant.lua" "granted.lua");
const RELEASE: &str = script!("fields_none.lua" "preamble.lua" "cluster.lua" "release.lua");
const FACTS: &str = script!("history.lua" "facts.lua");

const NAME: &str = "bench/bare";
const STEM: &str = "1|local|local|bench|fedcba9876543210fedcba9876543210|";
/// Calls in one pipeline, and pipelines: one figure each.
const CALLS: usize = 250;
const BATCHES: usize = 40;

/// What the scripts compare with the fingerprint and the id of the quorum.
pub async fn stamp(quorum: &Quorum) -> String {
    let mut connection = connect(quorum).await;
    let mut command = redis::cmd("HGET");
    command.arg("redlock:meta").arg("fingerprint");
    command.query_async(&mut connection).await.unwrap()
}

async fn connect(quorum: &Quorum) -> MultiplexedConnection {
    let client = redis::Client::open(quorum.servers.urls()[0].as_str()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

/// A call of a script that begins with the preamble, of one lock.
pub fn call(sha: &str, stamp: &str, name: &str, arguments: &[&str]) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(sha).arg(3).arg("redlock:meta");
    command
        .arg(format!("redlock:lease:{name}"))
        .arg(format!("redlock:reserved:{name}"));
    command.arg(u64::MAX >> 11).arg(stamp).arg(arguments);
    command
}

struct Bench {
    connection: MultiplexedConnection,
    process: u32,
    stamp: String,
}

/// Microseconds of a master's CPU for one call, of each batch.
type Cost = Vec<f64>;

impl Bench {
    async fn measure(&mut self, what: &str, command: impl Fn(usize) -> Cmd) -> Cost {
        let (mut cpu, mut inside) = (Cost::new(), Cost::new());
        for batch in 0..=BATCHES {
            let mut pipeline = Pipeline::with_capacity(CALLS);
            for call in 0..CALLS {
                pipeline.add_command(command(batch * CALLS + call)).ignore();
            }
            let (time, stats) = (cpu_time_of(self.process), self.in_scripts().await);
            let () = pipeline.query_async(&mut self.connection).await.unwrap();
            let (time, stats) = (cpu_time_of(self.process) - time, self.in_scripts().await - stats);
            // The first warms up.
            if batch > 0 {
                cpu.push(time.as_secs_f64() * 1e6 / CALLS as f64);
                inside.push(stats / CALLS as f64);
            }
        }
        let (all, script) = (Stats::of_numbers(cpu.clone()), Stats::of_numbers(inside));
        println!(
            "{what:<28} CPU {:>6.2} µs, median {:>6.2} µs   in the command {:>6.2} µs, median {:>6.2} µs",
            all.quantile(0.0),
            all.quantile(0.5),
            script.quantile(0.0),
            script.quantile(0.5),
        );
        cpu
    }

    /// Microseconds that this master counted in EVALSHA and SET.
    async fn in_scripts(&mut self) -> f64 {
        let mut command = redis::cmd("INFO");
        let info: String = command
            .arg("commandstats")
            .query_async(&mut self.connection)
            .await
            .unwrap();
        let usec = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name))?;
            line.split("usec=").nth(1)?.split(',').next()?.parse::<f64>().ok()
        };
        ["cmdstat_evalsha:", "cmdstat_set:"]
            .into_iter()
            .filter_map(usec)
            .sum()
    }

    async fn script(&mut self, what: &str, text: &str, arguments: &[&str], own_name: bool) -> Cost {
        let sha = load(text, &mut self.connection).await;
        let stamp = self.stamp.clone();
        let name = |i: usize| {
            if own_name {
                format!("cost/{i}")
            } else {
                NAME.to_owned()
            }
        };
        self.measure(what, |i| call(&sha, &stamp, &name(i), arguments))
            .await
    }
}

impl Bench {
    /// `process`: the replication id that a complete probe has shown, or empty.
    async fn poll(&mut self, what: &str, process: &str) -> Cost {
        let sha = load(FACTS, &mut self.connection).await;
        let mut command = redis::cmd("EVALSHA");
        command
            .arg(sha)
            .arg(2)
            .arg("redlock:meta")
            .arg("redlock:probe")
            .arg(process);
        self.measure(what, |_| command.clone()).await
    }

    async fn replication_id(&mut self) -> String {
        let mut command = redis::cmd("INFO");
        command.arg("replication");
        let info: redis::InfoDict = command.query_async(&mut self.connection).await.unwrap();
        info.get("master_replid").unwrap()
    }
}

pub async fn run(quorum: &Quorum, goals: &mut Goals) {
    println!("\n## server time of one call, {BATCHES} batches of {CALLS}: minimum and median");
    let mut bench = Bench {
        connection: connect(quorum).await,
        process: quorum.servers[0].pid().unwrap(),
        stamp: stamp(quorum).await,
    };
    bench
        .measure("floor: SET NX PX", |i| {
            let mut command = redis::cmd("SET");
            command
                .arg(format!("floor:cost:{i}"))
                .arg(STEM)
                .arg("NX")
                .arg("PX")
                .arg(15_000);
            command
        })
        .await;
    for (what, text, key) in [
        ("floor: renew", floor::RENEW, "floor:cost:0"),
        ("floor: release", floor::RELEASE, ""),
    ] {
        let sha = load(text, &mut bench.connection).await;
        let command = |i: usize| {
            let key = if key.is_empty() {
                format!("floor:cost:{i}")
            } else {
                key.to_owned()
            };
            let mut command = redis::cmd("EVALSHA");
            command.arg(&sha).arg(1).arg(key).arg(STEM).arg(15_000);
            command
        };
        bench.measure(what, command).await;
    }
    let renewal = ["local/local", STEM, "1", "15000"];
    let renew = bench.script("renew", RENEW, &renewal, false).await;
    let grant = ["1", "local/local", STEM, "15000", "cost"];
    bench.script("grant", GRANT, &grant, true).await;
    let release = ["local/local", "redlock:released", STEM, "cost"];
    bench.script("release", RELEASE, &release, true).await;
    bench.poll("FACTS, complete", "").await;
    let process = bench.replication_id().await;
    let poll = bench.poll("FACTS", &process).await;
    let ratios: Vec<f64> = poll
        .iter()
        .zip(&renew)
        .map(|(poll, renew)| poll / renew)
        .collect();
    goals.add("FACTS, CPU of a master", &ratios, "× renew", Goal::AtMost(2.0));
}
