//! One candidate: the machine and the engine of production, and a driver that carries actions to one and completions to
//! the other, as the elector does.

#[path = "candidate/driver.rs"]
mod driver;
#[path = "candidate/keeper.rs"]
mod keeper;
#[path = "candidate/requests.rs"]
mod requests;
#[path = "candidate/second.rs"]
mod second;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use redlock_core::{
    Authority, BootInstant, ClusterId, Config, Engine, Event, FencingToken, HolderIdentity, Input, Keyspace,
    LeaseAttempt, LeaseValue, LockKeys, LockName, MAX_MASTERS, Machine, Mark, Marks, Nonce, QuorumSize,
    Reply, RequestId, Terms, Transmit, TransmitId, Unknown, fence::Succession,
};

use self::{keeper::Link, requests::Wanted, second::Second};
pub(crate) use self::{keeper::Polled, second::SecondEvent};
use crate::{
    master::Job,
    plant::Plant,
    planted::Planted,
    rate::{Instant, Rate},
    scripts::{self, Named},
    world::{ACQUIRE_LIMIT, COMMAND_TIMEOUT},
};

/// A request of a candidate to its world, or a report.
#[derive(Debug)]
pub(crate) enum Out {
    Transmit(Box<Transmit>),
    Poll {
        master: usize,
        connection: u32,
        number: u64,
    },
    /// Open a connection to this master.
    Open {
        master: usize,
    },
    /// The timer of the machine, that of the engine, and that of the task that keeps a master connected.
    WakeAt(BootInstant),
    SecondWakeAt(BootInstant),
    TimeoutAt(BootInstant),
    KeepAt {
        master: usize,
        at: BootInstant,
    },
    /// Authority was published. For a new lease, `won` has its marks and the duration of its attempt.
    Active {
        token: FencingToken,
        won: Option<(Marks, Duration)>,
        /// The succession of a fenced lock that was won.
        succession: Option<Succession>,
    },
    /// Authority over the second lock was published.
    SecondActive {
        token: FencingToken,
        won: bool,
    },
    /// A majority has this mark.
    Marked {
        token: u64,
        mark: Mark,
    },
    Claimed {
        slot: u64,
        job: Job,
    },
    /// A majority reserves the lock for this cluster, for the rest of the former lease.
    Reserved {
        cluster: ClusterId,
        began: BootInstant,
        until: BootInstant,
    },
    /// The candidate continues to hold the lock although its work could no longer be stopped in time.
    NoTimeToStop(String),
    /// A round that needs authority was sent without it.
    WithoutAuthority,
}

/// A script call without an answer.
#[derive(Debug)]
struct Sent {
    id: TransmitId,
    connection: u32,
    deadline: BootInstant,
}

/// The name of the second lock.
pub(crate) const SECOND: &str = "k";

#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) clock: Rate,
    pub(crate) cluster: ClusterId,
    /// Whether its leases are those of a fenced lock.
    pub(crate) fenced: bool,
    /// The fingerprint that it is configured with.
    pub(crate) names: Named,
    index: u32,
    identity: HolderIdentity,
    size: QuorumSize,
    planted: Planted,
    keys: Keyspace,
    lock: Arc<LockKeys>,
    /// The lock that it contends for as well.
    second_lock: Option<Arc<LockKeys>>,
    second: Option<Second>,
    /// Whether the candidate is to shut down.
    pub(crate) leaving: bool,
    /// Number of its processes so far. `runs` shows whether one runs.
    pub(crate) life: u32,
    runs: bool,
    machine: Option<Machine>,
    engine: Engine,
    links: Vec<Link>,
    /// The number of the last connection to each master. `lost` is the last one that was lost, with its
    /// replies.
    connections: [u32; MAX_MASTERS],
    lost: [u32; MAX_MASTERS],
    calls: Vec<Sent>,
    wanted: BTreeMap<RequestId, Wanted>,
    next: u64,
    /// Whether a majority of the masters has votes, as the elector learned last.
    voting: bool,
    /// The last attempt.
    attempt: Option<Arc<LeaseAttempt>>,
    published: Option<Authority>,
    /// The authority that ended last.
    ended: Option<Authority>,
    timer: Option<BootInstant>,
    timeout: Option<BootInstant>,
    /// The terms that were given last. `changed` is the time of the last change.
    given: Option<Terms>,
    changed: BootInstant,
}

