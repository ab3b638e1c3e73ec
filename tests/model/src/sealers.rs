//! Explores processes that seal under different fingerprints: three masters or one, one process with the fingerprint of the
//! quorum and one with shorter leases, and a candidate of each. The plan of a seal is the one that the program runs.
//!
//! Time passes in ticks of ten seconds, in each of which the processes read and seal. A lease ends at its holder and at the
//! masters in the same tick. The process of the quorum reads all masters or none, the other one any majority or none, and a
//! loss strikes any majority; a seal is written in the step of its read, since the script checks the probe again.

use std::time::{Duration, Instant};

use redlock_core::{
    BootInstant, Fingerprint, Identity, MasterFacts, QuorumId, QuorumSize, Server,
    seal::{Quarantine, Read, Response, SealedBy, Step, init_probe},
};
use stateright::{Checker, Model, Property};

use crate::master::majority;

const TICK: Duration = Duration::from_secs(10);
/// No wait other than that of a process that knows nothing is longer.
const LONGEST_AGE: u8 = 7;
const ONE_HOLDER: &str = "at most one candidate holds the lock";

/// The fingerprint of a process, of a candidate or of a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    Long,
    Short,
}
use Kind::{Long, Short};

impl Kind {
    fn ticks(self) -> u8 {
        match self {
            Long => 6,
            Short => 1,
        }
    }

