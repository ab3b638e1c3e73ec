//! Plans which faults occur, when and where: drawn from one seed, before the run begins.
//!
//! A plan consists of rounds of a *storm* and a *calm*. In a storm the lanes run side by side, and within a
//! lane one act follows another, so that faults that exclude each other never overlap: a wrapper is not
//! frozen while its guardian is dead, and at most two of the five masters are struck, except in the last act
//! of a storm, which strikes three. In the calm everything heals, all locks must be held again, and then
//! leases are deleted: nothing else may be wrong at that time (see [`Calm`]).

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

use crate::cast;
use crate::draw;
use crate::kinds::Kind;

/// The usual duration of a storm and its calm.
pub const ROUND: Duration = Duration::from_secs(42);
/// With fewer rounds, the bags are never emptied, and a kind could be missing.
const LEAST_ROUNDS: u32 = 2;

/// The object of an act. The holder of a lock is determined when the act begins: the plan names the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Link { process: usize, masters: Vec<usize> },
    HolderOf(String),
    Masters(Vec<usize>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Act {
    pub kind: Kind,
    pub target: Target,
    /// The pause after the previous act in the same lane.
    pub pause: Duration,
    pub lasts: Duration,
    /// The pause before the next act in the same lane.
    pub rest: Duration,
    /// The length of a delay, in each direction.
    pub delay: Duration,
}

pub type Lane = Vec<Act>;

/// A lease is deleted on one or two masters, which keep their seal: these masters misbehave in the sense of
/// S1. The protocol survives this only if all other masters have the lease. So no other fault is active at
/// that time, and all five masters must show the lease before it is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calm {
    pub deletes: Vec<(String, Vec<usize>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    pub lanes: Vec<Lane>,
    /// The act after the end of all lanes.
    pub last: Act,
    pub calm: Calm,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub seed: u64,
    pub seconds: u64,
    pub rounds: Vec<Round>,
}

impl Plan {
    pub fn new(seed: u64, seconds: u64) -> Self {
        let rng = &mut Rng::with_seed(seed);
        let count = u32::try_from(seconds / ROUND.as_secs())
            .unwrap()
            .max(LEAST_ROUNDS);
        let rounds = draw::rounds(rng, count);
        Self {
            seed,
            seconds,
            rounds,
        }
    }

    /// Returns the command that plays the plan again.
    pub fn again(&self) -> String {
        format!(
            "make chaos ARGS='REDLOCK_SEED={} REDLOCK_SECONDS={}'",
            self.seed, self.seconds
        )
    }
}

fn names(masters: &[usize]) -> String {
    let names: Vec<String> = masters.iter().map(|master| format!("m{master}")).collect();
    names.join(" ")
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link { process, masters } => {
                write!(f, "{} <-> {}", cast::name(*process), names(masters))
            }
            Self::HolderOf(lock) => write!(f, "the holder of {lock}"),
            Self::Masters(masters) => f.write_str(&names(masters)),
        }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.what(), self.target)?;
        if self.kind == Kind::Delay {
            write!(f, ", {} ms each way", self.delay.as_millis())?;
        }
        if !self.lasts.is_zero() {
            write!(f, ", for {:.1} s", self.lasts.as_secs_f64())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cast::MAJORITY;

    fn acts(plan: &Plan) -> impl Iterator<Item = &Act> {
        let of_round = |round: &'_ Round| round.lanes.len();
        assert!(plan.rounds.iter().all(|round| of_round(round) == 6));
        plan.rounds
            .iter()
            .flat_map(|round| round.lanes.iter().flatten().chain([&round.last]))
    }

    #[test]
    fn a_plan_depends_on_its_seed_alone() {
        assert_eq!(Plan::new(7, 120), Plan::new(7, 120));
        assert_ne!(Plan::new(7, 120).rounds, Plan::new(8, 120).rounds);
    }

    #[test]
    fn the_shortest_plan_has_every_kind_whatever_the_seed() {
        for seed in 0..500 {
            let plan = Plan::new(seed, 0);
            for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::DeleteLease) {
                assert!(
                    acts(&plan).any(|act| act.kind == kind),
                    "seed {seed}: {kind:?} is missing"
                );
            }
            let deletes = plan.rounds.iter().flat_map(|round| &round.calm.deletes);
            assert!(deletes.clone().count() > 0);
            assert!(deletes.into_iter().all(|(_, masters)| masters.len() < MAJORITY));
        }
    }

    #[test]
    fn at_most_two_masters_are_struck_at_the_same_time() {
        for seed in 0..50 {
            for round in Plan::new(seed, 90).rounds {
                let of = |lane: &Lane| -> Vec<usize> {
                    let masters = lane.iter().flat_map(|act| match &act.target {
                        Target::Masters(masters) => masters.clone(),
                        _ => Vec::new(),
                    });
                    masters.collect()
                };
                let lanes: Vec<Vec<usize>> = round.lanes.iter().map(of).collect();
                let struck: Vec<&Vec<usize>> = lanes.iter().filter(|lane| !lane.is_empty()).collect();
                assert_eq!(struck.len(), 2);
                assert!(struck[0].iter().all(|master| !struck[1].contains(master)));
            }
        }
    }
}
