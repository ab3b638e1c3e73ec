//! Electors as they ship, at masters and a network with random faults: `REDLOCK_SEEDS=n`, and `REDLOCK_SEED=n` for one.

use std::{collections::BTreeMap, time::Duration};

use redlock_client::{
    clock::{self, virtual_time::passed},
    lease::{ClusterId, LockName, ReleaseMode},
    masters::init,
};
use redlock_world::{
    masters::{Masters, WriteRefusal},
    network::{Cut, Latency, Network},
    runtime::run,
};
use tokio::time;

use super::electors::{Replica, start};

const MASTERS: [&str; 7] = ["m0", "m1", "m2", "m3", "m4", "m5", "m6"];
const REPLICAS: [&str; 6] = ["eu/r0", "us/r0", "eu/r1", "ap/r0", "us/r1", "eu/r2"];
const LOCKS: [&str; 2] = ["default/a", "default/b"];
/// The time for which faults act.
const ACTIVE: Duration = Duration::from_secs(240);
/// The interval between two observations.
const SAMPLE: Duration = Duration::from_millis(7);
/// The time between two losses of what a master remembers, or steps of its clock: longer than the wait of a seal, which
/// covers the longest lease. Masters that forget a lease at the same time are too many for it.
const BETWEEN_LOSSES: Duration = Duration::from_secs(75);
/// The time after the last fault within which each lock is held: a seal, and one lease.
const PATIENCE: Duration = Duration::from_secs(150);
/// The time for which the holders then stay.
const REST: Duration = Duration::from_secs(20);

/// The masters that lose what they remember, or whose clocks are stepped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Losses {
    /// One master, and the next one later than the longest wait.
    OneByOne,
    /// A majority at the same time, which no quorum survives.
    Together,
}

/// A lock as the replicas see it.
struct ObservedLock {
    name: LockName,
    /// The last holder, by its place in the list of replicas, and its token.
    last: Option<(usize, u64)>,
}

impl ObservedLock {
    /// Returns the tokens of all replicas that hold the lock, by their places in the list.
    fn holders(&self, replicas: &[Replica]) -> Vec<(usize, u64)> {
        let now = clock::now();
        let token = |replica: &Replica| {
            let view = replica.elector.watch(&self.name)?;
            let authority = view.borrow().authority_at(now)?;
            Some(authority.token.0)
        };
        let held = replicas.iter().map(token).enumerate();
        held.filter_map(|(at, token)| Some((at, token?))).collect()
    }

    /// Checks that one replica at most holds the lock, and that tokens increase.
    fn check(&mut self, replicas: &[Replica]) -> Result<(), String> {
        let held = self.holders(replicas);
        let Some(first) = held.first().copied() else {
            return Ok(());
        };
        let is_later = self.last.is_none_or(|last| last == first || last.1 < first.1);
        if held.len() > 1 || !is_later {
            return Err(format!(
                "{:?}: {} is held as {held:?} (replica, token) after {:?}",
                passed(),
                self.name,
                self.last
            ));
        }
        self.last = Some(first);
        Ok(())
    }
}

struct ElectorWorld {
    random: fastrand::Rng,
    network: Network,
    masters: Masters,
    replicas: Vec<Replica>,
    locks: Vec<ObservedLock>,
    /// The time of the last loss of what a master remembers.
    lost: Option<Duration>,
    losses: Losses,
    /// The actions so far, for the story of a violation.
    story: Vec<String>,
    counts: BTreeMap<&'static str, u32>,
}

