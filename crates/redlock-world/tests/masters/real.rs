//! Gives random script calls to a real server and to a simulated master: both must reply the same and have the same data.

use fastrand::Rng;
use redis::{Value, aio::MultiplexedConnection};
use redlock_client::lease::script::{self, Script};
use redlock_testkit::{RedisServer, ServerOptions, patient};
use redlock_world::{
    masters::{Master, Masters, Reply},
    network::{Latency, Network},
};

const META: &str = "p:meta";
const PROBE: &str = "p:probe";
const STAMP: &str = "fingerprint";
const NEVER: &str = "9007199254740991";
const CLUSTERS: [&str; 2] = ["east/1", "west/2"];
const SEQUENCES: u64 = 40;
const STEPS: usize = 60;
/// The times to live on both sides may differ by this number of milliseconds on a busy machine.
const LATE: i64 = 5_000;

/// A server, and what differs between two servers.
struct Real {
    connection: MultiplexedConnection,
    own: Own,
}

struct Own {
    run_id: String,
    replication_id: String,
}

impl Own {
    fn of(info: &str) -> Self {
        let field = |name: &str| {
            let (_, rest) = info.split_once(&format!("{name}:")).unwrap();
            rest.split_once('\r').unwrap().0.to_owned()
        };
        Self {
            run_id: field("run_id"),
            replication_id: field("master_replid"),
        }
    }

    /// Fills in the names of the server.
    fn filled(&self, word: &str) -> String {
        word.replace("{RUN}", &self.run_id)
            .replace("{REPLICATION}", &self.replication_id)
    }

    fn masked(&self, text: &str) -> String {
        if text.contains("redis_version:") {
            return "INFO".to_owned();
        }
        text.replace(&self.run_id, "RUN")
            .replace(&self.replication_id, "REPLICATION")
    }
}

/// A reply without what differs between two servers.
#[derive(Clone, Debug)]
enum Shown {
    Text(String),
    Number(i64),
    Nil,
    Error(String),
    Many(Vec<Shown>),
}

impl Shown {
    /// Removes the time of the server, which follows the status of each reply.
    fn without_time(mut self) -> Self {
        if let Self::Many(items) = &mut self
            && let [Self::Text(_), time @ ..] = &mut items[..]
            && let [Self::Text(seconds), Self::Text(micros), ..] = time
            && seconds.len() == 10
        {
            (*seconds, *micros) = ("SECONDS".to_owned(), "MICROS".to_owned());
        }
        self
    }
}

impl PartialEq for Shown {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(one), Self::Text(two)) | (Self::Error(one), Self::Error(two)) => one == two,
            (Self::Number(one), Self::Number(two)) => {
                one == two || one.min(two) > &LATE && one.abs_diff(*two) < LATE.unsigned_abs()
            }
            (Self::Nil, Self::Nil) => true,
            (Self::Many(one), Self::Many(two)) => one == two,
            _ => false,
        }
    }
}

fn of_real(value: &Value, own: &Own) -> Shown {
    match value {
        Value::Nil => Shown::Nil,
        Value::Int(number) => Shown::Number(*number),
        Value::BulkString(bytes) => Shown::Text(own.masked(&String::from_utf8_lossy(bytes))),
        Value::SimpleString(text) => Shown::Text(text.clone()),
        Value::Okay => Shown::Text("OK".into()),
        Value::ServerError(error) => Shown::Error(error.code().to_owned()),
        Value::Array(items) => Shown::Many(items.iter().map(|item| of_real(item, own)).collect()),
        other => panic!("{other:?}"),
    }
}

fn of_simulated(reply: &Reply, own: &Own) -> Shown {
    match reply {
        Reply::Nil => Shown::Nil,
        Reply::Integer(number) => Shown::Number(*number),
        Reply::Bulk(bytes) => Shown::Text(own.masked(&String::from_utf8_lossy(bytes))),
        Reply::Status(text) => Shown::Text(text.clone()),
        Reply::Error(text) => Shown::Error(text.split(' ').next().unwrap().to_owned()),
        Reply::Array(items) | Reply::Map(items) | Reply::Push(items) => {
            Shown::Many(items.iter().map(|item| of_simulated(item, own)).collect())
        }
    }
}