    fn fingerprint<const N: usize>(self) -> Fingerprint {
        let names = (0..N).map(|master| format!("m{master}")).collect();
        let longest = TICK * u32::from(self.ticks());
        Fingerprint::new(names, longest, Duration::from_millis(100))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Master {
    sealed: bool,
    carries: Option<Kind>,
    /// The fingerprint that the probe of an `init` names.
    begun: Option<Kind>,
    lease: Option<(Kind, u8)>,
}

impl Master {
    /// A master without a seal that was sealed under this fingerprint.
    fn left_by(carries: Option<Kind>) -> Self {
        Self {
            carries,
            ..Self::default()
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Process<const N: usize> {
    /// The last fingerprint that each master showed, and every one that any of them showed.
    shown: [Option<Kind>; N],
    ever: [bool; 2],
    /// Whether it knows the id of the quorum.
    stored: bool,
    /// The ticks since it first saw the probe of each master.
    ages: [Option<u8>; N],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State<const N: usize> {
    masters: [Master; N],
    processes: [Process<N>; 2],
    /// The ticks for which the candidate of each fingerprint relies on its lease.
    holds: [u8; 2],
    wipes: u8,
    restarts: u8,
    inits: u8,
    fell_back: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// Each process reads these masters, and carries out its plan.
    Tick {
        long: u8,
        short: u8,
    },
    /// The candidate acquires or renews at all masters that grant.
    Hold(Kind),
    /// These masters lose their memory.
    Wipe(u8),
    Restart(Kind),
    /// A person writes the probes of `init` on empty masters when no lease is valid, and has stopped the process with the
    /// other fingerprint.
    BeginInit(Kind),
    /// The `init` that wrote these probes seals. It may end before that.
    Init(Kind),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    Nothing,
    /// A process takes its own fingerprint for that of the quorum, whatever the masters carried.
    UnseenSealed,
}

/// A quorum of `N` masters.
struct World<const N: usize>(Bug);

fn of(mask: u8) -> impl Iterator<Item = usize> {
    (0..u8::BITS as usize).filter(move |master| mask & 1 << master != 0)
}

/// Reads, rounds and losses that are of interest: a smaller one decides nothing, and is a part of a greater one.
fn majorities<const N: usize>() -> impl Iterator<Item = u8> {
    (1..1 << N).filter(|mask: &u8| mask.count_ones() as usize >= majority(N))
}

fn id() -> QuorumId {
    QuorumId::from_bits(7)
}

fn facts<const N: usize>(master: usize, shown: Master) -> MasterFacts {
    let Master {
        carries,
        sealed,
        begun,
        ..
    } = shown;
    let run_id = format!("r{master}");
    let mut facts = MasterFacts {
        seal: if sealed { run_id.clone() } else { String::new() },
        run_id,
        server: Server::Redis("7.0.15".into()),
        role: "master".into(),
        eviction_policy: "noeviction".into(),
        fingerprint: carries
            .map(|kind| kind.fingerprint::<N>().to_string())
            .unwrap_or_default(),
        quorum: carries.map(|_| id()),
        replication_id: "b".repeat(40),
        replication_at_seal: "b".repeat(40) + "|0",
        ..MasterFacts::default()
    };
    let begins = match begun {
        Some(kind) => init_probe(&facts, &kind.fingerprint::<N>().to_string()),
        None => facts.probe_prefix(),
    };
    facts.probe = begins + "x";
    facts
}

impl<const N: usize> Default for Process<N> {
    fn default() -> Self {
        Self {
            shown: [None; N],
            ever: [false; 2],
            stored: false,
            ages: [None; N],
        }
    }
}

impl<const N: usize> Process<N> {
    fn identity(&self, own: Kind, bug: Bug) -> Identity {
        let unseen = bug == Bug::UnseenSealed;
        let stored = (self.stored || unseen).then(id);
        let mut identity = Identity::new(own.fingerprint::<N>().to_string(), stored);
        let Some(any) = self.shown.iter().position(Option::is_some).filter(|_| !unseen) else {
            return identity;
        };
        for kind in [Long, Short].into_iter().filter(|kind| self.ever[*kind as usize]) {
            identity.note(any, &facts::<N>(any, Master::left_by(Some(kind))));
        }
        for (master, shown) in self.shown.iter().enumerate() {
            identity.note(master, &facts::<N>(master, Master::left_by(*shown)));
        }
        identity
    }

    fn look(&mut self, masters: &[Master; N], mask: u8, own: Kind) {
        for master in of(mask) {
            let found = masters[master];
            if let Some(kind) = found.carries {
                self.shown[master] = Some(kind);
                self.ever[kind as usize] = true;
            }
            if !found.sealed {
                self.ages[master] = self.ages[master].or(Some(0));
            }
        }
        let sealed = |master: &usize| masters[*master].sealed && masters[*master].carries == Some(own);
        self.stored |= of(mask).filter(sealed).count() >= majority(N);
    }
}

impl<const N: usize> State<N> {
    fn plan(&mut self, own: Kind, mask: u8, bug: Bug) {
        if mask == 0 {
            return;
        }
        let process = &mut self.processes[own as usize];
        process.look(&self.masters, mask, own);
        let size = QuorumSize::new(N).unwrap();
        let mut quarantine = Quarantine::new(size, own.fingerprint::<N>(), SealedBy::Process);
        let now = BootInstant::from_nanos(1_000_000_000_000);
        for (master, age) in process.ages.iter().enumerate() {
            if let Some(age) = age {
                let probe = facts::<N>(master, self.masters[master]).probe;
                quarantine.note(master, &probe, now - TICK * u32::from(*age));
            }
        }
        let response = |master: usize| {
            let mut shown = self.masters[master];
            if bug == Bug::UnseenSealed {
                shown.carries = shown.carries.filter(|kind| *kind == own);
            }
            (mask & 1 << master != 0).then(|| Response {
                facts: facts::<N>(master, shown),
                received: now,
            })
        };
        let read = Read {
            sent: now,
            responses: (0..N).map(response).collect(),
        };
        let plan = quarantine.decide(&read, &process.identity(own, bug));
        self.fell_back |= !plan.of(&Step::Fallback).is_empty();
        for master in plan.of(&Step::Seal).into_iter().chain(plan.of(&Step::Fallback)) {
            self.seal(master, own);
        }
    }

    fn seal(&mut self, master: usize, kind: Kind) {
        self.masters[master] = Master {
            sealed: true,
            carries: Some(kind),
            ..Master::default()
        };
        self.processes
            .iter_mut()
            .for_each(|process| process.ages[master] = None);
    }

    /// Returns the masters that grant the lock to this candidate.
    fn grants(&self, kind: Kind) -> u8 {
        let grants = |master: &usize| {
            let found = self.masters[*master];
            found.sealed && found.carries == Some(kind) && found.lease.is_none_or(|(of, _)| of == kind)
        };
        (0..N).filter(grants).fold(0, |mask, master| mask | 1 << master)
    }

    /// Masters are alike: states that differ in their order only are one.
    fn sort(&mut self) {
        let [long, short] = self.processes;
        let mut all: Vec<_> = (0..N)
            .map(|m| {
                (
                    self.masters[m],
                    (long.shown[m], long.ages[m]),
                    (short.shown[m], short.ages[m]),
                )
            })
            .collect();
        all.sort();
        for (m, (master, long, short)) in all.into_iter().enumerate() {
            self.masters[m] = master;
            for (process, (shown, age)) in self.processes.iter_mut().zip([long, short]) {
                (process.shown[m], process.ages[m]) = (shown, age);
            }
        }
    }

    fn tick(&mut self) {
        for master in &mut self.masters {
            master.lease = master
                .lease
                .filter(|(_, left)| *left > 1)
                .map(|(of, left)| (of, left - 1));
        }
        self.holds = self.holds.map(|left| left.saturating_sub(1));
        let ages = self.processes.iter_mut().flat_map(|process| &mut process.ages);
        ages.flatten().for_each(|age| *age = LONGEST_AGE.min(*age + 1));
    }
}

impl<const N: usize> Model for World<N> {
    type State = State<N>;
    type Action = Action;

    fn init_states(&self) -> Vec<State<N>> {
        let master = Master {
            sealed: true,
            carries: Some(Long),
            ..Master::default()
        };
        vec![State {
            masters: [master; N],
            processes: [Process::default(); 2],
            holds: [0; 2],
            wipes: 2,
            restarts: 1,
            inits: 1,
            fell_back: false,
        }]
    }

    fn actions(&self, state: &State<N>, actions: &mut Vec<Action>) {
        for short in majorities::<N>().chain([0]) {
            actions.extend([0, (1 << N) - 1].map(|long| Action::Tick { long, short }));
        }
        for kind in [Long, Short] {
            if state.grants(kind).count_ones() as usize >= majority(N) {
                actions.push(Action::Hold(kind));
            }
            if state.restarts > 0 {
                actions.push(Action::Restart(kind));
            }
            let empty = |master: &Master| !master.sealed && master.carries.is_none();
            if state.inits > 0 && state.masters.iter().all(empty) && state.holds == [0; 2] {
                actions.push(Action::BeginInit(kind));
            }
            if state.masters.iter().all(|master| master.begun == Some(kind)) {
                actions.push(Action::Init(kind));
            }
        }
        if state.wipes > 0 {
            actions.extend(majorities::<N>().map(Action::Wipe));
        }
    }

    fn next_state(&self, last: &State<N>, action: Action) -> Option<State<N>> {
        let mut state = *last;
        match action {
            Action::Tick { long, short } => {
                state.tick();
                state.plan(Long, long, self.0);
                state.plan(Short, short, self.0);
            }
            Action::Hold(kind) => {
                for master in of(state.grants(kind)) {
                    state.masters[master].lease = Some((kind, kind.ticks()));
                }
                state.holds[kind as usize] = kind.ticks();
            }
            Action::Wipe(mask) => {
                state.wipes -= 1;
                for master in of(mask) {
                    state.masters[master] = Master::default();
                    state
                        .processes
                        .iter_mut()
                        .for_each(|process| process.ages[master] = None);
                }
            }
            Action::Restart(kind) => {
                state.restarts -= 1;
                let process = &mut state.processes[kind as usize];
                *process = Process {
                    // The id is stored outside the masters, beside the configuration.
                    stored: process.stored,
                    ..Process::default()
                };
            }
            Action::BeginInit(kind) => {
                state.inits -= 1;
                for master in &mut state.masters {
                    master.begun = Some(kind);
                }
                // Another probe begins the waits anew.
                state
                    .processes
                    .iter_mut()
                    .for_each(|process| process.ages = [None; N]);
                let other = [Short, Long][kind as usize];
                state.processes[other as usize] = Process::default();
            }
            Action::Init(kind) => {
                for master in 0..N {
                    state.seal(master, kind);
                }
            }
        }
        state.sort();
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_HOLDER, |_, state: &State<N>| state.holds.contains(&0)),
            Property::sometimes("a total loss is survived", |_, state: &State<N>| {
                state.fell_back && state.holds[Long as usize] > 0
            }),
            Property::sometimes(
                "an init that ended half-way is continued",
                |_, state: &State<N>| state.fell_back && state.inits == 0 && state.holds[Short as usize] > 0,
            ),
            Property::sometimes(
                "the shorter leases are those of the quorum",
                |_, state: &State<N>| state.fell_back && state.holds[Short as usize] > 0,
            ),
        ]
    }
}

#[test]
fn processes_with_different_fingerprints_leave_one_holder() {
    explore::<3>();
}

#[test]
fn processes_with_different_fingerprints_leave_one_holder_at_one_master() {
    explore::<1>();
}

fn explore<const N: usize>() {
    let checker = World::<N>(Bug::Nothing).checker().threads(2).spawn_bfs().join();
    let states = checker.unique_state_count();
    println!(
        "sealers of {N} masters: {states} distinct states, at most {} deep",
        checker.max_depth()
    );
    assert!(checker.is_done());
    checker.assert_properties();
}

#[test]
fn planted_seal_for_a_fingerprint_that_was_never_seen_is_found() {
    find_unseen_seal::<3>();
    find_unseen_seal::<1>();
}

fn find_unseen_seal<const N: usize>() {
    let began = Instant::now();
    let checker = World::<N>(Bug::UnseenSealed)
        .checker()
        .threads(2)
        .spawn_bfs()
        .join();
    let states = checker.unique_state_count();
    let path = checker.discovery(ONE_HOLDER).expect("two holders");
    let took = began.elapsed().as_secs_f64();
    println!("planted: UnseenSealed|model|TwoHolders after {states} states, {took:.1} s");
    println!("{:?}", path.into_actions());
}
