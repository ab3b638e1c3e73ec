//! Translates between the engine and the model of a master: script calls into operations, answers into
//! replies.

use std::{collections::BTreeMap, sync::LazyLock};

use redlock_core::{
    Command, Fingerprint, LeaseAttempt, LeaseValue, MasterFacts, Obstacle, QuorumId, Server, Transmit,
    Unknown,
    command::Item,
    fence::{FenceMark, Removal, own_reservation},
    reply::{Code, Reply, Value},
    seal,
};

use crate::{
    master::{self, Answer, Fenced, Job, Op, Own},
    world::{ACQUIRE_LIMIT, LONGEST, OTHER_LONGEST},
};

static QUORUM: LazyLock<QuorumId> = LazyLock::new(|| QuorumId::from_bits(7));

pub(crate) fn quorum() -> QuorumId {
    QUORUM.clone()
}

/// Returns the operation of one member of a script call. `value` gives the lease value, without a grant
/// number.
pub(crate) fn op(
    transmit: &Transmit,
    member: usize,
    value: impl Fn(&LeaseAttempt) -> LeaseValue,
    floor: u64,
) -> Op {
    let payload = &transmit.payload;
    match &payload.items[member].1 {
        Item::Confirm {
            attempt,
            token,
            granted,
        } => {
            let number = granted.iter().find(|(m, _)| *m == transmit.id.master);
            Op::Confirm {
                value: LeaseValue {
                    grant: number.map_or(0, |(_, number)| *number),
                    ..value(attempt)
                },
                token: token.0,
            }
        }
        Item::UndoAgain { attempt, publish, .. } => Op::Release {
            stem: value(attempt),
            publish: *publish,
            keep_reservation: true,
        },
        Item::ReserveAgain { attempt, cluster, .. } => Op::Reserve {
            stem: value(attempt),
            cluster: cluster.to_string(),
            own: attempt.fence().map(|_| Own::Refuses),
        },
        Item::Command(command) => of_command(command, &payload.cluster, value, floor),
    }
}

fn of_command(command: &Command, own: &str, value: impl Fn(&LeaseAttempt) -> LeaseValue, floor: u64) -> Op {
    match command {
        Command::Acquire {
            attempt,
            lease_duration,
        } => Op::Grant {
            stem: value(attempt),
            floor,
            lease_ms: millis(*lease_duration),
            fenced: attempt.fence().is_some(),
        },
        Command::Renew {
            attempt,
            token,
            lease_duration,
        } => Op::Renew {
            stem: value(attempt),
            token: token.0,
            lease_ms: millis(*lease_duration),
            fence: attempt.fence().map(|fence| Fenced {
                mark: fence.mark().map(FenceMark::body).unwrap_or_default(),
                delay: fence.delay(),
                keep_ms: millis(own_reservation(*lease_duration, attempt.lifetime)),
            }),
        },
        Command::Release { attempt } => Op::Release {
            stem: value(attempt),
            publish: true,
            keep_reservation: false,
        },
        Command::Undo { attempt, publish } => Op::Release {
            stem: value(attempt),
            publish: *publish,
            keep_reservation: true,
        },
        Command::Reserve { attempt, cluster } => Op::Reserve {
            stem: value(attempt),
            cluster: cluster.to_string(),
            own: attempt.fence().map(|fence| match fence.removal() {
                Removal::All => Own::Replaced,
                Removal::Lease | Removal::Nothing => Own::Refuses,
            }),
        },
        Command::Observe | Command::Inspect => Op::Observe {
            cluster: own.to_owned(),
        },
        Command::Break { longest_lease } => Op::Break {
            longest_ms: millis(*longest_lease),
        },
        Command::Mark { attempt, token, mark } => Op::Mark {
            stem: value(attempt),
            token: token.0,
            mark: *mark,
            fence: attempt
                .fence()
                .map(|fence| fence.mark().map(FenceMark::body).unwrap_or_default()),
        },
        Command::Claim { slot, job, .. } => Op::Claim {
            slot: *slot,
            job: parse_job(job),
        },
        Command::Slots { .. } => unreachable!("no candidate of the simulation reads slots"),
    }
}

/// Returns the register of the fence mark, as a master stores it.
pub(crate) fn mark_text((token, body): &(u64, String)) -> String {
    match token {
        0 => String::new(),
        _ => format!("{token}|{body}"),
    }
}

pub(crate) fn job_text(job: Job) -> String {
    job.map_or_else(|| "nobody".to_owned(), |uid| format!("{uid}@any"))
}

fn parse_job(text: &str) -> Job {
    text.split_once('@').map(|(uid, _)| uid.parse().unwrap())
}

pub(crate) fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap()
}

/// Returns the reply of a script call. `sealed` states whether the master was sealed when the script ran.
///
/// # Errors
/// Returns the error of a server whose memory is full.
pub(crate) fn reply(replies: &[master::Reply], sealed: bool) -> Result<Reply, Unknown> {
    if replies
        .iter()
        .any(|reply| matches!(reply.answer, Answer::OutOfMemory))
    {
        return Err(Unknown::server("OOM", "command not allowed"));
    }
    let items: Vec<Value> = replies.iter().filter_map(item).collect();
    let code = match (sealed, items.len() == replies.len()) {
        (false, _) => Code::Unsealed,
        (true, false) => Code::Late,
        (true, true) => Code::Ok,
    };
    let last = replies.last().expect("a call has members");
    Ok(Reply {
        items: if code == Code::Ok { items } else { Vec::new() },
        time: last.time,
        counter: if code == Code::Ok { last.counter } else { 0 },
        code,
    })
}

