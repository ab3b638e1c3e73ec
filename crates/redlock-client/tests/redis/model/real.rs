//! Runs the scripts, as `crates/redlock-core/src/script.rs` assembles them, on one server.

use redis::Value;
use redis::aio::MultiplexedConnection;
use redlock_client::lease::{DeclaredDelay, Mark};

use crate::master::{Answer, Fenced, Op, Own, Registers};
use redlock_testkit::patient;

const META: &str = "model:meta";
const PROBE: &str = "model:probe";
const LEASE: &str = "model:lease:L";
const RESERVED: &str = "model:reserved:L";
const FINGERPRINT: &str = "f";
const CHANNEL: &str = "model:released";
const LOCK: &str = "L";

macro_rules! script {
    ($($file:literal)+) => {
        concat!($(include_str!(concat!("../../../../redlock-core/src/scripts/", $file))),+)
    };
}

const GRANT: &str = script!("fields_marks.lua" "preamble.lua" "shortened.lua" "obstacle.lua" "cluster.lua" "grant.lua" "granted.lua");
const CONFIRM: &str = script!("fields_none.lua" "preamble.lua" "confirm.lua");
const RENEW: &str =
    script!("fields_none.lua" "preamble.lua" "shortened.lua" "obstacle.lua" "cluster.lua" "renew.lua");
const RELEASE: &str = script!("fields_none.lua" "preamble.lua" "cluster.lua" "release.lua");
const RESERVE: &str = script!("fields_none.lua" "preamble.lua" "shortened.lua" "cluster.lua" "reserve.lua");
const OBSERVE: &str =
    script!("fields_none.lua" "preamble.lua" "remaining.lua" "obstacle.lua" "cluster.lua" "observe.lua");
const BREAK: &str = script!("fields_none.lua" "preamble.lua" "shortened.lua" "break.lua");
const MARK: &str = script!("fields_none.lua" "preamble.lua" "mark.lua");
const CLAIM: &str = script!("fields_none.lua" "preamble.lua" "claim.lua");
const GRANT_FENCED: &str = script!(
    "fields_fenced.lua" "preamble.lua" "shortened.lua" "obstacle.lua" "cluster.lua" "grant.lua" "granted_fenced.lua"
);
const RENEW_FENCED: &str = script!(
    "fields_none.lua" "preamble.lua" "shortened.lua" "obstacle.lua" "cluster.lua" "raise.lua" "renew_fenced.lua"
);
const RESERVE_FENCED: &str =
    script!("fields_none.lua" "preamble.lua" "shortened.lua" "cluster.lua" "reserve_fenced.lua");
const MARK_FENCED: &str = script!("fields_none.lua" "preamble.lua" "raise.lua" "mark_fenced.lua");
const SEAL: &str = script!("ended.lua" "unsealed.lua" "history.lua" "merge.lua" "seal.lua");

/// The reply of a server to one script.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) answer: Answer,
    /// The time of the server, in microseconds.
    pub(super) time: u64,
    pub(super) counter: Option<u64>,
    /// The mark of a grant of a fenced lock.
    pub(super) fence: Option<String>,
}

pub(super) struct Real {
    connection: MultiplexedConnection,
    /// How its probes begin.
    process: String,
}

impl Real {
    pub(super) async fn connect(url: &str) -> Self {
        let client = redis::Client::open(url).unwrap();
        let mut connection = patient(&client).await.unwrap();
        let info: redis::InfoDict = redis::cmd("INFO").query_async(&mut connection).await.unwrap();
        let field = |name| info.get::<String>(name).unwrap();
        let process = format!("{}|{}|", field("run_id"), field("master_replid"));
        Self { connection, process }
    }

    async fn ask<T: redis::FromRedisValue>(&mut self, command: &mut redis::Cmd) -> T {
        command.query_async(&mut self.connection).await.unwrap()
    }

    /// Deletes all data.
    pub(super) async fn flush(&mut self) {
        let () = self.ask(&mut redis::cmd("FLUSHALL")).await;
    }

    /// Lets the server refuse each command that may need memory, or serve all again.
    pub(super) async fn limit_memory(&mut self, full: bool) {
        let mut limit = redis::cmd("CONFIG");
        let bytes = u32::from(full);
        let () = self.ask(limit.arg("SET").arg("maxmemory").arg(bytes)).await;
    }

    /// Removes the seal, so that the server acts like another process with the same data.
    pub(super) async fn unseal(&mut self) {
        let () = self.ask(redis::cmd("HDEL").arg(META).arg("seal")).await;
    }

