//! Tests the index with random sequences of inputs, and checks invariants after each input.
//!
//! Faults: the replica loses the masters or the API server, definitions are not served, watches restart,
//! requests fail, conflict or get no answer, and the wall clock steps. Users edit, delete and re-create
//! objects during the faults. `outside` simulates the surroundings, `rules` holds the invariants.
//! `REDLOCK_SEED=7` replays one sequence and prints each step; `REDLOCK_SEQUENCES=100000` sets the number of
//! sequences, and `FIRST_SEED=5000` the first.

mod end;
mod outside;
mod planted;
mod rules;
mod server;

use std::{collections::BTreeSet, time::Duration};

use super::{Index, Input, Planted, Replica, World};
use crate::{api::in_use::InUseFinalizer, controller::index::Scope, lease::BootInstant};
use outside::{Focus, Outside};
use rules::{DRAINS, Rules};

/// The number of sequences in an unoptimised build, at 4 ms each. `make test` runs 30,000 in an optimised build, at a
/// third of that.
const SEQUENCES: u64 = 3_000;
/// One sequence in this number is followed until everything is at rest.
const TO_REST: u64 = 25;
const STEPS: usize = 12;
/// One step in this number ends the process and starts the next one.
const ENDS: u8 = 60;
/// A sequence begins with fewer calm steps than this.
const WARM: u8 = 4;
/// A planted mistake is found within this number of sequences.
const FOUND_WITHIN: u64 = 60_000;
/// After the last fault, everything is at rest within this time: the longest backoff is a minute.
const REST: Duration = Duration::from_secs(400);
/// The number of ticks of a second for which the state of rest is watched; in the first [`SETTLING`] of them,
/// statuses of quorums may still settle.
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
        Self {
            index: index(&outside, seed, planted),
            outside,
            rules: Rules::default(),
        }
    }

    /// Gives one input to the index, and performs its effects.
    fn input(&mut self, input: Input) -> Result<(), String> {
        let tick = matches!(input, Input::Tick);
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            self.outside.log(|| format!("<- {input:?}"));
            self.rules.see(&input, &self.index, &self.outside)?;
            self.index.handle(input, &world(&self.outside));
            self.index.settle(&world(&self.outside));
            // As in the executor, a status is decided after the earlier effects are performed.
            inputs.extend(self.perform()?);
            while self.outside.may_write() && self.index.write_next(&world(&self.outside)) {}
            inputs.extend(self.perform()?);
        }
        self.rules.have_taken(tick, &self.index, &self.outside)?;
        if self.index.ends {
            // The next process is started by the kubelet, and the API server answers it.
            self.outside.cut_off = false;
            return self.end_and_start();
        }
        Ok(())
    }

    /// Performs the effects. Returns the results of those that end at once.
    fn perform(&mut self) -> Result<Vec<Input>, String> {
        let mut inputs = Vec::new();
        for effect in self.index.take_effects() {
            self.outside.log(|| format!("-> {effect:?}"));
            self.rules.check(&effect, &self.index, &self.outside)?;
            inputs.extend(self.outside.execute(effect));
        }
        Ok(inputs)
    }

    fn step(&mut self) -> Result<(), String> {
        if self.outside.random.u8(..ENDS) == 0 {
            return self.end_and_start();
        }
        for input in self.outside.step() {
            self.input(input)?;
        }
        self.rules.between_steps(&self.index, &self.outside)
    }

    /// Runs calm steps, so that most sequences begin with locks that are held and targets that run.
    fn warm_up(&mut self) -> Result<(), String> {
        let drains = self.outside.focus == Focus::Drains;
        let most = if drains { 2 * WARM } else { WARM };
        let calm = self.outside.random.u8(..most);
        self.outside.set_calm(true);
        for _ in 0..calm {
            self.calm_step()?;
        }
        self.outside.set_calm(false);
        Ok(())
    }

    fn calm_step(&mut self) -> Result<(), String> {
        for input in self.outside.calm_step() {
            self.input(input)?;
        }
        Ok(())
    }

    /// Ends all faults, except that this replica may stay blind. Deleted objects must disappear, and nothing
    /// may be written afterwards.
    fn come_to_rest(&mut self, blind: bool) -> Result<(), String> {
        self.rules.resting = true;
        let healed = self.outside.heal(blind);
        for input in healed {
            self.input(input)?;
        }
        let until = self.outside.now + REST;
        let mut quiet = 0;
        while quiet < WATCHED {
            self.rules.effects = 0;
            self.calm_step()?;
            let settled = self.rules.effects == 0 && self.outside.is_settled();
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

/// Returns the index of a process that starts.
fn index(outside: &Outside, seed: u64, planted: Option<Planted>) -> Index {
    let scopes = [String::new()];
    let me = Replica {
        identity: outside.identity.clone(),
        cluster: outside.cluster.clone(),
        scope: Scope::of(&scopes),
        in_use: InUseFinalizer::new(None, &scopes),
        follows_siblings: true,
        coordinates: true,
        copy: None,
    };
    let mut index = Index::new(me, &scopes, seed);
    index.planted = planted;
    index
}

fn world(outside: &Outside) -> World<'_> {
    World {
        now: outside.now,
        unix: outside.unix,
        views: outside,
    }
}

fn run(seed: u64, planted: Option<Planted>, verbose: bool) -> Result<(), String> {
    follow(&mut Simulation::new(seed, planted, verbose), seed)
}

fn follow(simulation: &mut Simulation, seed: u64) -> Result<(), String> {
    simulation.warm_up()?;
    for _ in 0..STEPS {
        simulation.step()?;
    }
    if seed.is_multiple_of(TO_REST) || simulation.outside.focus == Focus::Masters {
        let blind = seed.is_multiple_of(4 * TO_REST);
        simulation.come_to_rest(blind)?;
    }
    Ok(())
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Returns a seed that breaks a rule whose message contains `part`, and the message.
fn failure(seeds: std::ops::Range<u64>, planted: Option<Planted>, part: &str) -> Option<(u64, String)> {
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
                    if let Err(broken) = run(seed, planted, false)
                        && broken.contains(part)
                    {
                        found.lock().unwrap().get_or_insert((seed, broken));
                    }
                }
            });
        }
    });
    found.into_inner().unwrap()
}

