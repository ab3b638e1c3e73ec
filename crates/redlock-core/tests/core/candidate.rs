//! One candidate: the production machine, and a driver that carries out its actions as the elector does.

#[path = "candidate/answers.rs"]
mod answers;
#[path = "candidate/rounds.rs"]
mod rounds;

use std::{collections::BTreeMap, time::Duration};

use redlock_core::{
    Action, Authority, Clocks, ClusterId, EndReason, Event, FencingToken, HolderIdentity, LeaseValue,
    MAX_MASTERS, Machine, Mark, Marks, Moment, Nonce, Outcome, QuorumSize, Sample, Tally, Terms, timing,
};

use crate::{
    courier::{Call, Kind, Progress},
    master::{Job, Op},
    plant::Plant,
    rate::{Instant, Rate},
    world::LONGEST,
};

/// What a candidate wants done.
#[derive(Debug)]
pub(crate) enum Out {
    Send {
        master: usize,
        connection: u32,
        call: u64,
        op: Op,
        not_after: u64,
        deadline: Moment,
    },
    WakeAt(Moment),
    /// `silent`: only for the masters that were not asked, since they did not answer before.
    Deadline {
        call: u64,
        at: Moment,
        silent: bool,
    },
    Repeat {
        tenure: usize,
        master: usize,
        reserve: bool,
        wait: Duration,
        until: Moment,
        at: Moment,
    },
    /// Authority was published; `won` if by a new lease, with how long that took.
    Active {
        token: FencingToken,
        won: Option<(Marks, Duration)>,
    },
    /// A majority has the mark `held`, or `clean`.
    Marked {
        token: u64,
        mark: Mark,
    },
    Claimed {
        slot: u64,
        job: Job,
    },
    /// A majority keeps the lock for this cluster, for as long as the lease was good for.
    Reserved {
        cluster: ClusterId,
        began: Moment,
        until: Moment,
    },
    /// It goes on holding although what runs could not be stopped any more.
    NoTimeToStop(String),
    /// A round that needs authority was sent without it.
    WithoutAuthority,
}

/// One lease of this process, and on which connections it was sent.
#[derive(Debug)]
struct Tenure {
    stem: LeaseValue,
    sent: [u32; MAX_MASTERS],
    pending: [u32; MAX_MASTERS],
    /// For whom a majority keeps the lock.
    reserved: Option<ClusterId>,
}

#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) clock: Rate,
    pub(crate) cluster: ClusterId,
    index: u32,
    identity: HolderIdentity,
    size: QuorumSize,
    plant: Plant,
    /// It was told to shut down.
    pub(crate) leaving: bool,
    /// Counts its lives.
    pub(crate) life: u32,
    machine: Option<Machine>,
    published: Option<Authority>,
    /// The authority that ended last, and the cluster that the lock was kept for last, with when that began.
    ended: Option<Authority>,
    reserved_for: (ClusterId, Moment),
    tenures: Vec<Tenure>,
    calls: BTreeMap<u64, Call>,
    next: u64,
    floor: u64,
    timer: Option<Moment>,
    /// The connection to each master; another number after it was lost.
    pub(crate) connections: [u32; MAX_MASTERS],
    /// Masters that left a call unanswered and have not answered since: not asked for votes, only looked at.
    silent: [bool; MAX_MASTERS],
    /// When the terms changed last, and terms that are planted to take effect late.
    changed: Moment,
    late: Option<Terms>,
    /// The masters' clocks, as the program judges them.
    clocks: Clocks,
    /// How often the local clock was found to have stepped.
    pub(crate) local_steps: u64,
    /// Votes of renewals before, for the planted sum over rounds.
    sum: Option<Tally>,
    /// The token of an ended lease, for the planted heal after the end.
    heals: Option<FencingToken>,
}

