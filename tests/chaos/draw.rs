//! Draws a plan.

use std::time::Duration;

use fastrand::Rng;

use crate::cast::{self, MAJORITY, MASTERS, OPERATOR_LOCKS, PROCESSES, RUN_LOCKS, WITH_AOF};
use crate::kinds::{Kind, Of};
use crate::plan::{Act, Calm, Lane, Round, Target};

/// The time for which a storm begins new acts.
const STORM: Duration = Duration::from_secs(30);
/// The time from the loss of a seal to the next seal, with a second for the observation.
const SEALED_AGAIN: Duration = Duration::from_millis(8_500);

/// Draws every kind once before any kind twice, over all rounds.
struct Bag {
    all: Vec<Kind>,
    left: Vec<Kind>,
}

impl Bag {
    fn of(of: Of) -> Self {
        Self {
            all: Kind::all_of(of),
            left: Vec::new(),
        }
    }

    fn draw(&mut self, rng: &mut Rng) -> Kind {
        if self.left.is_empty() {
            self.left.clone_from(&self.all);
            rng.shuffle(&mut self.left);
        }
        self.left.pop().expect("a bag is filled before it is drawn from")
    }
}

fn between(rng: &mut Rng, milliseconds: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(rng.u64(milliseconds))
}

fn some(rng: &mut Rng, count: usize) -> Vec<usize> {
    let mut masters: Vec<usize> = (0..MASTERS).collect();
    rng.shuffle(&mut masters);
    masters.truncate(count);
    masters.sort_unstable();
    masters
}

pub fn rounds(rng: &mut Rng, count: u32) -> Vec<Round> {
    let mut bags = [Of::Network, Of::Operator, Of::Run, Of::Master, Of::Majority].map(Bag::of);
    (0..count).map(|_| round(rng, &mut bags)).collect()
}

fn round(rng: &mut Rng, bags: &mut [Bag; 5]) -> Round {
    let [network, operators, runs, masters, majority] = bags;
    // One master stays untouched, and each lane has two of its own.
    let mut shuffled: Vec<usize> = (0..MASTERS).collect();
    rng.shuffle(&mut shuffled);
    // The same for the processes, so that no lane heals a link that another one cut.
    let mut processes: Vec<usize> = (0..PROCESSES).collect();
    rng.shuffle(&mut processes);
    let (some_of, others) = processes.split_at(PROCESSES / 2);
    let lanes = vec![
        lane(rng, network, |rng, kind| link(rng, kind, some_of)),
        lane(rng, network, |rng, kind| link(rng, kind, others)),
        lane(rng, operators, operator),
        lane(rng, runs, run),
        lane(rng, masters, |rng, kind| master(rng, kind, &shuffled[..2])),
        lane(rng, masters, |rng, kind| master(rng, kind, &shuffled[2..4])),
    ];
    let kind = majority.draw(rng);
    let last = Act {
        kind,
        target: Target::Masters(some(rng, MAJORITY)),
        pause: between(rng, 0..1_000),
        lasts: if kind == Kind::FreezeMajority {
            between(rng, 2_000..6_000)
        } else {
            Duration::ZERO
        },
        rest: Duration::ZERO,
        delay: Duration::ZERO,
    };
    let all = cast::locks();
    let delete = |rng: &mut Rng| {
        let lock = all[rng.usize(..all.len())].clone();
        let count = rng.usize(1..MAJORITY);
        (lock, some(rng, count))
    };
    let deletes = vec![delete(rng), delete(rng)];
    Round {
        lanes,
        last,
        calm: Calm { deletes },
    }
}

/// Draws as many acts as begin within a storm.
fn lane(rng: &mut Rng, bag: &mut Bag, act: impl Fn(&mut Rng, Kind) -> Act) -> Lane {
    let (mut lane, mut at) = (Lane::new(), Duration::ZERO);
    loop {
        let kind = bag.draw(rng);
        let next = act(rng, kind);
        at += next.pause;
        if at > STORM {
            // The kind is put back, so that every drawn kind is played.
            bag.left.push(next.kind);
            return lane;
        }
        at += next.lasts + next.rest;
        lane.push(next);
    }
}

fn link(rng: &mut Rng, kind: Kind, of: &[usize]) -> Act {
    // Usually few masters, and sometimes all of them, which cuts the process off.
    let masters = match rng.u8(..6) {
        0 => MASTERS,
        1 => MAJORITY,
        _ => rng.usize(1..MAJORITY),
    };
    Act {
        kind,
        target: Target::Link {
            process: of[rng.usize(..of.len())],
            masters: some(rng, masters),
        },
        pause: between(rng, 100..800),
        lasts: between(rng, 500..6_000),
        rest: Duration::ZERO,
        delay: between(rng, 5..700),
    }
}

fn process(rng: &mut Rng, kind: Kind, lock: String, freezes: bool) -> Act {
    Act {
        kind,
        target: Target::HolderOf(lock),
        pause: between(rng, 200..1_500),
        lasts: if freezes {
            between(rng, 3_200..6_000)
        } else {
            Duration::ZERO
        },
        // Time for the killed process to be started again.
        rest: Duration::from_millis(1_500),
        delay: Duration::ZERO,
    }
}

fn operator(rng: &mut Rng, kind: Kind) -> Act {
    let lock = cast::operator_lock(rng.usize(..OPERATOR_LOCKS.len()));
    process(rng, kind, lock, kind == Kind::FreezeOperator)
}

fn run(rng: &mut Rng, kind: Kind) -> Act {
    let lock = RUN_LOCKS[rng.usize(..RUN_LOCKS.len())].to_owned();
    let freezes = matches!(kind, Kind::FreezeWrapper | Kind::FreezeCommand);
    process(rng, kind, lock, freezes)
}

fn master(rng: &mut Rng, kind: Kind, of: &[usize]) -> Act {
    let can = |master: &&usize| kind != Kind::RestartAof || **master < WITH_AOF;
    let of: Vec<usize> = of.iter().filter(can).copied().collect();
    let lasts = match kind {
        Kind::FreezeMaster | Kind::MasterDown => between(rng, 1_000..5_000),
        Kind::EvictionPolicy | Kind::TakeRight | Kind::UserOff => between(rng, 1_500..4_000),
        Kind::ClientPause => between(rng, 500..3_000),
        _ => Duration::ZERO,
    };
    Act {
        kind,
        target: Target::Masters(vec![of[rng.usize(..of.len())]]),
        pause: between(rng, 200..1_000),
        lasts,
        rest: if kind.takes_the_seal() {
            SEALED_AGAIN
        } else {
            Duration::ZERO
        },
        delay: Duration::ZERO,
    }
}