impl ElectorWorld {
    async fn start(seed: u64, losses: Losses) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let masters = &MASTERS[..[1, 3, 3, 3, 5, 7][random.usize(..6)]];
        let replicas = &REPLICAS[..random.usize(2..=REPLICAS.len())];
        let network = Network::new(seed, Latency::milliseconds(0, 3));
        let masters = Masters::start(&network, masters, seed);
        let replicas: Vec<Replica> = replicas
            .iter()
            .map(|name| start(&network, &masters, name))
            .collect();
        init(&replicas[0].masters).await.unwrap();
        let mut locks = Vec::new();
        for name in LOCKS {
            let name = LockName::parse(name).unwrap();
            replicas.iter().for_each(|replica| replica.contend(&name));
            locks.push(ObservedLock { name, last: None });
        }
        Self {
            random,
            network,
            masters,
            replicas,
            locks,
            lost: None,
            losses,
            story: Vec::new(),
            counts: BTreeMap::new(),
        }
    }

    async fn watch(&mut self, length: Duration) -> Result<(), String> {
        let until = passed() + length;
        while passed() < until {
            let replicas = &self.replicas;
            self.locks.iter_mut().try_for_each(|lock| lock.check(replicas))?;
            time::sleep(SAMPLE).await;
        }
        Ok(())
    }

    fn replica(&mut self) -> &'static str {
        let at = self.random.usize(..self.replicas.len());
        self.replicas[at].name
    }

    fn record(&mut self, action: &'static str, details: &str) {
        *self.counts.entry(action).or_default() += 1;
        self.story.push(format!("{:?} {action} {details}\n", passed()));
    }

    async fn act(&mut self) {
        match self.random.u8(..12) {
            0..=3 => self.change_network(),
            4..=6 => self.change_master().await,
            7 => self.lose_memory().await,
            8 => self.contend_anew(),
            _ => self.command_holder(),
        }
    }

    fn change_network(&mut self) {
        let replica = self.replica();
        let master = MASTERS[self.random.usize(..self.masters.len())];
        let network = &self.network;
        let action = match self.random.u8(..8) {
            0 => {
                network.cut(replica, master, Cut::Hang);
                "cut"
            }
            1 => {
                network.cut(replica, master, Cut::Refuse);
                "cut, refuse"
            }
            2 => {
                network.cut_one_way(replica, master, Cut::Hang);
                "cut requests"
            }
            3 => {
                network.cut_one_way(master, replica, Cut::Hang);
                "cut replies"
            }
            4 => {
                network.reset(replica, master);
                "reset connections"
            }
            5 => {
                let longest = self.random.u64(1..400);
                network.set_latency(replica, master, Latency::milliseconds(0, longest));
                "slow network"
            }
            6 => {
                MASTERS.iter().for_each(|master| network.heal(replica, master));
                "heal replica"
            }
            _ => {
                network.heal_all();
                "heal network"
            }
        };
        self.record(action, &format!("{replica} {master}"));
    }

    /// Begins or ends a fault by which a master loses nothing.
    async fn change_master(&mut self) {
        let at = self.random.usize(..self.masters.len());
        let master = self.masters.get(at).clone();
        let action = match self.random.u8(..8) {
            0 => {
                master.kill();
                "kill"
            }
            1 => {
                master.pause();
                "pause"
            }
            2 => {
                master.set_delay(Duration::from_millis(self.random.u64(..300)));
                "slow master"
            }
            3 => {
                let refusals = [
                    WriteRefusal::OutOfMemory,
                    WriteRefusal::Misconfigured,
                    WriteRefusal::NoReplicas,
                    WriteRefusal::ReadOnly,
                ];
                master.refuse_writes(self.random.choice(refusals));
                "refuse writes"
            }
            4 => {
                master.execute(&["SCRIPT", "FLUSH"]);
                "forget scripts"
            }
            _ => {
                heal(&master).await;
                "heal master"
            }
        };
        self.record(action, master.name());
    }

    async fn lose_memory(&mut self) {
        if self.losses == Losses::Together {
            let all = self.masters.iter().take(self.masters.len() / 2 + 1);
            all.for_each(|master| master.step_clock(3_600_000_000));
            return self.record("step clocks", "of a majority");
        }
        if self.lost.is_some_and(|lost| passed() - lost < BETWEEN_LOSSES) {
            return;
        }
        self.lost = Some(passed());
        let at = self.random.usize(..self.masters.len());
        let master = self.masters.get(at).clone();
        let action = match self.random.u8(..3) {
            0 => {
                master.restart_empty().await;
                "restart empty"
            }
            1 => {
                master.flush();
                "flush"
            }
            _ => {
                let longest = [5_000_000, 3_600_000_000, 315_360_000_000_000][self.random.usize(..3)];
                master.step_clock(self.random.i64(-longest..=longest));
                "step clock"
            }
        };
        self.record(action, master.name());
    }

    /// One replica forgets a lock, with all that it has seen, and contends for it again.
    fn contend_anew(&mut self) {
        let at = self.random.usize(..self.replicas.len());
        let name = self.locks[self.random.usize(..self.locks.len())].name.clone();
        self.replicas[at]
            .elector
            .remove(name.clone(), ReleaseMode::Release);
        self.replicas[at].contend(&name);
        let details = format!("{name} {}", self.replicas[at].name);
        self.record("contend anew", &details);
    }

    fn command_holder(&mut self) {
        let lock = self.random.usize(..self.locks.len());
        let observed = &self.locks[lock];
        let name = observed.name.clone();
        let Some((holder, _)) = observed.holders(&self.replicas).first().copied() else {
            return;
        };
        let replica = &self.replicas[holder];
        let action = match self.random.u8(..4) {
            0 => {
                replica
                    .elector
                    .step_down(name.clone(), Duration::from_millis(self.random.u64(..5_000)));
                "step down"
            }
            1 => {
                let to = ["eu", "us", "ap"][self.random.usize(..3)];
                let to = ClusterId::new(to, &format!("uid-of-{to}")).unwrap();
                replica.elector.hand_over(name.clone(), to);
                "hand over"
            }
            2 => {
                replica.elector.remove(name.clone(), ReleaseMode::Release);
                replica.contend(&name);
                "release"
            }
            _ => {
                // The connections are lost while the release is under way.
                replica.elector.remove(name.clone(), ReleaseMode::Release);
                replica.contend(&name);
                let (network, name) = (self.network.clone(), replica.name);
                let after = Duration::from_millis(self.random.u64(..6));
                tokio::spawn(async move {
                    time::sleep(after).await;
                    MASTERS.iter().for_each(|master| network.reset(name, master));
                });
                "release and reset"
            }
        };
        let details = format!("{name} {}", self.replicas[holder].name);
        self.record(action, &details);
    }

    async fn heal(&mut self) {
        self.network.heal_all();
        for replica in &self.replicas {
            for master in MASTERS {
                self.network
                    .set_latency(replica.name, master, Latency::milliseconds(0, 3));
            }
        }
        for master in self.masters.iter() {
            heal(master).await;
        }
    }

    async fn live(&mut self) -> Result<(), String> {
        while passed() < ACTIVE {
            self.act().await;
            let pause = Duration::from_millis(self.random.u64(1..3_000));
            self.watch(pause).await?;
        }
        self.heal().await;
        let healed = passed();
        while let Some(free) = self
            .locks
            .iter()
            .find(|lock| lock.holders(&self.replicas).is_empty())
        {
            if passed() - healed > PATIENCE {
                return Err(format!("{} is free {PATIENCE:?} after the last fault", free.name));
            }
            self.watch(Duration::from_millis(100)).await?;
        }
        self.watch(PATIENCE.saturating_sub(passed() - healed)).await?;
        let before: Vec<_> = self.locks.iter().map(|lock| lock.last).collect();
        self.watch(REST).await?;
        let after: Vec<_> = self.locks.iter().map(|lock| lock.last).collect();
        if before == after {
            Ok(())
        } else {
            Err(format!("the holders changed at rest: {before:?}, {after:?}"))
        }
    }
}