impl Candidate {
    pub(crate) fn new(index: usize, cluster: &str, clock: Rate, size: QuorumSize, planted: Planted) -> Self {
        let index = u32::try_from(index).unwrap();
        // One cluster has several names.
        let cluster = ClusterId::new(&format!("{cluster}-{index}"), cluster).unwrap();
        let keys = Keyspace::new("p");
        Self {
            clock,
            identity: HolderIdentity::parse(&format!("candidate-{index}")).unwrap(),
            lock: keys.lock(&LockName::any("l").unwrap()),
            engine: engine(size, &keys, &cluster, (index, Named::Quorum)),
            second_lock: None,
            second: None,
            keys,
            cluster,
            fenced: false,
            names: Named::Quorum,
            index,
            size,
            planted,
            leaving: false,
            life: 0,
            runs: false,
            machine: None,
            links: Vec::new(),
            connections: [0; _],
            lost: [0; _],
            calls: Vec::new(),
            wanted: BTreeMap::new(),
            next: 0,
            voting: false,
            attempt: None,
            published: None,
            ended: None,
            timer: None,
            timeout: None,
            given: None,
            changed: BootInstant::default(),
        }
    }

    /// Lets it contend for a second lock from its next start.
    pub(crate) fn add_lock(&mut self) {
        self.second_lock = Some(self.keys.lock(&LockName::any(SECOND).unwrap()));
    }

    /// Reports whether it reaches the planted second server under the name of the first master.
    pub(crate) fn reaches_twin(&self) -> bool {
        self.index % 2 == 1
    }

    pub(crate) fn alive(&self) -> bool {
        self.machine.is_some()
    }