    pub(super) async fn seal(&mut self, floor: &Registers) {
        let probe = format!("{}uuid", self.process);
        let () = self.ask(redis::cmd("SET").arg(PROBE).arg(&probe)).await;
        let mut call = redis::cmd("EVAL");
        call.arg(SEAL).arg(2).arg(META).arg(PROBE);
        call.arg(u64::MAX / 2048).arg(&probe).arg(FINGERPRINT).arg("");
        call.arg("counter")
            .arg(floor.counter)
            .arg("slotFloor")
            .arg(floor.slot_floor);
        call.arg("heldFloor").arg(floor.held_floor);
        call.arg(format!("held:{LOCK}")).arg(floor.held);
        call.arg(format!("clean:{LOCK}")).arg(floor.clean);
        if floor.delay != DeclaredDelay::default() {
            let DeclaredDelay { token, milliseconds } = floor.delay;
            call.arg(format!("delay:{LOCK}"))
                .arg(format!("{token}|{milliseconds}"));
        }
        call.arg(format!("closed:{LOCK}")).arg(floor.closed);
        if floor.mark.0 > 0 {
            call.arg(format!("slot:{LOCK}/!mark"))
                .arg(format!("{}|{}", floor.mark.0, floor.mark.1));
        }
        if floor.slot.0 > 0 {
            call.arg(format!("slot:{LOCK}/t"))
                .arg(slot_text(floor.slot.0, floor.slot.1));
        }
        let reply: Vec<Value> = self.ask(&mut call).await;
        assert_eq!(text(&reply[0]), "ok", "{reply:?}");
    }

    pub(super) async fn time(&mut self) -> u64 {
        let (seconds, micros): (u64, u64) = self.ask(&mut redis::cmd("TIME")).await;
        seconds * 1_000_000 + micros
    }