/// A command of which `{RUN}` and `{REPLICATION}` stand for the run_id and the replication id of its server.
type Call = Vec<String>;

fn call(script: &Script, keys: &[String], arguments: &[String]) -> Call {
    let head = ["EVAL".to_owned(), script.source.clone(), keys.len().to_string()];
    [&head, keys, arguments].concat()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

struct Both {
    real: Real,
    simulated: Master,
    own: Own,
    rng: Rng,
}

impl Both {
    async fn run(&mut self, call: &Call) {
        let (real, simulated) = self.ask(call).await;
        let shown: Vec<&str> = call
            .iter()
            .map(|word| word.rsplit('\n').next().unwrap())
            .collect();
        assert_eq!(real, simulated, "{shown:?}");
    }

    async fn ask(&mut self, call: &Call) -> (Shown, Shown) {
        let mut command = redis::Cmd::new();
        for word in call {
            command.arg(self.real.own.filled(word));
        }
        let real = match self.real.connection.send_packed_command(&command).await {
            Ok(value) => of_real(&value, &self.real.own),
            Err(error) => Shown::Error(error.code().unwrap_or_default().to_owned()),
        };

        let call: Vec<String> = call.iter().map(|word| self.own.filled(word)).collect();
        let reply = self
            .simulated
            .execute(&call.iter().map(String::as_str).collect::<Vec<_>>());
        (
            real.without_time(),
            of_simulated(&reply, &self.own).without_time(),
        )
    }

    async fn seal(&mut self) {
        let keys = words(&[META, PROBE]);
        let probe = words(&[
            NEVER,
            "{RUN}|{REPLICATION}|uuid",
            if self.rng.bool() { "keep" } else { "replace" },
        ]);
        self.run(&call(&script::PROBE, &keys, &probe)).await;
        let mut floor = words(&[NEVER, "{RUN}|{REPLICATION}|uuid", STAMP, ""]);
        for field in [
            "counter",
            "slotFloor",
            "heldFloor",
            "held:a",
            "clean:b",
            "closed:a",
        ] {
            floor.extend([field.to_owned(), self.rng.u64(..50).to_string()]);
        }
        for field in ["delay:a", "slot:a/t", "slot:b/!mark"] {
            let value = format!("{}|{}", self.rng.u64(..20), self.rng.u64(..5));
            floor.extend([field.to_owned(), value]);
        }
        if self.rng.bool() {
            let mut page = words(&[NEVER, "{RUN}|{REPLICATION}|uuid", "", "71", "process", "1"]);
            page.extend_from_slice(&floor[4..]);
            let keys = words(&[META, PROBE, "p:turn"]);
            self.run(&call(&script::RESTORE, &keys, &page)).await;
            floor[3] = if self.rng.bool() { "71" } else { "72" }.to_owned();
        }
        self.run(&call(&script::SEAL, &keys, &floor)).await;
    }

    /// Draws an argument by its name in the layout of a script.
    fn argument(&mut self, name: &str, lock: &str) -> String {
        let rng = &mut self.rng;
        let pick = |rng: &mut Rng, from: &[&str]| from[rng.usize(..from.len())].to_owned();
        match name {
            "cluster" | "to cluster" => pick(rng, &CLUSTERS),
            "stem" => pick(rng, &["east/1|r1|x|", "west/2|r2|y|"]),
            "value" => format!(
                "{}{}",
                pick(rng, &["east/1|r1|x|", "west/2|r2|y|"]),
                rng.u64(..80)
            ),
            "milliseconds" | "own reservation" => pick(rng, &["60000", "3600000", "900000"]),
            "floor" | "token" | "slot" => rng.u64(..80).to_string(),
            "delay" => pick(rng, &["", "0", "15000", "40000"]),
            "mark" => pick(rng, &["", "u1|x", "u2|y"]),
            "channel" => "p:released".to_owned(),
            "keep" => pick(rng, &["", "keep"]),
            "published name" => pick(rng, &["", lock]),
            "name" => lock.to_owned(),
            "register" => pick(rng, &["held", "clean"]),
            "field" => format!("slot:{lock}/t"),
            "job" => pick(rng, &["u1@east", "u1@west", "u2@east"]),
            other => panic!("an argument without values: {other}"),
        }
    }

    /// Draws a call of a script that carries locks.
    fn batch(&mut self) -> Call {
        let all: Vec<_> = script::ALL
            .iter()
            .filter(|script| script.layout.is_some())
            .collect();
        let script = all[self.rng.usize(..all.len())];
        let layout = script.layout.unwrap();
        let (mut keys, mut arguments) = (words(&[META]), words(&[NEVER, STAMP]));
        match self.rng.u8(..20) {
            0 => arguments[0] = "1".into(),
            1 => arguments[1] = "another".into(),
            _ => {}
        }
        for name in layout.head {
            arguments.push(self.argument(name, "a"));
        }
        for lock in &["a", "b", "c"][..self.rng.usize(1..=3)] {
            keys.extend(layout.keys.iter().map(|key| format!("p:{key}:{lock}")));
            for name in layout.arguments {
                let argument = self.argument(name, lock);
                arguments.push(argument);
            }
        }
        call(script, &keys, &arguments)
    }

    async fn step(&mut self) {
        let keys = words(&[META, PROBE]);
        match self.rng.u8(..40) {
            0 => self.run(&words(&["HDEL", META, "seal"])).await,
            1 => {
                self.run(&call(
                    &script::RETIRE,
                    &keys,
                    &words(&[NEVER, "{RUN}", STAMP, ""]),
                ))
                .await
            }
            2 => self.run(&call(&script::FACTS, &keys, &words(&[""]))).await,
            3 => {
                self.run(&call(&script::SCRATCH, &words(&["p:lease:a"]), &words(&["0"])))
                    .await
            }
            4..=7 => self.seal().await,
            _ => {
                let batch = self.batch();
                self.run(&batch).await;
            }
        }
    }

    async fn compare_data(&mut self) {
        let keys: Vec<String> = ["a", "b", "c"]
            .iter()
            .flat_map(|lock| [format!("p:lease:{lock}"), format!("p:reserved:{lock}")])
            .collect();
        self.run(&call(&script::INSPECT, &keys, &[])).await;
        let (real, simulated) = self.ask(&words(&["HGETALL", META])).await;
        let pairs = |shown: Shown| {
            let Shown::Many(items) = shown else {
                panic!("{shown:?}")
            };
            let mut pairs: Vec<String> = items.chunks(2).map(|pair| format!("{pair:?}")).collect();
            pairs.sort();
            pairs
        };
        let real = match real {
            Shown::Error(error) => panic!("{error}"),
            real => pairs(real),
        };
        assert_eq!(real, pairs(simulated));
    }
}

/// Starts a real server and a simulated master. The server ends with the returned guard.
async fn both() -> (Both, RedisServer) {
    let server = RedisServer::start(&ServerOptions::default()).unwrap();
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = patient(&client).await.unwrap();
    let info: String = redis::cmd("INFO").query_async(&mut connection).await.unwrap();
    let network = Network::new(1, Latency::milliseconds(0, 0));
    let simulated = Masters::start(&network, &["m0"], 1).get(0).clone();
    let Reply::Bulk(own) = simulated.execute(&["INFO"]) else {
        panic!()
    };
    let real = Real {
        connection,
        own: Own::of(&info),
    };
    let both = Both {
        real,
        own: Own::of(&String::from_utf8(own).unwrap()),
        simulated,
        rng: Rng::new(),
    };
    (both, server)
}

#[tokio::test]
async fn a_simulated_master_replies_like_a_real_server() {
    let (mut both, _server) = both().await;
    for seed in 0..SEQUENCES {
        println!("seed {seed}");
        both.rng = Rng::with_seed(seed);
        both.run(&words(&["FLUSHALL"])).await;
        both.seal().await;
        for _ in 0..STEPS {
            both.step().await;
        }
        both.compare_data().await;
    }
}

#[tokio::test]
async fn a_master_that_forgets_a_lease_is_found_out() {
    let (mut both, _server) = both().await;
    both.rng = Rng::with_seed(1);
    both.seal().await;
    for _ in 0..20 * STEPS {
        let batch = both.batch();
        let (real, simulated) = both.ask(&batch).await;
        if real != simulated {
            return;
        }
        for lock in ["a", "b", "c"] {
            both.simulated.execute(&["DEL", &format!("p:lease:{lock}")]);
        }
    }
    panic!("no reply shows the lost leases");
}
