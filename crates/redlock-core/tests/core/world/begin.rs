//! Creates a world from its seed.

use std::collections::{BTreeMap, BinaryHeap};

use redlock_core::QuorumSize;

use super::{
    CALM, LONGEST, World, agent, lineage::Lineages, promotion::promotes, seal::Sealer, second::has_second,
};
use crate::{
    candidate::Candidate,
    checks::{Checks, Scope},
    forger::Forger,
    forgetter::Forgetter,
    master::Master,
    plant::Plant,
    planted::Planted,
    rate::{MS, Rate},
    scripts::{self, Named},
    strain::Strain,
};

/// Reports whether this seed is about hand-overs alone.
pub(crate) const fn hands_over(seed: u64) -> bool {
    seed % 16 == 15
}

/// Reports whether this seed is about seven masters and up to ten candidates.
pub(crate) const fn is_large(seed: u64) -> bool {
    seed % 32 == 30
}

/// Reports whether this seed is about one master: each loss of its memory is a total loss.
const fn is_single(seed: u64) -> bool {
    seed % 16 == 9
}

struct Clocks {
    masters: Vec<Rate>,
    candidates: Vec<Rate>,
    sealer: Rate,
}

impl Clocks {
    fn draw(rng: &mut fastrand::Rng, masters: usize, candidates: usize) -> Self {
        let mut clock = |base: u64| Rate {
            offset: base * 1_000 * MS + rng.u64(..1_000_000 * MS),
            // Both ends of a pair may err, in opposite directions: together within 1 %.
            parts_per_million: rng.i64(-4_500..=4_500),
        };
        Self {
            masters: (0..masters).map(|_| clock(1_700_000_000)).collect(),
            candidates: (0..candidates).map(|_| clock(1_000)).collect(),
            // The fastest clock that is allowed: its waits are the shortest.
            sealer: Rate {
                parts_per_million: 4_500,
                ..clock(1_000)
            },
        }
    }
}

fn masters(clocks: &[Rate], plant: Plant) -> Vec<Master> {
    let master = |clock: &Rate| {
        let mut master = Master::new(*clock, plant);
        master.longest_ms = scripts::millis(LONGEST);
        master
    };
    clocks.iter().map(master).collect()
}

impl World {
    pub(crate) fn new(seed: u64, planted: impl Into<Planted>) -> Self {
        let planted = planted.into();
        let mut rng = fastrand::Rng::with_seed(seed);
        let few = if rng.bool() { 3 } else { 5 };
        let size = match seed {
            seed if is_large(seed) => 7,
            seed if is_single(seed) => 1,
            _ => few,
        };
        let size = QuorumSize::new(size).unwrap();
        let n = size.masters();
        let most = if is_large(seed) { 10 } else { 5 };
        let clocks = Clocks::draw(&mut rng, n, most);
        let masters = masters(&clocks.masters, planted.model);
        let mut clocks_of_candidates = clocks.candidates;
        let count = rng.usize(2..=5) * most / 5;
        let beyond = rng.u32(..16) == 0;
        let steps = rng.u32(..16) == 0;
        if beyond {
            clocks_of_candidates[0].parts_per_million = if rng.bool() { 80_000 } else { -80_000 };
        }
        let cluster = |i: usize| ["east", "west"][i % 2];
        let candidates: Vec<_> = (0..count)
            .map(|i| Candidate::new(i, cluster(i), clocks_of_candidates[i], size, planted))
            .collect();
        Self {
            now: MS,
            planted,
            size,
            fingerprints: scripts::fingerprints(n),
            twin: (planted.model == Plant::TwoServersOfOneName).then(|| masters[0].clone()),
            masters,
            candidates,
            checks: Checks::new(match (beyond, steps) {
                (true, _) => Scope::OnlyTokens,
                (false, true) => Scope::WithoutLeases,
                (false, false) => Scope::All,
            }),
            beyond,
            steps,
            total_losses: rng.u32(..8) == 0,
            forger: Forger::of(seed),
            forgetter: Forgetter::of(seed),
            strain: Strain::of(seed, n),
            has_second: false,
            promotes: promotes(seed),
            second_token: 0,
            guards: rng.bool(),
            hand_overs: hands_over(seed),
            sealers: vec![Sealer::new(
                clocks.sealer,
                Named::Quorum,
                &scripts::fingerprints(n),
            )],
            mixed: false,
            weather: CALM,
            queue: BinaryHeap::new(),
            events: Vec::new(),
            free: Vec::new(),
            paused: vec![0; count],
            stopped: vec![None; count],
            last_reply: vec![vec![0; n]; count],
            hung: vec![None; n],
            down: vec![false; n],
            runs: vec![0; n],
            stamps: vec![Some(Named::Quorum); n],
            opened: vec![vec![0; n]; count],
            cut: vec![vec![false; n]; count],
            deaf: vec![vec![false; n]; count],
            faults: BTreeMap::from([
                ("clock beyond the drift", u64::from(beyond)),
                ("seven masters", u64::from(n == 7)),
                ("ten candidates", u64::from(count == 10)),
            ]),
            arrivals: BTreeMap::new(),
            trace: false,
            agents: Vec::new(),
            may_start: vec![None; count],
            lineages: Lineages::new(count),
            rng,
            delays: fastrand::Rng::with_seed(seed),
        }
    }

    /// Returns a world whose candidates contend for two locks, by its seed.
    pub(crate) fn with_locks(seed: u64, planted: impl Into<Planted>) -> Self {
        let mut world = Self::new(seed, planted);
        world.has_second = has_second(seed);
        if world.has_second {
            world.candidates.iter_mut().for_each(Candidate::add_lock);
        }
        world
    }

    /// Returns a world whose lock is fenced, with an agent in each cluster.
    pub(crate) fn fenced(seed: u64, planted: impl Into<Planted>) -> Self {
        let mut world = Self::new(seed, planted);
        world.guards = true;
        world.agents = agent::agents(&mut world);
        for candidate in &mut world.candidates {
            candidate.fenced = true;
        }
        world
    }
}