    /// Runs one script. `not_after` is in microseconds; 0 is too late.
    pub(super) async fn run(&mut self, op: &Op, own: &str, not_after: u64) -> Response {
        let mut call = redis::cmd("EVAL");
        let mut begin = |script: &str, keys: &[&str]| {
            call.arg(script).arg(keys.len() + 1).arg(META).arg(keys);
            call.arg(not_after).arg(FINGERPRINT);
        };
        match op {
            Op::Grant {
                stem,
                floor,
                lease_ms,
                fenced,
            } => {
                begin(if *fenced { GRANT_FENCED } else { GRANT }, &[LEASE, RESERVED]);
                call.arg(floor)
                    .arg(own)
                    .arg(stem_of(&stem.to_string()))
                    .arg(lease_ms)
                    .arg(LOCK);
            }
            Op::Confirm { value, token } => {
                begin(CONFIRM, &[LEASE]);
                call.arg(value.to_string()).arg(token);
            }
            Op::Renew {
                stem,
                token,
                lease_ms,
                fence,
            } => {
                let script = fence.as_ref().map_or(RENEW, |_| RENEW_FENCED);
                begin(script, &[LEASE, RESERVED]);
                call.arg(own)
                    .arg(stem_of(&stem.to_string()))
                    .arg(token)
                    .arg(lease_ms);
                if let Some(Fenced { mark, delay, keep_ms }) = fence {
                    call.arg(LOCK).arg(mark).arg(delay).arg(keep_ms);
                }
            }
            Op::Release {
                stem,
                publish,
                keep_reservation,
            } => {
                begin(RELEASE, &[LEASE, RESERVED]);
                call.arg(if *keep_reservation { "" } else { own }).arg(CHANNEL);
                call.arg(stem_of(&stem.to_string()))
                    .arg(if *publish { LOCK } else { "" });
            }
            Op::Reserve {
                stem,
                cluster,
                own: kept,
            } => {
                let script = kept.map_or(RESERVE, |_| RESERVE_FENCED);
                begin(script, &[LEASE, RESERVED]);
                call.arg(CHANNEL)
                    .arg(own)
                    .arg(stem_of(&stem.to_string()))
                    .arg(LOCK)
                    .arg(cluster);
                if let Some(kept) = kept {
                    call.arg(match kept {
                        Own::Replaced => "",
                        Own::Refuses => "keep",
                    });
                }
            }
            Op::Observe { cluster } => {
                begin(OBSERVE, &[LEASE, RESERVED]);
                call.arg(cluster);
            }
            Op::Break { longest_ms } => {
                begin(BREAK, &[LEASE, RESERVED]);
                call.arg(longest_ms);
            }
            Op::Mark {
                stem,
                token,
                mark,
                fence,
            } => {
                let fence = fence.as_ref().filter(|_| *mark != Mark::Clean);
                begin(fence.map_or(MARK, |_| MARK_FENCED), &[LEASE]);
                call.arg(stem_of(&stem.to_string())).arg(LOCK).arg(token);
                if let Some(fence) = fence {
                    call.arg(fence);
                }
                call.arg(match mark {
                    Mark::Held { delay } => delay.as_millis().to_string(),
                    Mark::Clean | Mark::Closed => String::new(),
                });
            }
            Op::Claim { slot, job } => {
                begin(CLAIM, &[]);
                call.arg(format!("slot:{LOCK}/t")).arg(slot).arg(job_text(*job));
            }
        }
        let reply: redis::RedisResult<Vec<Value>> = call.query_async(&mut self.connection).await;
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => {
                assert_eq!(error.code(), Some("OOM"), "{error}");
                return Response {
                    answer: Answer::OutOfMemory,
                    time: self.time().await,
                    counter: None,
                    fence: None,
                };
            }
        };
        Response {
            answer: if text(&reply[0]) == "ok" {
                answer(&reply[4])
            } else {
                Answer::Unknown
            },
            time: integer(&reply[1]) * 1_000_000 + integer(&reply[2]),
            counter: reply.get(3).map(integer),
            fence: reply.get(4).and_then(fence_of),
        }
    }

    /// Returns all data: the registers, and the values of lease and reservation.
    pub(super) async fn data(&mut self) -> (Registers, Option<String>, Option<String>) {
        let meta: std::collections::HashMap<String, String> = self.ask(redis::cmd("HGETALL").arg(META)).await;
        let number = |field: &str| meta.get(field).map_or(0, |text| text.parse().unwrap());
        let slot = meta.get(&format!("slot:{LOCK}/t")).map_or((0, None), |text| {
            let (slot, job) = text.split_once('|').unwrap();
            let job = job.split('@').next().unwrap();
            (
                slot.parse().unwrap(),
                job.strip_prefix('u').map(|uid| uid.parse().unwrap()),
            )
        });
        let delay = meta.get(&format!("delay:{LOCK}"));
        let delay = delay.map_or_else(DeclaredDelay::default, |text| {
            let (token, milliseconds) = text.split_once('|').unwrap();
            DeclaredDelay {
                token: token.parse().unwrap(),
                milliseconds: milliseconds.parse().unwrap(),
            }
        });
        let mark = meta.get(&format!("slot:{LOCK}/!mark"));
        let mark = mark.map_or_else(Default::default, |text| {
            let (token, body) = text.split_once('|').unwrap();
            (token.parse().unwrap(), body.to_owned())
        });
        let registers = Registers {
            mark,
            closed: number(&format!("closed:{LOCK}")),
            counter: number("counter"),
            slot,
            slot_floor: number("slotFloor"),
            held: number(&format!("held:{LOCK}")),
            clean: number(&format!("clean:{LOCK}")),
            held_floor: number("heldFloor"),
            delay,
        };
        let (lease, reserved) = self.ask(redis::cmd("MGET").arg(LEASE).arg(RESERVED)).await;
        (registers, lease, reserved)
    }
}

fn fence_of(item: &Value) -> Option<String> {
    match item {
        Value::Array(parts) if parts.len() == 6 => Some(text(&parts[5])),
        _ => None,
    }
}

fn job_text(job: Option<u32>) -> String {
    job.map_or("nobody".to_owned(), |uid| format!("u{uid}@east"))
}

fn slot_text(slot: u64, job: Option<u32>) -> String {
    format!("{slot}|{}", job_text(job))
}

/// Returns a lease value without its grant number.
fn stem_of(value: &str) -> &str {
    &value[..=value.rfind('|').unwrap()]
}

fn text(value: &Value) -> String {
    redis::from_redis_value(value.clone()).unwrap()
}

fn integer(value: &Value) -> u64 {
    redis::from_redis_value(value.clone()).unwrap()
}

fn answer(item: &Value) -> Answer {
    let Value::Array(parts) = item else {
        return if integer(item) == 1 {
            Answer::Done
        } else {
            Answer::NotDone
        };
    };
    match text(&parts[0]).as_str() {
        "granted" => Answer::Granted(integer(&parts[1])),
        "ours" => Answer::Ours,
        "error" => Answer::Failed,
        kind => Answer::Obstacle(
            super::sequence::obstacle(kind, &text(&parts[1])),
            integer(&parts[2]),
        ),
    }
}
