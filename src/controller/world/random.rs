//! Random worlds: users and faults at any moment, and an observer that judges from objects and pods.

use std::time::Duration;

use tokio::time;

use super::{
    everyday::mistakes,
    judge::{Judge, at_rest},
    number,
    story::print_logs,
    universe::Universe,
    users::Users,
};
use crate::{
    clock,
    controller::planted::{WorldMistake, plant},
};

/// The time for which users and faults act.
const ACTIVE: Duration = Duration::from_secs(500);
/// The time after the last operation and fault within which everything is as declared: masters that lost their memory are
/// sealed after 65 s, refuse the slots of two minutes, and the next one is up to a minute later.
const PATIENCE: Duration = Duration::from_secs(260);
/// The time from then on after which the operators write nothing.
const SETTLING: Duration = Duration::from_secs(45);
/// The time for which the operators write nothing.
const REST: Duration = Duration::from_secs(45);
/// The interval between two observations.
const SAMPLE: Duration = Duration::from_millis(100);

/// Runs one world. Returns its virtual time, or the story of a violation.
async fn run(seed: u64) -> Result<Duration, String> {
    let started = clock::now();
    let clusters = 1 + usize::try_from(seed % 3).unwrap_or_default();
    let replicas = 1 + u32::try_from(seed / 3 % 3).unwrap_or_default();
    let mut universe = Universe::start(seed, clusters, replicas);
    let mut users = Users::new(seed, clusters);
    users.begin(&universe);
    universe.run_candidates();
    let mut judge = Judge::default();
    match live(&universe, &mut users, &mut judge).await {
        Ok(()) => Ok(clock::now().since(started)),
        Err(broken) => Err(format!(
            "{clusters} clusters, {replicas} replicas: {broken}\nusers:\n{}writes:\n{}",
            users.done.concat(),
            judge.writes.story()
        )),
    }
}

async fn live(universe: &Universe, users: &mut Users, judge: &mut Judge) -> Result<(), String> {
    let until = clock::now() + ACTIVE;
    while clock::now() < until {
        users.act(universe).await;
        let pause = users.pause();
        watch(universe, users, judge, pause).await?;
    }
    users.end(universe).await;
    let healed = clock::now();
    let mut broken = at_rest(universe, judge);
    while let Err(why) = &broken {
        if clock::now().since(healed) >= PATIENCE {
            return Err(format!("not at rest after {PATIENCE:?}: {why}"));
        }
        watch(universe, users, judge, Duration::from_secs(2)).await?;
        broken = at_rest(universe, judge);
    }
    watch(universe, users, judge, SETTLING).await?;
    let settled = super::cluster::now();
    watch(universe, users, judge, REST).await?;
    at_rest(universe, judge)?;
    judge.writes.writes_nothing(settled)
}

/// Watches the world for some time.
async fn watch(
    universe: &Universe,
    users: &Users,
    judge: &mut Judge,
    length: Duration,
) -> Result<(), String> {
    let until = clock::now() + length;
    loop {
        judge.check(universe, users)?;
        if clock::now() >= until {
            return Ok(());
        }
        time::sleep(SAMPLE.min(until.left(clock::now()).max(Duration::from_millis(1)))).await;
    }
}

/// Runs worlds on all cores. Returns their virtual time, and the violations.
fn worlds(seeds: std::ops::Range<u64>) -> (Duration, Vec<String>) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let found = std::sync::Mutex::new((Duration::ZERO, Vec::new()));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (found, seeds) = (&found, seeds.clone());
            scope.spawn(move || {
                for seed in seeds.filter(|seed| seed % threads == thread) {
                    let end = redlock_world::runtime::run(seed, run(seed));
                    let mut found = found.lock().unwrap();
                    match end {
                        Ok(length) => found.0 += length,
                        Err(story) => {
                            // A run that is ended from outside has reported the violation.
                            println!("SEED={seed}: {}", story.lines().next().unwrap_or_default());
                            found.1.push(format!("SEED={seed}: {story}"));
                        }
                    }
                }
            });
        }
    });
    found.into_inner().unwrap()
}

/// `make world` sets the number of worlds and the first seed; `SEED` runs one. `tokio::select!` chooses between ready branches by
/// random numbers of its own, so a rare violation may need several runs.
#[test]
fn random_worlds_keep_their_promises() {
    let seeds = match number("SEED") {
        Some(seed) => {
            print_logs();
            seed..seed + 1
        }
        None => {
            let first = number("FIRST_SEED").unwrap_or_default();
            first..first + number("WORLDS").unwrap_or(8)
        }
    };
    let started = std::time::Instant::now();
    let count = seeds.end - seeds.start;
    let (length, broken) = worlds(seeds);
    println!(
        "{count} worlds, {:.1} virtual hours in {:.1} s, {} violations",
        length.as_secs_f64() / 3_600.0,
        started.elapsed().as_secs_f64(),
        broken.len()
    );
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Returns the first of the worlds that finds a planted mistake, and the first line of its story.
fn first_found(mistake: WorldMistake, seeds: std::ops::Range<u64>) -> Option<(u64, String)> {
    plant(Some(mistake));
    let found = seeds.into_iter().find_map(|seed| {
        let story = redlock_world::runtime::run(seed, run(seed)).err()?;
        Some((seed, story.lines().next().unwrap_or_default().to_owned()))
    });
    plant(None);
    found
}

/// Prints which random worlds find each planted mistake: `make world-planted`. The worlds of one story each find all of them.
#[test]
#[ignore = "runs for WORLDS worlds for each mistake: make world-planted"]
fn random_worlds_find_planted_mistakes() {
    let first = number("FIRST_SEED").unwrap_or_default();
    let seeds = first..first + number("WORLDS").unwrap_or(2_000);
    let mistakes = std::sync::Mutex::new(mistakes().into_iter());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let missed = std::sync::Mutex::new(Vec::new());
    let search = || {
        loop {
            let Some(mistake) = mistakes.lock().unwrap().next() else {
                return;
            };
            match first_found(mistake, seeds.clone()) {
                Some((seed, story)) => println!("{mistake:?}: world {seed}: {story}"),
                None => missed.lock().unwrap().push(mistake),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(search);
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "not found in worlds {seeds:?}: {missed:?}");
}