async fn heal(master: &redlock_world::masters::Master) {
    if !master.is_running() {
        master.restart().await;
    }
    master.resume();
    master.set_delay(Duration::ZERO);
    master.refuse_writes(None);
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text:?}: a number expected")),
    )
}

async fn simulate(seed: u64, losses: Losses) -> Result<BTreeMap<&'static str, u32>, String> {
    let mut world = ElectorWorld::start(seed, losses).await;
    match world.live().await {
        Ok(()) => Ok(world.counts),
        Err(broken) => Err(format!(
            "REDLOCK_SEED={seed}: {broken}\n{}{:#?}",
            world.story.concat(),
            world.replicas[0].masters.status()
        )),
    }
}

/// The ends of the worlds with these seeds, which run on all cores.
fn simulate_all(
    seeds: std::ops::Range<u64>,
    losses: Losses,
) -> Vec<Result<BTreeMap<&'static str, u32>, String>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let search = |thread| {
        let seeds = seeds.clone().filter(move |seed| seed % threads == thread);
        move || {
            seeds
                .map(|seed| run(seed, simulate(seed, losses)))
                .collect::<Vec<_>>()
        }
    };
    std::thread::scope(|scope| {
        let searches: Vec<_> = (0..threads).map(|thread| scope.spawn(search(thread))).collect();
        searches
            .into_iter()
            .flat_map(|search| search.join().unwrap())
            .collect()
    })
}

#[test]
fn electors_never_hold_a_lock_twice_and_hold_it_again_after_faults() {
    let seeds = match number("REDLOCK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("REDLOCK_SEEDS").unwrap_or(16),
    };
    let started = std::time::Instant::now();
    let count = seeds.end - seeds.start;
    let mut counts = BTreeMap::<&str, u32>::new();
    let mut broken = Vec::new();
    for end in simulate_all(seeds, Losses::OneByOne) {
        match end {
            Ok(done) => done
                .into_iter()
                .for_each(|(action, n)| *counts.entry(action).or_default() += n),
            Err(story) => broken.push(story),
        }
    }
    println!("{count} seeds in {:?}: {counts:?}", started.elapsed());
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The check that the observer sees two holders: a majority forgets a lease that is in force.
#[test]
fn two_holders_are_found_where_masters_forget_a_lease_together() {
    let ends = simulate_all(0..24, Losses::Together);
    let stories: Vec<String> = ends.into_iter().filter_map(Result::err).collect();
    let is_found = stories.iter().any(|story| story.contains("is held as"));
    assert!(is_found, "{stories:?}");
}
