//! Plays ten thousand slots of one line of cron on three hosts.

use super::{
    tests::{MASTERS, claim, view},
    *,
};
use crate::{
    lease::{Claim, QuorumSize, SlotRegister, same_job},
    run::schedule::SlotSchedule,
};

/// The time for which a lease blocks the lock after its holder crashed.
const LEASE: u64 = 15;
/// The rounds of one claim.
const ROUNDS: usize = 5;

/// The two registers of one master.
#[derive(Clone, Debug, Default)]
struct Master {
    begun: (u64, String),
    ended: (u64, String),
}

/// The masters, and the outcome of each slot.
struct World {
    masters: Vec<Master>,
    random: fastrand::Rng,
    /// How many of a hundred answers are lost.
    lost: u32,
}

impl World {
    /// The script `claim`.
    fn write(register: &mut (u64, String), slot: u64, job: &str) -> bool {
        if slot > register.0 {
            *register = (slot, job.to_owned());
        }
        register.0 == slot && same_job(&register.1, job) && register.1 != NO_JOB
    }

    fn claim(&mut self, of: fn(&mut Master) -> &mut (u64, String), claim: &SlotClaim) -> Claim {
        let (mut granted, mut refused) = (0, 0);
        for master in &mut self.masters {
            if self.random.u32(..100) < self.lost {
                continue;
            }
            let done = Self::write(of(master), claim.slot, &claim.job);
            // The reply may be lost after the write.
            match self.random.u32(..100) < self.lost {
                true => {}
                false if done => granted += 1,
                false => refused += 1,
            }
        }
        match (granted, refused) {
            (2.., _) => Claim::Granted,
            (_, 2..) => Claim::Refused,
            _ => Claim::Undecided,
        }
    }

    fn read(&mut self, of: fn(&Master) -> &(u64, String)) -> SlotView {
        let mut view = SlotView::new(QuorumSize::new(MASTERS).unwrap());
        for master in &self.masters {
            if self.random.u32(..100) >= self.lost {
                let (slot, job) = of(master).clone();
                view.record(SlotRegister { slot, job, floor: 0 });
            }
        }
        view
    }

    /// One master loses its memory, and is sealed with the registers of the others.
    fn seal_again(&mut self) {
        let lost = self.random.usize(..MASTERS);
        let mut others = self
            .masters
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != lost);
        let (one, two) = (others.next().unwrap().1, others.next().unwrap().1);
        let merge = |one: &(u64, String), two: &(u64, String)| match one.0.cmp(&two.0) {
            std::cmp::Ordering::Less => two.clone(),
            std::cmp::Ordering::Greater => one.clone(),
            std::cmp::Ordering::Equal if same_job(&one.1, &two.1) => one.clone(),
            std::cmp::Ordering::Equal => (one.0, NO_JOB.to_owned()),
        };
        self.masters[lost] = Master {
            begun: merge(&one.begun, &two.begun),
            ended: merge(&one.ended, &two.ended),
        };
    }

    /// What a run does while it holds the lock: true if it begins its command.
    fn begins(&mut self, claim: &SlotClaim, fault: Fault) -> bool {
        for _ in 0..ROUNDS {
            let (begun, ended) = (
                self.read(|master| &master.begun),
                match fault {
                    Fault::None => self.read(|master| &master.ended),
                    Fault::EndsNotRead => view(&[(0, NO_JOB); 2]),
                },
            );
            match claim.state(&begun, &ended, claim.slot) {
                SlotState::Taken(_) => return false,
                SlotState::Unknown => continue,
                SlotState::Open => {}
            }
            if self.claim(|master| &mut master.begun, claim) == Claim::Granted {
                return true;
            }
        }
        false
    }

    fn records_end(&mut self, claim: &SlotClaim) -> bool {
        (0..ROUNDS).any(|_| self.claim(|master| &mut master.ended, claim) == Claim::Granted)
    }
}

/// One wrong line of code.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    /// A run begins although another one has run the slot to its end.
    EndsNotRead,
}

/// One line of cron on three hosts.
#[derive(Clone, Copy, Debug)]
struct Line {
    schedule: &'static str,
    /// The seconds between two slots.
    period: u64,
    on_crash: OnCrash,
    /// How many of a hundred runs crash.
    crashes: u32,
    lost: u32,
    fault: Fault,
    seed: u64,
}

/// The starts and the ends of the command in each slot.
type Account = std::collections::BTreeMap<u64, (u32, u32)>;

/// A run that a host starts.
struct Run {
    at: u64,
    slot: u64,
    /// Whether another run of its slot can take over after a crash.
    waits: bool,
}

const SLOTS: u64 = 10_000;
const FIRST: u64 = 1_780_000_000 / 3_600 * 3_600;