#[test]
fn index_keeps_its_rules_under_any_input() {
    if let Some(seed) = number("REDLOCK_SEED") {
        run(seed, None, true).unwrap();
        return;
    }
    let sequences = number("REDLOCK_SEQUENCES").unwrap_or(SEQUENCES);
    let first = number("FIRST_SEED").unwrap_or(0);
    if let Some((seed, broken)) = failure(first..first + sequences, None, "") {
        panic!("REDLOCK_SEED={seed}: {broken}");
    }
}

#[test]
fn every_planted_mistake_is_found_by_its_rule() {
    let within = number("REDLOCK_SEQUENCES").unwrap_or_default().max(FOUND_WITHIN);
    let missed: Vec<Planted> = planted::ALL
        .into_iter()
        .filter(|(planted, part)| {
            let found = failure(0..within, Some(*planted), part);
            println!("{planted:?}: {found:?}");
            found.is_none()
        })
        .map(|(planted, _)| planted)
        .collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn sequences_reach_every_end_of_a_drain() {
    let mut reached = BTreeSet::new();
    for seed in 0..FOUND_WITHIN {
        let mut simulation = Simulation::new(seed, None, false);
        follow(&mut simulation, seed).unwrap();
        reached.append(&mut simulation.rules.drains);
        if reached.len() == DRAINS {
            return;
        }
    }
    panic!("{reached:?}");
}

#[test]
fn the_same_seed_is_the_same_sequence() {
    let effects = |seed| {
        let mut simulation = Simulation::new(seed, None, false);
        simulation.warm_up().unwrap();
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

/// The API server fails one request; the object must not keep its finalizer because of that.
#[test]
fn deleted_object_is_let_go_although_the_first_removal_of_its_finalizer_failed() {
    let outside = Outside::with_lock("a", server::ORPHANED);
    let mut simulation = Simulation::with(outside, 0, None);
    simulation.come_to_rest(false).unwrap();
    simulation.outside.delete("a");
    simulation.outside.failing = 1;
    simulation.come_to_rest(false).unwrap();
    assert_eq!(simulation.outside.deleted().count(), 0);
    assert_eq!(simulation.outside.failing, 0);
}

/// No decision needs the answer at rest.
#[test]
fn sibling_that_does_not_answer_is_reported_at_rest() {
    let outside = Outside::with_lock("a", server::WITH_TARGET);
    let mut simulation = Simulation::with(outside, 0, None);
    simulation.come_to_rest(false).unwrap();
    for answers in [false, true] {
        simulation.outside.sibling_answers = answers;
        for _ in 0..40 {
            simulation.calm_step().unwrap();
        }
        let reported = simulation.index.asking.reported.as_ref().unwrap();
        assert_eq!(reported.unanswered.contains("sibling"), !answers, "{reported:?}");
    }
}

/// An error of the client library is reported in the status, and the quorum is opened by a retry.
#[test]
fn quorum_that_could_not_be_opened_is_reported_and_opened_later() {
    let mut outside = Outside::with_lock("a", server::WITH_TARGET);
    outside.refuse(true);
    let mut simulation = Simulation::with(outside, 0, None);
    for _ in 0..90 {
        simulation.calm_step().unwrap();
    }
    let messages = simulation.outside.server.messages_of("q");
    assert!(messages.contains("a test"), "{messages}");
    simulation.outside.delete("a");
    for _ in 0..60 {
        simulation.calm_step().unwrap();
    }
    assert_eq!(simulation.outside.deleted().count(), 0, "it waits for its quorum");
    simulation.outside.refuse(false);
    simulation.come_to_rest(false).unwrap();
    assert!(simulation.outside.quorums.contains_key("q"));
}

#[test]
fn url_that_could_not_be_replaced_is_reported_and_replaced_later() {
    let outside = Outside::with_lock("a", server::WITH_TARGET);
    let mut simulation = Simulation::with(outside, 0, None);
    simulation.come_to_rest(false).unwrap();
    simulation.outside.refuse(true);
    simulation.outside.move_master("q");
    for _ in 0..30 {
        simulation.calm_step().unwrap();
    }
    for _ in 0..10 {
        let messages = simulation.outside.server.messages_of("q");
        assert!(messages.contains("a test"), "{messages}");
        simulation.calm_step().unwrap();
    }
    simulation.outside.refuse(false);
    simulation.come_to_rest(false).unwrap();
}
