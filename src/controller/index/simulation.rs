//! Randomised test of the index: random sequences of inputs, and invariants after each of them.
//!
//! Faults: the replica loses the masters or the API server, definitions are not served, watches restart, requests fail,
//! conflict or get no answer, the wall clock steps. Users edit, delete and re-create objects meanwhile. `outside` simulates
//! the surroundings, `rules` holds the invariants. `REDLOCK_SEED=7` replays one sequence and prints each step;
//! `REDLOCK_SEQUENCES=100000` sets the number of sequences.

mod outside;
mod rules;
mod server;

use std::{collections::BTreeSet, time::Duration};

use super::{Index, Input, Planted, Replica, World};
use crate::{api::in_use::InUseFinalizer, controller::index::Scope, lease::BootInstant};
use outside::Outside;
use rules::Rules;

const ALL: [Planted; 9] = [
    Planted::StartsWithoutFinalizer,
    Planted::ContendsWhileDeleted,
    Planted::StopsDespiteSibling,
    Planted::StopsWithoutBound,
    Planted::ReleasesUnstopped,
    Planted::FinalizerStays,
    Planted::StatusEachTick,
    Planted::AnswerBringsBack,
    Planted::ClaimsWithoutAuthority,
];

/// Sequences of the test suite, which is built without the optimiser: 4 ms each. 100,000 take `REDLOCK_SEQUENCES`.
const SEQUENCES: u64 = 3_000;
/// One sequence in so many is followed until everything is at rest.
const TO_REST: u64 = 20;
const STEPS: usize = 24;
/// A planted mistake is found within so many sequences.
const FOUND_WITHIN: u64 = 3_000;
/// After the last fault, everything is at rest within this time: the longest back-off is a minute.
const REST: Duration = Duration::from_secs(400);
/// The rest is watched for so many ticks of a second; the statuses of quorums may still settle in the first of them.
const WATCHED: u32 = 70;
const SETTLING: u32 = 30;

struct Simulation {
    index: Index,
    outside: Outside,
    rules: Rules,
}

impl Simulation {
    fn new(seed: u64, planted: Option<Planted>, verbose: bool) -> Self {
        Self::with(Outside::new(seed, verbose), seed, planted)
    }

    fn with(outside: Outside, seed: u64, planted: Option<Planted>) -> Self {
        let scopes = [String::new()];
        let me = Replica {
            identity: outside.identity.clone(),
            cluster: outside.cluster.clone(),
            scope: Scope::of(&scopes),
            in_use: InUseFinalizer::new(None, &scopes),
            follows_siblings: true,
        };
        let mut index = Index::new(me, &scopes, seed);
        index.planted = planted;
        Self {
            index,
            outside,
            rules: Rules::default(),
        }
    }

    /// Gives one input to the index, and carries out what it decides.
    fn input(&mut self, input: Input) -> Result<(), String> {
        self.outside.log(|| format!("<- {input:?}"));
        self.rules.see(&input, &self.index);
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            self.index.handle(input, &world(&self.outside));
            self.index.settle(&world(&self.outside));
            while self.outside.may_write() && self.index.write_next(&world(&self.outside)) {}
            for effect in self.index.take_effects() {
                self.outside.log(|| format!("-> {effect:?}"));
                self.rules.check(&effect, &self.index, &self.outside)?;
                inputs.extend(self.outside.execute(effect));
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        for input in self.outside.step() {
            self.input(input)?;
        }
        Ok(())
    }

    /// All faults end. What is deleted goes, and then nothing is written any more.
    fn come_to_rest(&mut self) -> Result<(), String> {
        self.rules.resting = true;
        let healed = self.outside.heal();
        for input in healed {
            self.input(input)?;
        }
        let until = self.outside.now + REST;
        let mut quiet = 0;
        while quiet < WATCHED {
            self.rules.writes = 0;
            for input in self.outside.calm_step() {
                self.input(input)?;
            }
            let settled = self.rules.writes == 0 && self.outside.is_settled();
            if !settled || quiet < SETTLING {
                self.rules.quorum_writes = 0;
            }
            quiet = if settled { quiet + 1 } else { 0 };
            if self.outside.now > until {
                return Err(self.rules.unrest(&self.outside));
            }
        }
        self.rules.at_rest(&self.index, &self.outside)
    }
}

fn world(outside: &Outside) -> World<'_> {
    World {
        now: outside.now,
        unix: outside.unix,
        views: outside,
    }
}

fn run(seed: u64, planted: Option<Planted>, verbose: bool) -> Result<(), String> {
    let mut simulation = Simulation::new(seed, planted, verbose);
    for _ in 0..STEPS {
        simulation.step()?;
    }
    if seed.is_multiple_of(TO_REST) {
        simulation.come_to_rest()?;
    }
    Ok(())
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The first seed that fails, and how.
fn first_failure(seeds: std::ops::Range<u64>, planted: Option<Planted>) -> Option<(u64, String)> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let found = std::sync::Mutex::new(None::<(u64, String)>);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (found, seeds) = (&found, seeds.clone());
            scope.spawn(move || {
                for seed in seeds.filter(|seed| seed % threads == thread) {
                    if found.lock().unwrap().is_some() {
                        return;
                    }
                    if let Err(broken) = run(seed, planted, false) {
                        found.lock().unwrap().get_or_insert((seed, broken));
                    }
                }
            });
        }
    });
    found.into_inner().unwrap()
}

#[test]
fn index_keeps_its_rules_whatever_comes_in() {
    if let Some(seed) = number("REDLOCK_SEED") {
        run(seed, None, true).unwrap();
        return;
    }
    let sequences = number("REDLOCK_SEQUENCES").unwrap_or(SEQUENCES);
    if let Some((seed, broken)) = first_failure(0..sequences, None) {
        panic!("REDLOCK_SEED={seed}: {broken}");
    }
}

#[test]
fn every_planted_mistake_is_found() {
    let missed: Vec<Planted> = ALL
        .into_iter()
        .filter(|&planted| {
            let found = first_failure(0..FOUND_WITHIN, Some(planted));
            println!("{planted:?}: {found:?}");
            found.is_none()
        })
        .collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn the_same_seed_is_the_same_sequence() {
    let effects = |seed| {
        let mut simulation = Simulation::new(seed, None, false);
        for _ in 0..STEPS {
            simulation.step().unwrap();
        }
        (simulation.outside.executed, simulation.outside.now)
    };
    let different: BTreeSet<(u64, BootInstant)> = (0..20).map(effects).collect();
    assert!(different.len() > 10, "{different:?}");
    for seed in 0..20 {
        assert_eq!(effects(seed), effects(seed));
    }
}

/// The API server fails one request; the object must not keep its finalizer for that.
#[test]
fn deleted_object_is_let_go_although_the_first_removal_of_its_finalizer_failed() {
    let outside = Outside::with_lock("a", server::ORPHANED);
    let mut simulation = Simulation::with(outside, 0, None);
    simulation.come_to_rest().unwrap();
    simulation.outside.delete("a");
    simulation.outside.failing = 1;
    simulation.come_to_rest().unwrap();
    assert_eq!(simulation.outside.deleted().count(), 0);
    assert_eq!(simulation.outside.failing, 0);
}
