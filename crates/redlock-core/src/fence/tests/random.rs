//! Tests random inputs against a monitor of the effects, and that the monitor finds planted faults.

use super::*;
use crate::planted::Plant;

/// The state of the processes of the pod by the effects so far, and the permits of the rounds so far.
#[derive(Debug, Default)]
struct Monitor {
    started: bool,
    frozen: bool,
    /// The time of the last call. `killed` is the time of the kill that no start has followed.
    called: u64,
    killed: Option<u64>,
    empty: bool,
    /// The lineage that runs. `until` is the end that a round permitted; `None` after contrary evidence.
    first: u64,
    until: Option<u64>,
    /// The time at which the last read that showed the object of the pod began.
    shown: Option<u64>,
    /// The permits by which a pod may start: the lineage, the start of the round, the end.
    starts: Vec<(u64, u64, u64)>,
}

impl Monitor {
    fn sees(&mut self, input: &Input, now: u64) {
        match input {
            Input::Published => self.called = now,
            Input::Pod {
                presence: Presence::Exists,
                asked,
            } => self.shown = self.shown.max(Some(millis(*asked))),
            Input::Cgroup { populated, .. } => self.empty = !populated,
            Input::Round(Finding::Permit(permit)) => {
                let (first, until) = (permit.first.0, millis(permit.until));
                if first == self.first {
                    self.until = self.until.max(Some(until));
                }
                if !permit.closed {
                    self.starts.push((first, millis(permit.sent), until));
                }
            }
            Input::Round(finding) if finding.is_contrary() => {
                self.until = None;
                self.starts.clear();
            }
            _ => {}
        }
    }

    /// Checks that a round that did not begin before `since` permits the lineage to start.
    fn starts(&self, run: Run, since: u64) -> Result<(), String> {
        let fits = |(first, sent, until): &(u64, u64, u64)| {
            *first == run.lineage.first.0 && *sent >= since && at(*until) >= run.until
        };
        if !self.starts.iter().any(fits) {
            return Err(format!("{run:?} starts by no round since {since}"));
        }
        // The read began after a round that permits the start.
        let confirmed = |round: &&(u64, u64, u64)| fits(round) && self.shown >= Some(round.1);
        match self.starts.iter().find(confirmed) {
            Some(_) => Ok(()),
            None => Err(format!("{run:?} starts without its object")),
        }
    }

    fn effect(&mut self, effect: &Effect, state: &State, now: u64) -> Result<(), String> {
        match effect {
            Effect::Freeze => self.frozen = true,
            Effect::Kill if !self.frozen => return Err("killed before it was frozen".into()),
            Effect::Kill => {
                self.killed.get_or_insert(now);
                self.empty = false;
            }
            Effect::AnswerPublish(Ok(())) if !self.started => {
                let State::Running(run) = *state else {
                    return Err(format!("answered in {state:?}"));
                };
                self.starts(run, self.called)?;
                self.begins(run);
            }
            Effect::Thaw => {
                let State::Running(run) = *state else {
                    return Err(format!("thawed in {state:?}"));
                };
                if let Some(since) = self.killed.take() {
                    if !self.empty {
                        return Err("thawed before the cgroup was empty".into());
                    }
                    self.starts(run, since)?;
                    self.begins(run);
                } else if run.lineage.first.0 != self.first {
                    return Err(format!("the lineage {} runs on by {run:?}", self.first));
                }
                self.frozen = false;
            }
            Effect::StoreReleased(_) => return Err("released without a word".into()),
            Effect::AnswerPublish(_) | Effect::ConfirmPod | Effect::Store(_) | Effect::StoreKilled(_) => {}
        }
        Ok(())
    }

    fn begins(&mut self, run: Run) {
        self.started = true;
        self.first = run.lineage.first.0;
        self.until = Some(millis(run.until));
    }

    /// S8, for one pod: a pod that runs has a permit that ends later than the next chance to freeze the pod.
    fn holds(&self, now: u64) -> Result<(), String> {
        let permitted = self.until.is_some_and(|until| now + 50 < until);
        if self.started && !self.frozen && !permitted {
            return Err(format!("runs at {now} until {:?}", self.until));
        }
        Ok(())
    }
}