impl Candidate {
    pub(crate) fn new(index: usize, cluster: &str, clock: Rate, size: QuorumSize, plant: Plant) -> Self {
        Self {
            clock,
            index: u32::try_from(index).unwrap(),
            // One cluster, by several names.
            cluster: ClusterId::new(&format!("{cluster}-{index}"), cluster).unwrap(),
            identity: HolderIdentity::parse(&format!("candidate-{index}")).unwrap(),
            size,
            plant,
            leaving: false,
            life: 0,
            machine: None,
            published: None,
            ended: None,
            reserved_for: (ClusterId::new(cluster, cluster).unwrap(), Moment::from_nanos(0)),
            tenures: Vec::new(),
            calls: BTreeMap::new(),
            next: 0,
            floor: 0,
            timer: None,
            connections: [1; MAX_MASTERS],
            silent: [false; MAX_MASTERS],
            changed: Moment::default(),
            late: None,
            clocks: Clocks::new(size, LONGEST),
            local_steps: 0,
            sum: None,
            heals: None,
        }
    }

    /// Whether it reaches the planted second server under the name of the first master.
    pub(crate) fn reaches_twin(&self) -> bool {
        self.index % 2 == 1
    }

    pub(crate) fn alive(&self) -> bool {
        self.machine.is_some()
    }

