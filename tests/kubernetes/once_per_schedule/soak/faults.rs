//! Causes faults at random times that the seed decides.

use std::time::{Duration, Instant};

use fastrand::Rng;
use nix::sys::signal::Signal;
use redlock::clock;
use redlock::lease::BootInstant;
use tokio::time::sleep;

use super::super::pair::{NAMES, Pair};
use crate::fixture::{BOUND, Operator};
use redlock_testkit::patient;

/// The average time between two faults.
const EVERY: Duration = Duration::from_secs(4);
/// Long enough to lose a lease of 3 s between two renewals, and longer than an answer takes on a busy machine.
const STALL: Duration = Duration::from_secs(1);

pub struct Faults {
    random: Rng,
    /// Two operators of each cluster.
    operators: Vec<(usize, Operator)>,
    next: Duration,
    away: Option<usize>,
    pub events: Vec<(BootInstant, String)>,
    pub stalls: usize,
}

impl Faults {
    /// Starts the operators of the first cluster.
    pub async fn new(pair: &Pair, random: Rng) -> Self {
        let mut faults = Self {
            random,
            operators: Vec::new(),
            next: Duration::ZERO,
            away: None,
            events: Vec::new(),
            stalls: 0,
        };
        faults.start(pair, 0).await;
        faults
    }

    async fn start(&mut self, pair: &Pair, cluster: usize) {
        for replica in 1..=2 {
            let name = format!("{}-replica-{replica}", NAMES[cluster]);
            self.operators
                .push((cluster, pair.operator(cluster, &name).await));
        }
    }

    /// Starts the operators of the other cluster.
    pub async fn second_cluster(&mut self, pair: &Pair) {
        self.start(pair, 1).await;
    }

    fn record(&mut self, what: String) {
        self.events.push((clock::now(), what));
    }

    /// Records a stall of the machine or of an operator, which may lose its lease like one that is killed. `late` is
    /// the delay that the caller has measured. An operator whose elector does not answer reports it at `/livez`.
    pub fn record_stall(&mut self, mut late: Duration) {
        let mut alive = true;
        for (_, operator) in &self.operators {
            let asked = Instant::now();
            alive &= operator.get("/livez").0 == 200;
            late = late.max(asked.elapsed());
        }
        if late > STALL || !alive {
            self.stalls += 1;
            self.record(format!("a stall: {late:?} late, alive: {alive}"));
        }
    }

    /// Kills or stops one of the operators if a fault is due; the operator is started again later.
    pub async fn maybe(&mut self, pair: &Pair, elapsed: Duration) {
        if elapsed < self.next {
            return;
        }
        self.next = elapsed + EVERY.mul_f64(0.5 + self.random.f64());
        let index = self.random.usize(..self.operators.len());
        let (cluster, mut operator) = self.operators.swap_remove(index);
        let name = operator.name.clone();
        if self.random.u8(..4) == 0 {
            self.record(format!("SIGTERM to {name}"));
            operator.child.signal(Signal::SIGTERM);
            operator.child.wait(BOUND);
        } else {
            self.record(format!("kill -9 of {name}"));
            operator.child.kill();
        }
        sleep(Duration::from_millis(self.random.u64(0..1_500))).await;
        self.operators
            .push((cluster, pair.operator(cluster, &name).await));
    }

    pub async fn wipe_one_master_and_stop_another(&mut self, pair: &Pair) {
        let wiped = self.random.usize(..5);
        let stopped = (wiped + 1 + self.random.usize(..4)) % 5;
        self.record(format!(
            "master m{stopped} is stopped, and m{wiped} forgets everything"
        ));
        pair.masters()[stopped].pause().unwrap();
        let client = redis::Client::open(pair.masters()[wiped].url()).unwrap();
        let mut connection = patient(&client).await.unwrap();
        let flushed: redis::RedisResult<()> = redis::cmd("FLUSHALL").query_async(&mut connection).await;
        flushed.unwrap();
        self.away = Some(stopped);
    }

    pub async fn end(&mut self, pair: &Pair) {
        if let Some(stopped) = self.away.take() {
            pair.masters()[stopped].resume().unwrap();
            self.record(format!("master m{stopped} continues"));
        }
    }

    /// Returns the last fault before this time, or slightly after it: a claim takes some time.
    pub fn around(&self, at: BootInstant, later: Duration) -> Option<&str> {
        let before = self.events.iter().rev().find(|(when, _)| *when < at + later);
        let (when, what) = before?;
        (at.since(*when) < Duration::from_secs(15)).then_some(what)
    }
}
