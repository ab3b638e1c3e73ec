//! Runs one random sequence on both sides.

use std::time::Duration;

use fastrand::Rng;
use redlock_client::lease::{ClusterId, DeclaredDelay, HolderIdentity, LeaseValue, Mark, Nonce, Obstacle};

use super::real::Real;
use crate::master::{Answer, Fenced, Master, Op, Own, Registers};
use crate::plant::Plant;
use crate::rate::Rate;
use redlock_testkit::eventually;

const BOUND: Duration = Duration::from_secs(20);
/// A script may run later than planned by up to this time, at any moment in between. The remaining times of
/// the two sides may differ by as much.
const LATE_MS: u64 = 20;
const CLUSTERS: [&str; 2] = ["east", "west"];
/// Leases that end soon, and a lease that outlasts the sequence.
const LEASES_MS: [u64; 3] = [60, 200, 3_600_000];

pub(super) struct Sequence<'a> {
    rng: Rng,
    real: &'a mut Real,
    model: Master,
    /// The greatest permitted difference of the ends of keys, in milliseconds.
    slack: u64,
}

pub(super) fn obstacle(kind: &str, text: &str) -> Obstacle {
    match kind {
        "lease" => Obstacle::Lease(text.parse().unwrap()),
        "reserved" => Obstacle::Reserved(text.to_owned()),
        other => panic!("what is {other}?"),
    }
}

impl<'a> Sequence<'a> {
    pub(super) async fn new(rng: Rng, plant: Plant, real: &'a mut Real) -> Self {
        let clock = Rate {
            offset: 0,
            parts_per_million: 0,
        };
        let mut sequence = Self {
            rng,
            real,
            model: Master::new(clock, plant),
            slack: 0,
        };
        sequence.lose_memory().await;
        sequence
    }

    async fn lose_memory(&mut self) {
        let mut floor = Registers {
            counter: self.rng.u64(..50),
            slot: (self.rng.u64(..8), Some(self.rng.u32(..3)).filter(|job| *job > 0)),
            slot_floor: self.rng.u64(..4),
            held: self.rng.u64(..20),
            clean: self.rng.u64(..20),
            held_floor: self.rng.u64(..20),
            delay: DeclaredDelay {
                token: self.rng.u64(..20),
                milliseconds: self.rng.u64(..3),
            },
            mark: self.mark(),
            closed: self.rng.u64(..20),
        };
        if floor.slot.0 == 0 {
            floor.slot.1 = None;
        }
        self.real.flush().await;
        self.real.seal(&floor).await;
        self.model.forget();
        self.model.seal(&floor);
        self.slack = 2;
    }

    fn mark(&mut self) -> (u64, String) {
        match self.rng.u64(..20) {
            0 => Default::default(),
            token => (token, self.body()),
        }
    }

    /// Returns a random fence mark without its token.
    fn body(&mut self) -> String {
        format!("{},{},0", self.rng.u32(1..4), CLUSTERS[self.rng.usize(..2)])
    }

    fn fenced(&mut self) -> Fenced {
        Fenced {
            mark: if self.rng.bool() {
                self.body()
            } else {
                String::new()
            },
            delay: self.rng.u64(..4),
            keep_ms: LEASES_MS[self.rng.usize(..LEASES_MS.len())] + 5_000,
        }
    }

    /// Seals the master as after a restart with its data: its registers merge with those of the other masters.
    async fn seal_again(&mut self) {
        let own = self.model.registers.clone();
        let mut near = |number: u64| (number + self.rng.u64(..3)).saturating_sub(1);
        let floor = Registers {
            counter: near(own.counter),
            slot: (near(own.slot.0), Some(1)),
            slot_floor: near(own.slot_floor),
            held: near(own.held),
            clean: near(own.clean),
            held_floor: near(own.held_floor),
            delay: DeclaredDelay {
                token: near(own.delay.token),
                milliseconds: near(own.delay.milliseconds),
            },
            mark: (near(own.mark.0), "9,west,0".to_owned()),
            closed: near(own.closed),
        };
        let floor = Registers {
            mark: if floor.mark.0 == 0 {
                Default::default()
            } else {
                floor.mark
            },
            ..floor
        };
        self.real.unseal().await;
        self.real.seal(&floor).await;
        self.model.restart();
        self.model.seal(&floor);
    }

    fn value(&mut self) -> LeaseValue {
        let who = self.rng.usize(..4);
        LeaseValue {
            cluster: ClusterId::new(&format!("{}-{who}", CLUSTERS[who % 2]), CLUSTERS[who % 2]).unwrap(),
            identity: HolderIdentity::parse(&format!("candidate-{who}")).unwrap(),
            nonce: Nonce(u128::from(self.rng.u64(..2))),
            grant: 0,
        }
    }

    /// Returns the stored value in most cases: a new value would rarely match another one.
    fn stem(&mut self, now: u64) -> LeaseValue {
        match self.model.lease(now * 1_000) {
            Some(value) if self.rng.u32(..3) > 0 => value.clone(),
            _ => self.value(),
        }
    }