/// Returns the runs of three hosts in the order of their starts. The clock of each differs from the right one by at most
/// half a minute, and the daemon starts a run up to ten seconds late.
fn runs(line: &Line, random: &mut fastrand::Rng) -> Vec<Run> {
    let (schedule, zone) = (
        SlotSchedule::parse(line.schedule).unwrap(),
        jiff::tz::TimeZone::UTC,
    );
    let mut runs = Vec::new();
    for _ in 0..3 {
        let offset = random.i64(-30..=30);
        for slot in slots(line) {
            // By the clock of the host.
            let starts = slot + random.u64(..10);
            runs.push(Run {
                at: starts.checked_add_signed(offset).unwrap(),
                slot: schedule.slot_at(starts, &zone).unwrap(),
                waits: line.on_crash == OnCrash::Retry,
            });
        }
    }
    runs.sort_by_key(|run| std::cmp::Reverse(run.at));
    runs
}

fn slots(line: &Line) -> impl Iterator<Item = u64> {
    let period = line.period;
    (0..SLOTS).map(move |number| FIRST + number * period)
}

fn play(line: &Line) -> Account {
    let mut random = fastrand::Rng::with_seed(line.seed);
    let mut runs = runs(line, &mut random);
    let mut world = World {
        masters: vec![Master::default(); MASTERS],
        random,
        lost: line.lost,
    };
    let mut account: Account = slots(line).map(|slot| (slot, (0, 0))).collect();
    let (mut free, mut nonce) = (0, 0);
    while let Some(next) = runs.last() {
        // Any of the runs that wait for the lock may get it.
        free = next.at.max(free);
        let waiting = runs.iter().rev().take_while(|run| run.at <= free).count();
        let run = runs.remove(runs.len() - 1 - world.random.usize(..waiting));
        nonce += 1;
        let claim = claim(run.slot, line.on_crash, nonce);
        if world.random.u32(..100) == 0 {
            world.seal_again();
        }
        if !world.begins(&claim, line.fault) {
            continue;
        }
        let (begun, ended) = account.get_mut(&run.slot).unwrap();
        *begun += 1;
        free += world.random.u64(..20);
        let others = runs
            .iter()
            .rev()
            .take(9)
            .any(|other| other.slot == run.slot && other.waits);
        if others && world.random.u32(..100) < line.crashes {
            free += LEASE;
            continue;
        }
        *ended += 1;
        if line.on_crash == OnCrash::Retry {
            assert!(world.records_end(&claim) || line.lost > 0, "{line:?}");
        }
    }
    account
}

const EACH_HOUR: Line = Line {
    schedule: "0 * * * *",
    period: 3_600,
    ..EACH_MINUTE
};
const EACH_MINUTE: Line = Line {
    schedule: "1m",
    period: 60,
    on_crash: OnCrash::Skip,
    crashes: 0,
    lost: 0,
    fault: Fault::None,
    seed: 0,
};

/// Plays the line with a seed of its own, or with that of the variable REDLOCK_SEED.
fn play_anew(line: Line) -> (Line, Account) {
    let seed = std::env::var("REDLOCK_SEED")
        .map_or_else(|_| fastrand::u64(..1_000_000), |seed| seed.parse().unwrap());
    let line = Line { seed, ..line };
    println!("REDLOCK_SEED={seed}");
    let account = play(&line);
    assert_eq!(account.len(), 10_000, "{line:?}");
    (line, account)
}

fn check(line: Line, allowed: impl Fn(u32, u32) -> bool) {
    let (line, account) = play_anew(line);
    for (slot, (begun, ended)) in account {
        assert!(
            allowed(begun, ended),
            "{line:?}: slot {slot} began {begun} and ended {ended} times"
        );
    }
}

#[test]
fn ten_thousand_slots_of_three_hosts_run_once_each() {
    for on_crash in [OnCrash::Skip, OnCrash::Retry] {
        for line in [EACH_MINUTE, EACH_HOUR] {
            check(Line { on_crash, ..line }, |begun, ended| (begun, ended) == (1, 1));
        }
    }
}

/// Whether or not the run of the first host ends, no other host begins the slot.
#[test]
fn slot_that_is_not_repeated_begins_at_most_once_whatever_is_lost() {
    let line = Line {
        lost: 30,
        ..EACH_MINUTE
    };
    check(line, |begun, _| begun <= 1);
}

#[test]
fn slot_of_a_run_that_crashed_is_repeated_until_one_ends() {
    let line = Line {
        on_crash: OnCrash::Retry,
        crashes: 40,
        ..EACH_HOUR
    };
    check(line, |_, ended| ended == 1);
}

#[test]
fn planted_run_that_does_not_read_the_ends_is_found() {
    let line = Line {
        on_crash: OnCrash::Retry,
        fault: Fault::EndsNotRead,
        ..EACH_HOUR
    };
    let (_, account) = play_anew(line);
    assert!(
        account.values().any(|(_, ended)| *ended > 1),
        "no slot runs twice"
    );
}