fn millis(moment: BootInstant) -> u64 {
    u64::try_from(moment.since(at(0)).as_millis()).unwrap()
}

fn finding(rng: &mut fastrand::Rng, now: u64) -> Finding {
    let lineage = rng.u64(1..4);
    let sent = now.saturating_sub(rng.u64(..400));
    match rng.u32(..10) {
        0 => foreign(rng.u64(1..40)),
        1 => Finding::Unheld,
        2 => Finding::ClockStoodStill,
        3 => Finding::Withheld(Withheld::NoMajority),
        _ => Finding::Permit(Permit {
            // The first lineage is frequent, so that pods run.
            first: FencingToken(if rng.bool() { 1 } else { lineage * 10 }),
            token: FencingToken(lineage * 10 + rng.u64(..5)),
            until: at(sent + rng.u64(..15_000)),
            closed: rng.u32(..4) == 0,
            sent: at(sent),
        }),
    }
}

fn input(rng: &mut fastrand::Rng, now: u64) -> Input {
    match rng.u32(..18) {
        0 => Input::Published,
        12..=17 => Input::Pod {
            // A pod whose object is gone never starts, so this presence is rare.
            presence: match rng.u32(..16) {
                0 => Presence::Gone,
                1..=4 => Presence::Unknown,
                _ => Presence::Exists,
            },
            asked: at(now - if rng.bool() { 0 } else { rng.u64(..=now.min(300)) }),
        },
        1 | 2 => Input::Stored,
        3 | 4 => Input::Cgroup {
            populated: rng.bool(),
            frozen: rng.bool(),
        },
        5 | 6 => Input::Timer,
        _ => Input::Round(finding(rng, now)),
    }
}

/// Gives one pod 60 inputs, and returns whether it started. A timer is never late: the agent is scheduled.
fn run(seed: u64, plant: Plant) -> Result<bool, String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut record, mut monitor) = (Record::new(at(0)), Monitor::default());
    record.plant(plant);
    let mut now = 0;
    for _ in 0..60 {
        let longest = if rng.u32(..8) == 0 { 30_000 } else { 600 };
        let next = now + rng.u64(..longest);
        while record.next_wake() <= at(next) {
            now = now.max(millis(record.next_wake()));
            step(&mut record, &mut monitor, Input::Timer, now)?;
            if *record.state() != State::Refused && record.next_wake() <= at(now) {
                return Err(format!("{record:?} wakes again at {now}"));
            }
        }
        now = next;
        monitor.holds(now)?;
        step(&mut record, &mut monitor, input(&mut rng, now), now)?;
    }
    Ok(monitor.started)
}

fn step(record: &mut Record, monitor: &mut Monitor, input: Input, now: u64) -> Result<(), String> {
    monitor.sees(&input, now);
    let effects = record.handle(input, at(now));
    for effect in &effects {
        monitor.effect(effect, record.state(), now)?;
    }
    monitor.holds(now)
}

#[test]
fn s8_no_pod_runs_without_a_permit_of_its_lineage() {
    let mut started = 0;
    for seed in 0..20_000 {
        match run(seed, Plant::Nothing) {
            Ok(true) => started += 1,
            Ok(false) => {}
            Err(how) => panic!("seed {seed}: {how}"),
        }
    }
    assert!(started > 5_000, "{started} pods ran");
}

#[test]
fn planted_faults_of_a_record_are_found() {
    for (plant, by) in [
        (Plant::ThawOnOtherFirst, "runs on by"),
        (Plant::StartOnKeptPermit, "starts by no round"),
        (Plant::ClosedIgnored, "starts by no round"),
        (Plant::ContraryIgnored, "runs at"),
        (Plant::StartWithoutObject, "starts without its object"),
    ] {
        let found = (0..1_000).find_map(|seed| run(seed, plant).err());
        assert!(
            found.as_ref().is_some_and(|how| how.contains(by)),
            "{plant:?}: {found:?}"
        );
    }
}