/// Returns one lock's part, as the script returns it.
fn item(reply: &master::Reply) -> Option<Value> {
    let text = |text: String| Value::Text(text.into_bytes());
    let array = |parts: [Value; _]| Value::Array(parts.into());
    let left = |ms: u64| Value::Int(i64::try_from(ms).unwrap());
    Some(match &reply.answer {
        Answer::Granted(number) => {
            let (marks, delay) = (reply.marks, reply.marks.delay);
            let mut parts = vec![
                "granted".into(),
                text(number.to_string()),
                marks.held.into(),
                text(marks.clean.to_string()),
                text(format!("{}|{}", delay.token, delay.milliseconds)),
            ];
            parts.extend(reply.fence.as_ref().map(|mark| text(mark_text(mark))));
            Value::Array(parts)
        }
        Answer::Done => Value::Int(1),
        Answer::NotDone => Value::Int(0),
        Answer::Ours => Value::Array(vec!["ours".into()]),
        Answer::Obstacle(Obstacle::Lease(value), ms) => {
            array(["lease".into(), text(value.to_string()), left(*ms)])
        }
        Answer::Obstacle(Obstacle::Reserved(cluster), ms) => {
            array(["reserved".into(), cluster.as_str().into(), left(*ms)])
        }
        Answer::Obstacle(Obstacle::Foreign(foreign), ms) => {
            array(["lease".into(), foreign.as_str().into(), left(*ms)])
        }
        Answer::Failed => Value::Array(vec!["error".into()]),
        Answer::OutOfMemory | Answer::Unknown => return None,
    })
}

/// Returns the error of a server that does not know a script.
pub(crate) fn no_script() -> Unknown {
    Unknown::server("NOSCRIPT", "No matching script")
}

/// Returns the facts of a master for a poll. `fingerprint` is the one that it knows, sealed or not.
pub(crate) fn facts(run_id: String, sealed: bool, fingerprint: Option<String>, counter: u64) -> MasterFacts {
    MasterFacts {
        seal: if sealed { run_id.clone() } else { String::new() },
        run_id,
        server: Server::Redis("7.0".into()),
        role: "master".into(),
        eviction_policy: "noeviction".into(),
        quorum: fingerprint.is_some().then(quorum),
        fingerprint: fingerprint.unwrap_or_default(),
        counter,
        replication_id: "b".repeat(40),
        replication_at_seal: "b".repeat(40) + "|0",
        ..MasterFacts::default()
    }
}

/// The fingerprint that a candidate or a process that seals is configured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// That of the quorum.
    Quorum,
    /// The same masters, with a shorter longest lease.
    Other,
}

/// Returns the fingerprints of a world with this number of masters, in the order of [`Named`].
pub(crate) fn fingerprints(masters: usize) -> [Fingerprint; 2] {
    let names = || (0..masters).map(|master| format!("m{master}")).collect();
    [LONGEST, OTHER_LONGEST].map(|longest| Fingerprint::new(names(), longest, ACQUIRE_LIMIT))
}

/// Returns the reply of a master that is sealed for another fingerprint.
pub(crate) fn foreign(time: u64) -> Reply {
    Reply {
        code: Code::Foreign,
        time,
        counter: 0,
        items: Vec::new(),
    }
}

const FLOORS: [&str; 6] = [
    "counter",
    "slotFloor",
    "heldFloor",
    "held:l",
    "clean:l",
    "closed:l",
];
const MARK: &str = "slot:l/!mark";
const SLOT: &str = "slot:l/t";
const DELAY: &str = "delay:l";

/// Returns the registers of a master as the program reads them.
pub(crate) fn shipped(of: &master::Registers) -> seal::Registers {
    let numbers = [
        of.counter,
        of.slot_floor,
        of.held_floor,
        of.held,
        of.clean,
        of.closed,
    ];
    let (slot, job) = of.slot;
    let uid = job_text(job);
    let mut slots = BTreeMap::from([(SLOT.to_owned(), seal::Slot { slot, uid })]);
    if let (token @ 1.., uid) = of.mark.clone() {
        slots.insert(MARK.to_owned(), seal::Slot { slot: token, uid });
    }
    seal::Registers {
        numbers: FLOORS.map(str::to_owned).into_iter().zip(numbers).collect(),
        slots,
        delays: BTreeMap::from([(DELAY.to_owned(), of.delay)]),
    }
}

/// Returns the registers that the program writes, as the model of a master stores them.
pub(crate) fn of_shipped(floor: &seal::Registers) -> master::Registers {
    let [counter, slot_floor, held_floor, held, clean, closed] = FLOORS.map(|field| floor.number(field));
    let slot = floor.slots.get(SLOT);
    let mark = floor.slots.get(MARK);
    master::Registers {
        counter,
        slot: slot.map_or((0, None), |slot| (slot.slot, parse_job(&slot.uid))),
        slot_floor,
        held,
        clean,
        held_floor,
        delay: floor.delays.get(DELAY).copied().unwrap_or_default(),
        mark: mark.map_or_else(Default::default, |mark| (mark.slot, mark.uid.clone())),
        closed,
    }
}