    /// Returns the state of the machine, if its elector runs.
    pub(crate) fn state(&self) -> Option<&'static str> {
        self.machine.as_ref().map(Machine::state_name)
    }

    /// Reports whether a sample of this master's clock is known, against which a step would show.
    pub(crate) fn knows_clock_of(&self, master: usize) -> bool {
        let clocks = self.engine.clocks();
        clocks
            .not_after(master, BootInstant::default(), Duration::ZERO)
            .is_some()
    }

    /// Returns the lease value of one of its attempts, without a grant number.
    pub(crate) fn value(&self, attempt: &LeaseAttempt) -> LeaseValue {
        LeaseValue {
            cluster: self.cluster.clone(),
            identity: self.identity.clone(),
            nonce: attempt.stem.nonce(),
            grant: 0,
        }
    }

    /// Returns the floor of a grant, which keeps the counters together for speed. Safety must not depend on
    /// it: half of the candidates send none.
    pub(crate) fn floor(&self, floor: u64) -> u64 {
        if self.index.is_multiple_of(2) { floor } else { 0 }
    }

    /// Starts a new process, without connections.
    pub(crate) fn start(&mut self, terms: Terms, at: Instant, rng: &mut fastrand::Rng) -> Vec<Out> {
        self.crash();
        self.leaving = false;
        self.runs = true;
        let mut machine = Machine::new(terms.clone(), self.size.majority());
        machine.plant(self.planted.code);
        self.machine = Some(machine);
        self.engine = engine(self.size, &self.keys, &self.cluster, (self.index, self.names));
        self.engine.plant(self.planted.code);
        self.links = (0..self.size.masters()).map(|_| Link::default()).collect();
        self.lost = self.connections;
        self.calls.clear();
        self.wanted.clear();
        self.voting = false;
        self.timeout = None;
        self.given = Some(terms.clone());
        let mut out = Vec::new();
        self.open_all(&mut out);
        self.feed(at, Event::TimerFired, rng, &mut out);
        self.start_second(at, terms, rng, &mut out);
        self.settle(at, rng, &mut out);
        out
    }

    pub(crate) fn crash(&mut self) {
        self.elector_dies();
        self.second = None;
        self.life += 1;
        self.runs = false;
        self.published = None;
    }

    /// Ends the task without a notice to its process: other tasks still read the authority that was published
    /// last, and the engine finishes the work under way.
    pub(crate) fn elector_dies(&mut self) {
        (self.machine, self.timer) = (None, None);
    }

    /// Returns the authority that other tasks read: a value with an end.
    pub(crate) fn authority(&self, at: Instant) -> Option<Authority> {
        if self.holds_for_ever() {
            return self.published;
        }
        self.published?.at(self.clock.moment(at))
    }

    fn holds_for_ever(&self) -> bool {
        self.planted.model == Plant::DeathHolds && !self.alive()
    }

    /// Returns the end of that authority, in true time.
    pub(crate) fn authority_ends(&self) -> Option<Instant> {
        let authority = self.published?;
        Some(if self.holds_for_ever() {
            Instant::MAX
        } else {
            self.clock.instant(authority.valid_until)
        })
    }

    /// Returns the token of the authority, ended or not.
    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.published.map(|authority| authority.token)
    }

    /// Returns the nonce of the lease on which the authority is based.
    pub(crate) fn nonce(&self) -> Option<Nonce> {
        self.attempt.as_ref().map(|attempt| attempt.stem.nonce())
    }

    pub(crate) fn event(&mut self, at: Instant, event: Event, rng: &mut fastrand::Rng) -> Vec<Out> {
        let mut out = Vec::new();
        // Orders of the operator reach all locks of a process.
        let to_all = matches!(
            event,
            Event::SpecChanged(_) | Event::StepDown { .. } | Event::Shutdown(_)
        );
        let of_second = (to_all && self.second.is_some()).then(|| event.clone());
        self.feed(at, event, rng, &mut out);
        if let Some(event) = of_second {
            self.feed_second(at, event, rng, &mut out);
        }
        self.fire_second(at, None, rng, &mut out);
        self.settle(at, rng, &mut out);
        out
    }

    /// Handles the time that the last `SleepUntil` named, unless it was replaced.
    pub(crate) fn on_timer(&mut self, at: Instant, due: BootInstant, rng: &mut fastrand::Rng) -> Vec<Out> {
        if self.timer != Some(due) {
            return Vec::new();
        }
        self.timer = None;
        self.event(at, Event::TimerFired, rng)
    }

    /// Handles the timeout of the engine, unless it was replaced.
    pub(crate) fn on_timeout(&mut self, at: Instant, due: BootInstant, rng: &mut fastrand::Rng) -> Vec<Out> {
        let mut out = Vec::new();
        if self.timeout != Some(due) {
            return out;
        }
        self.timeout = None;
        let now = self.clock.moment(at);
        self.calls.retain(|call| call.deadline > now);
        self.engine.handle(Input::Timeout, now);
        self.settle(at, rng, &mut out);
        out
    }

    /// Reports whether a call is sent again with the text of its script: it has no answer, and time is left.
    pub(crate) fn may_repeat(&self, at: Instant, id: TransmitId, connection: u32) -> bool {
        let now = self.clock.moment(at);
        let waits = |call: &Sent| call.id == id && call.connection == connection && now < call.deadline;
        connection > self.lost[id.master] && self.calls.iter().any(waits)
    }

    /// Handles a reply, and returns whether it was waited for.
    pub(crate) fn on_reply(
        &mut self,
        at: Instant,
        (id, connection): (TransmitId, u32),
        result: Result<Reply, Unknown>,
        rng: &mut fastrand::Rng,
    ) -> (bool, Vec<Out>) {
        let mut out = Vec::new();
        let place = self.calls.iter().position(|call| call.id == id);
        let Some(place) = place.filter(|_| connection > self.lost[id.master]) else {
            return (false, out);
        };
        self.calls.swap_remove(place);
        let input = Input::Reply { transmit: id, result };
        self.engine.handle(input, self.clock.moment(at));
        self.settle(at, rng, &mut out);
        (true, out)
    }
}

/// Returns a new engine. Half of the candidates learn the id of the quorum from the masters.
fn engine(size: QuorumSize, keys: &Keyspace, cluster: &ClusterId, (index, named): (u32, Named)) -> Engine {
    let fingerprint = &scripts::fingerprints(size.masters())[named as usize];
    let stored = named == Named::Quorum && index.is_multiple_of(2);
    Engine::new(Config {
        size,
        fingerprint: fingerprint.to_string(),
        quorum: stored.then(scripts::quorum),
        keys: keys.clone(),
        cluster: cluster.clone(),
        longest_lease: fingerprint.longest_lease(),
        acquire_limit: ACQUIRE_LIMIT,
        command_timeout: COMMAND_TIMEOUT,
    })
}