    fn op(&mut self, now: u64) -> Op {
        let stem = self.stem(now);
        let lease_ms = LEASES_MS[self.rng.usize(..LEASES_MS.len())];
        let registers = &self.model.registers;
        // A delay can only be lowered under its own token.
        let token = match self.rng.u32(..4) {
            0 => registers.delay.token,
            _ => (registers.counter + self.rng.u64(..4)).saturating_sub(1),
        };
        // No lease has the token 0.
        let token = token.max(1);
        // Half of the calls are for a fenced lock.
        let fenced = self.rng.bool();
        match self.rng.u32(..12) {
            0..=2 => Op::Grant {
                stem,
                floor: token,
                lease_ms,
                fenced,
            },
            3 => Op::Confirm {
                value: LeaseValue {
                    grant: stem.grant + self.rng.u64(..2),
                    ..stem
                },
                token,
            },
            4 | 5 => Op::Renew {
                stem,
                token,
                lease_ms,
                fence: fenced.then(|| self.fenced()),
            },
            6 => Op::Release {
                stem,
                publish: self.rng.bool(),
                keep_reservation: self.rng.bool(),
            },
            7 => {
                let cluster = CLUSTERS[self.rng.usize(..2)];
                Op::Reserve {
                    stem,
                    cluster: ClusterId::new(cluster, cluster).unwrap().to_string(),
                    own: fenced.then(|| [Own::Replaced, Own::Refuses][self.rng.usize(..2)]),
                }
            }
            8 => Op::Observe {
                cluster: stem.cluster.to_string(),
            },
            9 => Op::Break {
                longest_ms: lease_ms.min(200),
            },
            10 => Op::Mark {
                stem,
                token,
                mark: match self.rng.u32(..if fenced { 3 } else { 2 }) {
                    0 => Mark::Clean,
                    1 => Mark::Held {
                        delay: Duration::from_millis(self.rng.u64(..4)),
                    },
                    _ => Mark::Closed,
                },
                fence: fenced.then(|| self.body()),
            },
            _ => Op::Claim {
                slot: (self.model.registers.slot.0 + self.rng.u64(..3)).saturating_sub(1),
                job: Some(self.rng.u32(1..3)),
            },
        }
    }

    /// Runs one step. Returns whether both sides can be compared: they cannot if a key ends at that moment.
    pub(super) async fn step(&mut self) -> Result<bool, String> {
        match self.rng.u32(..40) {
            0 => self.lose_memory().await,
            1..=3 => self.seal_again().await,
            _ => {}
        }
        let full = self.rng.u32(..4) == 0;
        self.model.memory_is_full = full;
        self.real.limit_memory(full).await;
        let now = self.away_from_an_end().await;
        let op = self.op(now);
        let own = match &op {
            Op::Grant { stem, .. }
            | Op::Renew { stem, .. }
            | Op::Release { stem, .. }
            | Op::Reserve { stem, .. } => stem.cluster.to_string(),
            _ => String::new(),
        };
        let not_after = if self.rng.u32(..20) == 0 {
            now - 1
        } else {
            now + 3_600_000_000
        };
        let before = self.model.clone();
        let response = self.real.run(&op, &own, not_after).await;
        let ran = self.real.time().await / 1_000;
        let (registers, lease, reserved) = self.real.data().await;
        let ended = self.real.time().await / 1_000;
        self.slack = self.slack.max(2 + ran - now / 1_000);
        let reply = self.model.run(response.time * 1_000, not_after, &op);
        self.real.limit_memory(false).await;
        let (from, to) = (now / 1_000 - self.slack, ended + self.slack);
        if self.slack > LATE_MS || before.ends_between(from, to) || self.model.ends_between(from, to) {
            self.lose_memory().await;
            return Ok(false);
        }
        let known = response.counter.is_none_or(|counter| counter == reply.counter);
        let granted = matches!(reply.answer, Answer::Granted(_));
        let mark = reply.fence.as_ref().filter(|_| granted).map(mark_text);
        if !same(&response.answer, &reply.answer, self.slack) || !known || response.fence != mark {
            return Err(format!(
                "{op:?}\n real: {response:?}\nmodel: {reply:?}\nbefore: {before:?}"
            ));
        }
        let at = ended * 1_000_000;
        let expected = (
            self.model.registers.clone(),
            self.model.lease(at).map(ToString::to_string),
            self.model.reservation(at).map(ToOwned::to_owned),
        );
        if (&registers, &lease, &reserved) != (&expected.0, &expected.1, &expected.2) {
            let found = (registers, lease, reserved);
            return Err(format!(
                "{op:?}\n real: {found:?}\nmodel: {expected:?}\nbefore: {before:?}"
            ));
        }
        Ok(true)
    }

    /// Waits until no key ends, by the server's clock, within the time that a script may take to reach the
    /// server.
    async fn away_from_an_end(&mut self) -> u64 {
        let (real, model) = (&mut *self.real, &self.model);
        eventually(BOUND, "no key is about to end", async || {
            let now = real.time().await;
            if model.ends_between(now / 1_000 - LATE_MS, now / 1_000 + LATE_MS) {
                Err(now)
            } else {
                Ok(now)
            }
        })
        .await
    }
}

/// Returns the register as a master stores it.
fn mark_text((token, body): &(u64, String)) -> String {
    match token {
        0 => String::new(),
        _ => format!("{token}|{body}"),
    }
}

/// Reports whether two answers are equal, except for remaining times that differ within the slack.
fn same(a: &Answer, b: &Answer, slack: u64) -> bool {
    match (a, b) {
        (Answer::Obstacle(a, left_a), Answer::Obstacle(b, left_b)) => {
            format!("{a:?}") == format!("{b:?}") && left_a.abs_diff(*left_b) <= slack
        }
        (a, b) => format!("{a:?}") == format!("{b:?}"),
    }
}