    /// The state of the machine, if its process runs.
    pub(crate) fn state(&self) -> Option<&'static str> {
        self.machine.as_ref().map(Machine::state_name)
    }

    pub(crate) fn terms(&self) -> Option<&Terms> {
        self.machine.as_ref().map(Machine::terms)
    }

    /// Whether a sample of the clock of this master is known, which a step of it would show against.
    pub(crate) fn knows_clock_of(&self, master: usize) -> bool {
        self.clocks
            .not_after(master, Moment::default(), Duration::ZERO)
            .is_some()
    }

    /// Starts anew, knowing nothing but the masters' clocks.
    pub(crate) fn start(&mut self, terms: Terms, at: Instant, clocks: impl Iterator<Item = u64>) -> Vec<Out> {
        self.crash();
        self.leaving = false;
        self.machine = Some(Machine::new(terms, self.size.majority()));
        self.clocks = Clocks::new(self.size, LONGEST);
        let now = self.clock.moment(at);
        for (master, micros) in clocks.enumerate() {
            let _ = self.clocks.sample(
                master,
                Sample {
                    master: micros,
                    sent: now,
                    received: now,
                },
            );
        }
        self.event(at, 0, Event::TimerFired)
    }

    pub(crate) fn crash(&mut self) {
        self.elector_dies();
        self.published = None;
    }

    /// The task ends, and its process does not notice: it goes on asking for what was published last.
    pub(crate) fn elector_dies(&mut self) {
        self.life += 1;
        (self.machine, self.timer, self.late) = (None, None, None);
        (self.floor, self.sum, self.heals) = (0, None, None);
        self.silent = [false; MAX_MASTERS];
        self.calls.clear();
        for connection in &mut self.connections {
            *connection += 1;
        }
    }

    /// What others read: a value with an end.
    pub(crate) fn authority(&self, at: Instant) -> Option<Authority> {
        if self.holds_for_ever() {
            return self.published;
        }
        self.published?.at(self.clock.moment(at))
    }

    fn holds_for_ever(&self) -> bool {
        self.plant == Plant::DeathHolds && !self.alive()
    }

    /// When that ends, in true time.
    pub(crate) fn authority_ends(&self) -> Option<Instant> {
        let authority = self.published?;
        Some(if self.holds_for_ever() {
            Instant::MAX
        } else {
            self.clock.instant(authority.valid_until)
        })
    }

    /// The token of the authority, ended or not.
    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.published.map(|authority| authority.token)
    }

    /// The lease that the authority stands on.
    pub(crate) fn nonce(&self) -> Option<Nonce> {
        self.tenures.last().map(|tenure| tenure.stem.nonce)
    }

    pub(crate) fn event(&mut self, at: Instant, entropy: u64, event: Event) -> Vec<Out> {
        let mut out = Vec::new();
        self.feed(at, entropy, event, &mut out);
        out
    }

    /// The time that the last `SleepUntil` named has come, unless it was replaced.
    pub(crate) fn on_timer(&mut self, at: Instant, due: Moment, entropy: u64) -> Vec<Out> {
        if self.timer != Some(due) {
            return Vec::new();
        }
        self.timer = None;
        self.event(at, entropy, Event::TimerFired)
    }

    fn feed(&mut self, at: Instant, entropy: u64, event: Event, out: &mut Vec<Out>) {
        let now = self.clock.moment(at);
        if let Event::SpecChanged(terms) = &event {
            self.changed = now;
            let late = self.plant == Plant::TimingsTakeEffectLate && self.state() == Some("renewing");
            self.late = late.then(|| terms.clone());
            if late {
                return;
            }
        }
        let won = matches!(
            event,
            Event::RoundFinished {
                outcome: Outcome::Renewed { .. },
                ..
            }
        );
        let undecided = matches!(
            event,
            Event::RoundFinished {
                outcome: Outcome::RenewalUndecided,
                ..
            }
        );
        self.leaving |= matches!(event, Event::Shutdown(_));
        let Some(machine) = &mut self.machine else { return };
        let actions = machine.handle(now, entropy, event);
        if undecided && self.plant == Plant::FailedRenewalDeletes && self.published.is_some() {
            self.launch(
                now,
                None,
                Kind::Undo,
                Progress::Round(Tally::new(self.size)),
                out,
                |_| true,
            );
        }
        for action in actions {
            self.act(now, action, out);
        }
        if let Some(terms) = self.late.take_if(|_| won) {
            self.feed(at, entropy, Event::SpecChanged(terms), out);
        }
        self.stops_in_time(now, out);
    }

    /// Under a lease that is held, the local end comes in time to stop what runs: at once, or within the slack, when the
    /// terms ask for more time than is left.
    fn stops_in_time(&self, now: Moment, out: &mut Vec<Out>) {
        let held = self.published.and_then(|authority| authority.at(now));
        let (Some(authority), Some(machine)) = (held, &self.machine) else {
            return;
        };
        let timings = self.late.as_ref().unwrap_or(machine.terms()).timings;
        let latest = authority.valid_until - timings.stop - timings.slack();
        let latest = latest.max(self.changed + timings.slack());
        if now > latest || self.timer.is_none_or(|timer| timer > latest) {
            let how = format!(
                "{} holds on until {:?}, and has {timings:?}",
                self.index, self.timer
            );
            out.push(Out::NoTimeToStop(how));
        }
    }

    fn act(&mut self, now: Moment, action: Action, out: &mut Vec<Out>) {
        match action {
            Action::StartRound { id, round } => self.start_round(now, id, round, out),
            Action::SleepUntil(moment) => {
                self.timer = Some(moment);
                out.push(Out::WakeAt(moment));
            }
            Action::PublishActive { mut authority, won } => {
                if self.plant == Plant::NoDrift {
                    let lease = self
                        .terms()
                        .map_or(Duration::ZERO, |terms| terms.timings.lease_duration);
                    authority.valid_until = authority.valid_until + timing::drift(lease);
                }
                self.published = Some(authority);
                out.push(Out::Active {
                    token: authority.token,
                    won: won.map(|(won, _)| (won.marks, now.since(won.started))),
                });
            }
            Action::PublishStandby { ended, .. } => {
                self.ended = self.published.or(self.ended);
                let late = matches!(ended, Some(EndReason::Expired | EndReason::QuorumLost));
                if late && self.plant == Plant::HealAfterTheEnd {
                    self.heals = self.published.map(|authority| authority.token);
                }
                // The planted candidate goes on believing while it passes the lock on.
                if !(self.plant == Plant::ReserveBeforeTheEnd && ended == Some(EndReason::Reserved)) {
                    self.published = None;
                }
            }
            Action::Stopped => self.machine = None,
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap()
}
