//! What is known of one master, and whether it may be asked.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use redis::{PushInfo, aio::MultiplexedConnection};
use tokio::sync::mpsc;

use crate::{
    lease::Moment,
    masters::{
        clocks::SharedClocks,
        gate::Unfit,
        look::Facts,
        permission::Refusals,
        seal::{Blocked, Sealing},
        unknown::Unknown,
    },
};

/// A master is looked at every second; facts that are older than this give it no vote.
const FACTS_LAST: Duration = Duration::from_secs(3);

/// Whom a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Only if this master may vote.
    Voting,
    /// Whenever it is connected: clean-up, looks, seals.
    Connected,
}

/// How a master is reached; changes while it is in use.
#[derive(Clone)]
pub(crate) struct Dial {
    /// Without credentials.
    pub(super) url: String,
    pub(super) client: redis::Client,
    /// Counts the changes.
    pub(super) version: u32,
    /// Counts those that lead to another server.
    pub(super) server: u32,
}

impl Dial {
    pub(crate) fn new(url: String, client: redis::Client) -> Self {
        Self {
            url,
            client,
            version: 0,
            server: 0,
        }
    }
}

impl std::fmt::Debug for Dial {
    // The client knows the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.url)
    }
}

/// What a server says without being asked.
pub(super) type Pushes = mpsc::UnboundedReceiver<PushInfo>;

#[derive(Debug)]
pub(super) struct State {
    pub(super) dial: Dial,
    pub(super) open: Option<Open>,
    /// Of the connection in `open`, which took the place of another one while that was listened to.
    pub(super) handed_over: Option<Pushes>,
    /// Why the connection still stands under earlier credentials or certificates.
    pub(super) not_renewed: Option<Unknown>,
    /// What the server behind the present url said when it was retired.
    pub(super) retired: Option<String>,
    pub(super) incarnation: u32,
    pub(super) facts: Option<Facts>,
    /// When the facts were learned.
    pub(super) looked: Moment,
    pub(super) unfit: Option<Unfit>,
    pub(super) duplicate: bool,
    pub(super) trouble: Option<Unknown>,
    /// Of the scripts on the present connection.
    pub(super) refusals: Refusals,
    /// What was last logged and noticed of it.
    pub(super) told: String,
    /// While a process seals it: how far it is.
    pub(super) sealing: Option<Sealing>,
    pub(super) clock: Clock,
    pub(super) latency: Duration,
    pub(super) answered: Moment,
    /// It left a request unanswered for a whole command timeout, and has not answered since. Nothing that needs its
    /// vote is asked of it then: a round that waits for it holds what it was granted elsewhere in everybody's way, and
    /// with one of three masters hung, several candidates could do so in turn for seconds. Looks go on.
    pub(super) silent: bool,
}

/// The clock of one master.
#[derive(Debug)]
pub(super) struct Clock {
    pub(super) index: usize,
    pub(super) clocks: Arc<SharedClocks>,
}

impl Clock {
    fn distrusted(&self, now: Moment) -> Option<Duration> {
        self.clocks.get().distrusted(self.index, now)
    }

    /// In microseconds; 0, which is too late for everything, before anything is known.
    pub(super) fn not_after(&self, now: Moment, deadline: Duration) -> u64 {
        let clocks = self.clocks.get();
        clocks.not_after(self.index, now, deadline).unwrap_or(0)
    }

    pub(super) fn forget(&self) {
        self.clocks.get().forget(self.index);
    }
}

#[derive(Clone)]
pub(super) struct Open {
    pub(super) connection: MultiplexedConnection,
    pub(super) incarnation: u32,
    /// Of the dial that it was opened by.
    pub(super) version: u32,
    pub(super) server: u32,
    /// The scripts that ran here. Others go with their source: what is sent after a NOSCRIPT would overtake the retry.
    pub(super) ran: Arc<Mutex<BTreeSet<&'static str>>>,
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "connection {}", self.incarnation)
    }
}

/// A master's state for people and metrics.
#[derive(Clone, Debug)]
pub struct MasterStatus {
    pub name: String,
    pub url: String,
    pub connected: bool,
    pub facts: Option<Facts>,
    /// Why it has no vote although it answers.
    pub unfit: Option<Unfit>,
    /// The last error, while it is not connected.
    pub trouble: Option<Unknown>,
    /// What it did not permit when a script ran there last: no vote is won at it by that script.
    pub not_permitted: Option<Unknown>,
    /// Why it does not take the new credentials or certificates; the connection goes on under those before.
    pub not_renewed: Option<Unknown>,
    /// While this process is about to seal it: how long it still waits.
    pub sealing_left: Option<Duration>,
    /// Why it cannot be sealed, whatever the wait.
    pub seal_blocked: Option<Blocked>,
    pub latency: Duration,
    pub clock_offset_seconds: Option<f64>,
    /// Why it is not asked for votes; none if it is.
    pub no_vote: Option<Unknown>,
}

impl MasterStatus {
    /// Whether its votes count.
    #[must_use]
    pub const fn votes(&self) -> bool {
        self.no_vote.is_none()
    }

    /// Whether it votes, and permits every script that was run there.
    #[must_use]
    pub const fn grants(&self) -> bool {
        self.votes() && self.not_permitted.is_none()
    }
}

impl State {
    pub(super) fn unfit(&self, now: Moment) -> Option<Unfit> {
        if self.duplicate {
            return Some(Unfit::Duplicate);
        }
        let step = || {
            self.clock
                .distrusted(now)
                .map(|left| Unfit::ClockStep(left.as_secs() + 1))
        };
        self.unfit.clone().or_else(step)
    }

    /// The task that looks at the master hangs, or this process stood still: what is known of it may have changed.
    pub(super) fn is_stale(&self, now: Moment) -> bool {
        now.since(self.looked) > FACTS_LAST
    }

    /// A request sent at `sent` was not answered in time.
    pub(super) fn silent_since(&mut self, sent: Moment) {
        self.silent = self.answered <= sent;
    }

    pub(super) fn admitted(&self, admission: Admission, now: Moment) -> Result<Open, Unknown> {
        let Some(open) = &self.open else {
            let why = self
                .trouble
                .as_ref()
                .map_or("connecting".to_owned(), ToString::to_string);
            return Err(Unknown::NotConnected(why));
        };
        if admission == Admission::Voting {
            self.may_vote(now)?;
        }
        Ok(open.clone())
    }

    /// By what is known of the master, whether or not it is connected.
    pub(super) fn may_vote(&self, now: Moment) -> Result<(), Unknown> {
        if self.silent {
            return Err(Unknown::Silent);
        }
        if let Some(unfit) = self.unfit(now) {
            return Err(Unknown::Unfit(unfit.to_string()));
        }
        let Some(facts) = &self.facts else {
            // Not sealed is what a look showed. Without one, it is what came in its way.
            let connecting = || Unknown::NotConnected("connecting".into());
            return Err(self.trouble.clone().unwrap_or_else(connecting));
        };
        if !facts.sealed() {
            return Err(Unknown::NotSealed);
        }
        if self.is_stale(now) {
            return Err(self.trouble.clone().unwrap_or(Unknown::NotLookedAt));
        }
        Ok(())
    }
}
