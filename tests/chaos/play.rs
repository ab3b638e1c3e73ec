//! Plays a plan to its end.

use std::collections::{BTreeMap, VecDeque};
use std::thread;
use std::time::Duration;

use redlock::clock;
use redlock::lease::BootInstant;

use crate::cast::{self, MASTERS};
use crate::kinds::Kind;
use crate::plan::{Act, Plan, Round};
use crate::stage::{Seen, Stage};
use crate::strike::{self, Undo};

const TICK: Duration = Duration::from_millis(10);
/// The interval at which a wait reads the state of the stage.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The time that an act waits for a holder before it is deferred until the calm, when all locks are held.
const PATIENCE: Duration = Duration::from_secs(10);
/// A bound for everything to be in order, at the beginning and after each storm: a seal takes 8 s, a lease 3 s, and a
/// busy machine needs more.
pub const BOUND: Duration = Duration::from_secs(180);
/// A bound for a lease to be on all masters: the next renewal restores a deleted one within a second.
const ON_ALL: Duration = Duration::from_secs(60);

/// A master that missed a renewal is a second behind the others.
const ONE_RENEWAL: Duration = Duration::from_millis(500);

/// The acts and their results, in addition to the observations.
#[derive(Debug, Default)]
pub struct Played {
    pub faults: BTreeMap<Kind, u32>,
    /// The longest time after a storm until all masters were sealed and all locks held.
    pub recovery: Duration,
    /// Locks not held again and masters not sealed, in the order of the storms.
    pub not_held: Vec<String>,
    pub took: Duration,
    /// Each act, with its time.
    pub acts: Vec<String>,
}

struct Play<'a> {
    stage: &'a mut Stage,
    played: Played,
    began: BootInstant,
    /// The acts that had no holder to strike in the storm.
    missed: Vec<Act>,
}

pub fn play(plan: &Plan) -> (Played, Seen) {
    let mut stage = Stage::start(false);
    settle(&mut stage).unwrap_or_else(|missing| panic!("it never began: {missing}"));
    let began = clock::now();
    let mut play = Play {
        stage: &mut stage,
        played: Played::default(),
        began,
        missed: Vec::new(),
    };
    for (number, round) in plan.rounds.iter().enumerate() {
        play.log(&format!("storm {} of {}", number + 1, plan.rounds.len()));
        play.storm(round);
        if let Err(missing) = play.calm(round) {
            // A lock or master that is not back within the bound is a finding by itself; more faults would
            // only obscure it.
            play.log(&missing);
            play.played.not_held.push(missing);
            break;
        }
    }
    let mut played = play.played;
    played.took = clock::now().since(began);
    (played, stage.end(began))
}

