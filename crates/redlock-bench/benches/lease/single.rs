//! Measures one caller with one lock.

use std::time::{Duration, Instant};

use redlock_client::masters::{Acquired, Masters, Renewal};

use crate::{
    contestant::Rslock,
    goals::{Goal, Goals},
    script,
    setup::{Quorum, holder, lock},
};
use redlock_bench::{floor::Floor, stats::Stats};

const LEASE: Duration = Duration::from_secs(15);
const ROUNDS: usize = 4_000;
/// Rounds before the measurement. Every round of one kind is followed by one of the other.
const WARM_UP: usize = 400;
/// The rounds per ratio. The spread of the ratios is the noise of the machine.
const BLOCK: usize = 400;

async fn cycle(masters: &Masters, name: &str) -> (Duration, Duration) {
    let started = Instant::now();
    let Acquired::Won(mut lease) = masters
        .acquire(&lock(name), &holder("bench"), LEASE)
        .await
        .unwrap()
    else {
        panic!("{name} was not acquired")
    };
    let acquired = started.elapsed();
    let renewing = Instant::now();
    assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed);
    let renewed = renewing.elapsed();
    let releasing = Instant::now();
    assert!(lease.release().await.unwrap());
    (acquired + releasing.elapsed(), renewed)
}

async fn floor_cycle(floor: &Floor, key: &str) -> (Duration, Duration) {
    let value = "1|local|local|bench|0123456789abcdef0123456789abcdef|1";
    let started = Instant::now();
    floor.acquire(key, value).await;
    let acquired = started.elapsed();
    let renewing = Instant::now();
    floor.renew(key, value).await;
    let renewed = renewing.elapsed();
    let releasing = Instant::now();
    floor.release(key, value).await;
    (acquired + releasing.elapsed(), renewed)
}

async fn rslock_cycle(rslock: &Rslock, key: &str) -> (Duration, Duration) {
    let started = Instant::now();
    let lock = rslock.acquire(key, LEASE).await;
    let acquired = started.elapsed();
    let renewing = Instant::now();
    rslock.renew(&lock, LEASE).await;
    let renewed = renewing.elapsed();
    let releasing = Instant::now();
    rslock.release(&lock).await;
    (acquired + releasing.elapsed(), renewed)
}

/// The durations of acquire with release, and of renew, of each round.
#[derive(Default)]
struct Rounds {
    acquire: Vec<Duration>,
    renew: Vec<Duration>,
}

impl Rounds {
    fn push(&mut self, (acquire, renew): (Duration, Duration)) {
        self.acquire.push(acquire);
        self.renew.push(renew);
    }

    fn line(&self, what: &str) {
        Stats::of(&self.acquire).line(&format!("{what}: acquire + release"));
        Stats::of(&self.renew).line(&format!("{what}: renew"));
    }
}

/// Returns the ratios of the medians, block by block.
fn ratios(ours: &[Duration], theirs: &[Duration]) -> Vec<f64> {
    let median = |block: &[Duration]| Stats::of(block).quantile(0.5);
    let blocks = ours.chunks(BLOCK).zip(theirs.chunks(BLOCK));
    blocks
        .map(|(ours, theirs)| median(ours) / median(theirs))
        .collect()
}

pub async fn run(quorum: &Quorum, goals: &mut Goals) {
    println!("\n## one caller, {ROUNDS} rounds, protocol, rslock and floor alternate");
    let urls = quorum.servers.urls();
    let (floor, rslock) = (Floor::connect(&urls).await, Rslock::connect(&urls).await);
    let (mut ours, mut theirs, mut of_rslock) = (Rounds::default(), Rounds::default(), Rounds::default());
    let mut scripts = Vec::new();
    let stamp = script::stamp(quorum).await;
    let stem = "1|local|local|bench|fedcba9876543210fedcba9876543210|";
    let sha = floor.load(script::RENEW).await;
    let renewal = script::call(&sha, &stamp, "bench/bare", &["local/local", stem, "1", "15000"]);
    for round in 0..ROUNDS + WARM_UP {
        // A new name each time: the replies of the two slowest masters may still be in flight.
        let a = cycle(&quorum.masters, &format!("bench/{round}")).await;
        let b = floor_cycle(&floor, &format!("floor:{round}")).await;
        let c = rslock_cycle(&rslock, &format!("rslock:{round}")).await;
        // Always put back first: the key is healed, so that each round finds it.
        let bare = Instant::now();
        floor.call(&renewal).await;
        let bare = bare.elapsed();
        if round >= WARM_UP {
            scripts.push(bare);
            ours.push(a);
            theirs.push(b);
            of_rslock.push(c);
        }
    }
    theirs.line("floor");
    of_rslock.line("rslock");
    Stats::of(&scripts).line("the protocol's script on the floor's connections");
    ours.line("protocol");
    let of_floor = "× the floor";
    let acquire = ratios(&ours.acquire, &theirs.acquire);
    goals.add(
        "acquire + release, one caller",
        &acquire,
        of_floor,
        Goal::AtMost(1.25),
    );
    let acquire = ratios(&ours.acquire, &of_rslock.acquire);
    goals.add(
        "acquire + release, one caller",
        &acquire,
        "× rslock",
        Goal::AtMost(1.0),
    );
    let renew = ratios(&ours.renew, &theirs.renew);
    goals.add("renew, one caller", &renew, of_floor, Goal::AtMost(1.2));
    let renew = ratios(&ours.renew, &of_rslock.renew);
    goals.add("renew, one caller", &renew, "× rslock", Goal::AtMost(1.0));
}

/// Measures the same with one of the five masters stopped.
pub async fn hung(quorum: &Quorum, goals: &mut Goals) {
    const TRIALS: usize = 1_000;
    println!("\n## one of five masters hung (SIGSTOP), {TRIALS} rounds each");
    let measure = async |label: &str| {
        let mut rounds = Rounds::default();
        for round in 0..TRIALS {
            rounds.push(cycle(&quorum.masters, &format!("hung/{label}/{round}")).await);
        }
        rounds.line(label);
        rounds
    };
    let all = measure("all-answer").await;
    quorum.servers[0].pause().unwrap();
    let hung = measure("one-hung").await;
    quorum.servers[0].resume().unwrap();
    let (acquire, renew) = (
        ratios(&hung.acquire, &all.acquire),
        ratios(&hung.renew, &all.renew),
    );
    let unit = "× all answer";
    goals.add(
        "acquire + release, one master hung",
        &acquire,
        unit,
        Goal::AtMost(1.1),
    );
    goals.add("renew, one master hung", &renew, unit, Goal::AtMost(1.1));
}