/// Waits until all masters are sealed at once and each lock has been held. Returns the time that this took,
/// or the missing locks and masters.
pub fn settle(stage: &mut Stage) -> Result<Duration, String> {
    let (from, mut unheld) = (clock::now(), cast::locks());
    loop {
        stage.tend();
        // The locks need not be held at one instant: a machine that is short of CPU may not show that.
        unheld.retain(|lock| stage.holder(lock).is_none());
        let (up, took) = (stage.watch.up(), clock::now().since(from));
        if up == MASTERS && unheld.is_empty() {
            return Ok(took);
        }
        if took > BOUND {
            return Err(format!(
                "after {} s without a fault {up} of {MASTERS} masters are sealed, and {unheld:?} had no holder",
                BOUND.as_secs()
            ));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// One lane, and its progress.
struct Track {
    left: VecDeque<Act>,
    next_at: BootInstant,
    now: Option<(Undo, BootInstant, Duration)>,
}

impl Track {
    fn new(acts: &[Act], now: BootInstant) -> Self {
        let left: VecDeque<Act> = acts.iter().cloned().collect();
        let pause = left.front().map_or(Duration::ZERO, |act| act.pause);
        Self {
            left,
            next_at: now + pause,
            now: None,
        }
    }

    fn is_over(&self) -> bool {
        self.left.is_empty() && self.now.is_none()
    }

    fn ended(&mut self, rest: Duration) {
        let pause = self.left.front().map_or(Duration::ZERO, |act| act.pause);
        self.next_at = clock::now() + rest + pause;
    }
}

impl Play<'_> {
    fn log(&mut self, what: &str) {
        let at = clock::now().since(self.began).as_secs_f64();
        let line = format!("{at:7.1} s  {what}");
        println!("{line}");
        self.played.acts.push(line);
    }

    fn storm(&mut self, round: &Round) {
        let now = clock::now();
        self.lanes(round.lanes.iter().map(|lane| Track::new(lane, now)).collect());
        self.lanes(vec![Track::new(std::slice::from_ref(&round.last), clock::now())]);
    }

    fn lanes(&mut self, mut lanes: Vec<Track>) {
        while !lanes.iter().all(Track::is_over) {
            for lane in &mut lanes {
                self.advance(lane);
            }
            self.stage.tend();
            thread::sleep(TICK);
        }
    }

    fn advance(&mut self, lane: &mut Track) {
        let now = clock::now();
        if let Some((undo, until, rest)) = lane.now.take() {
            if now < until {
                lane.now = Some((undo, until, rest));
                return;
            }
            strike::end(undo, self.stage);
            lane.ended(rest);
        }
        let Some(act) = lane.left.front().filter(|_| now >= lane.next_at) else {
            return;
        };
        if let Some((undo, object)) = strike::begin(act, self.stage) {
            *self.played.faults.entry(act.kind).or_default() += 1;
            self.log(&format!("{act}{object}"));
            lane.now = Some((undo, clock::now() + act.lasts, act.rest));
        } else if now.since(lane.next_at) > PATIENCE {
            self.log(&format!("{act}: no process to strike, retried later"));
            self.missed.push(act.clone());
            lane.now = Some((Undo::Nothing, now, Duration::ZERO));
        } else {
            return;
        }
        lane.left.pop_front();
    }

    fn calm(&mut self, round: &Round) -> Result<(), String> {
        let took = settle(self.stage)?;
        self.played.recovery = self.played.recovery.max(took);
        self.log(&format!("calm: all held again after {:.1} s", took.as_secs_f64()));
        for (lock, masters) in &round.calm.deletes {
            self.delete(lock, masters);
        }
        let missed = std::mem::take(&mut self.missed);
        self.lanes(vec![Track::new(&missed, clock::now())]);
        Ok(())
    }

    /// Deletes a live lease on fewer than a majority of the masters, which keep their seal; all other masters have
    /// the lease.
    fn delete(&mut self, lock: &str, masters: &[usize]) {
        let key = format!("redlock:lease:{lock}");
        if !self.on_all(&key) {
            self.log(&format!("{lock} was never on all masters: nothing is deleted"));
            return;
        }
        for master in masters {
            self.stage.admin::<()>(*master, &["DEL", &key]).unwrap();
        }
        *self.played.faults.entry(Kind::DeleteLease).or_default() += 1;
        self.log(&format!("{}: {lock} on {masters:?}", Kind::DeleteLease.what()));
        self.on_all(&key);
    }

    /// Waits until all masters show the same lease, renewed in the same round: its holder reaches all of them.
    fn on_all(&mut self, key: &str) -> bool {
        let from = clock::now();
        loop {
            self.stage.tend();
            let leases: Vec<(Option<String>, BootInstant)> =
                (0..MASTERS).map(|master| self.shown(master, key)).collect();
            let same = leases[0].0.is_some() && leases.iter().all(|(lease, _)| *lease == leases[0].0);
            let ends = || leases.iter().map(|(_, end)| *end);
            let spread = ends()
                .max()
                .zip(ends().min())
                .map(|(last, first)| last.since(first));
            if same && spread.is_some_and(|spread| spread < ONE_RENEWAL) {
                return true;
            }
            if clock::now().since(from) > ON_ALL {
                return false;
            }
            thread::sleep(TICK);
        }
    }

    /// Returns the lease without its grant number, and its end. The masters are read one after the other, and a busy
    /// machine may pause in between, so the times that are left cannot be compared.
    fn shown(&self, master: usize, key: &str) -> (Option<String>, BootInstant) {
        let value: Option<String> = self.stage.admin(master, &["GET", key]).ok().flatten();
        let left: i64 = self.stage.admin(master, &["PTTL", key]).unwrap_or(0);
        let lease = value.and_then(|value| Some(value.rsplit_once('|')?.0.to_owned()));
        (
            lease,
            clock::now() + Duration::from_millis(u64::try_from(left).unwrap_or(0)),
        )
    }
}
