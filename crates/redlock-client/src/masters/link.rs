//! The connection to one master: what it may be asked, and with which `not_after`.
//!
//! Owns the connection's incarnations. Refuses to wait for one: a request to a master that is not connected is an
//! unknown vote at once, so reconnecting never slows a round.

mod keep;
mod renew;
mod state;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use redis::{Cmd, Value};
use tokio::sync::{Notify, Semaphore};

pub use keep::Notice;
pub(crate) use keep::{Peers, Servers, keep};
pub(crate) use renew::Renewer;
pub(crate) use state::Admission;
pub(crate) use state::Dial;
pub use state::MasterStatus;
use state::{Clock, Open, State};

use super::{
    clocks::SharedClocks,
    gate::{self, Unfit},
    identity::Identity,
    keys::Keyspace,
    look::Facts,
    permission::{self, Refusals},
    reply::{Code, Reply},
    scripts::Script,
    seal::Sealing,
    timeout::CommandTimeout,
    unknown::Unknown,
};
use crate::{
    clock,
    lease::{Judgement, Moment, Sample},
};

/// More requests than a healthy master ever has under way; beyond it a hung one would only fill memory.
const UNDER_WAY: usize = 256;

const URL_CHANGED: &str = "its url changed";

/// One Redis server of the N, as seen from here.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) keys: Keyspace,
    pub(crate) identity: Arc<Identity>,
    command_timeout: CommandTimeout,
    clocks: Arc<SharedClocks>,
    state: Mutex<State>,
    under_way: Arc<Semaphore>,
    /// Rings when the connection should be looked at now: a vote said "not sealed", or a request got no answer.
    poke: Notify,
    /// Rings when the connection was replaced, or is to be.
    switched: Notify,
}

/// What came of one request to one master.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) reply: Result<Reply, Unknown>,
    /// What was answered where a clock step alone makes the votes unknown. Refusals to renew count all the same: they
    /// can only end authority.
    pub(crate) doubted: Option<Reply>,
    /// The connection that it was sent on; 0 if it was not sent.
    pub(crate) incarnation: u32,
    pub(crate) received: Moment,
    pub(crate) took: Duration,
}

impl Link {
    pub(crate) fn new(
        index: usize,
        name: String,
        dial: Dial,
        keys: Keyspace,
        identity: Arc<Identity>,
        command_timeout: CommandTimeout,
        clocks: Arc<SharedClocks>,
    ) -> Self {
        Self {
            index,
            name,
            keys,
            identity,
            command_timeout,
            state: Mutex::new(State {
                dial,
                open: None,
                handed_over: None,
                not_renewed: None,
                retired: None,
                incarnation: 0,
                facts: None,
                looked: Moment::default(),
                unfit: None,
                duplicate: false,
                trouble: None,
                refusals: Refusals::default(),
                told: String::new(),
                silent: false,
                sealing: None,
                clock: Clock {
                    index,
                    clocks: clocks.clone(),
                },
                latency: Duration::ZERO,
                answered: Moment::default(),
            }),
            clocks,
            under_way: Arc::new(Semaphore::new(UNDER_WAY)),
            poke: Notify::new(),
            switched: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that panics runs under this lock; a poisoned one still holds consistent values.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the next command.
    pub(crate) fn command_timeout(&self) -> Duration {
        self.command_timeout.get()
    }

    pub(crate) fn status(&self) -> MasterStatus {
        let now = clock::now();
        let state = self.state();
        // In a statement of its own: within the value below, its guard would live until `admitted` locks the clocks again.
        let clock_offset_seconds = self.clocks.get().seconds(self.index, now, clock::unix_time());
        MasterStatus {
            name: self.name.clone(),
            url: state.dial.url.clone(),
            connected: state.open.is_some(),
            facts: state.facts.clone(),
            unfit: state.unfit(now),
            trouble: state.trouble.clone(),
            not_permitted: state.refusals.first().cloned(),
            not_renewed: state.not_renewed.clone(),
            sealing_left: state.sealing.map(|sealing| sealing.until.left(now)),
            seal_blocked: state.sealing.and_then(|sealing| sealing.blocked),
            latency: state.latency,
            clock_offset_seconds,
            no_vote: self.admitted(&state, Admission::Voting, now).err(),
        }
    }

    pub(crate) fn votes(&self) -> bool {
        let state = self.state();
        self.admitted(&state, Admission::Voting, clock::now()).is_ok()
    }

    fn admitted(&self, state: &State, admission: Admission, now: Moment) -> Result<Open, Unknown> {
        let open = state.admitted(admission, now)?;
        if admission == Admission::Voting && self.identity.id().is_none() {
            return Err(Unknown::QuorumUnknown);
        }
        Ok(open)
    }

    /// Why a server that gave these facts may not vote as this master.
    pub(crate) fn judge(&self, facts: &Facts) -> Option<Unfit> {
        gate::check(facts, self.identity.fingerprint(), self.identity.id())
    }

    /// Judges the last look again, after the quorum id became known.
    pub(crate) fn judge_again(&self) {
        let mut state = self.state();
        if let Some(facts) = &state.facts {
            state.unfit = self.judge(facts);
        }
    }

    /// Without credentials.
    pub(crate) fn url(&self) -> String {
        self.state().dial.url.clone()
    }

    pub(crate) fn set_duplicate(&self, duplicate: bool) {
        self.state().duplicate = duplicate;
    }

    pub(crate) fn set_sealing(&self, sealing: Option<Sealing>) {
        self.state().sealing = sealing;
    }

    /// What the last look on this connection gave.
    pub(crate) fn known(&self) -> Option<Facts> {
        let state = self.state();
        state.open.as_ref().and(state.facts.clone())
    }

    /// Looks at the master again soon, outside the regular interval.
    pub(crate) fn poke(&self) {
        self.poke.notify_one();
    }

    /// Sends one script call and waits for the reply, at most `deadline`. `fill` appends keys and arguments and is
    /// given `not_after` (microseconds of the master's TIME).
    pub(crate) async fn call(
        &self,
        script: &Script,
        admission: Admission,
        deadline: Duration,
        fill: impl Fn(&mut Cmd, u64),
    ) -> Exchange {
        self.call_until(script, admission, deadline, tokio::time::sleep(deadline), fill)
            .await
    }

    /// The same, with the end of the `deadline` told by `over`: many calls can share one timer.
    pub(crate) async fn call_until(
        &self,
        script: &Script,
        admission: Admission,
        deadline: Duration,
        over: impl Future<Output = ()>,
        fill: impl Fn(&mut Cmd, u64),
    ) -> Exchange {
        let sent = clock::now();
        let unsent = |unknown| Exchange {
            reply: Err(unknown),
            doubted: None,
            incarnation: 0,
            received: sent,
            took: Duration::ZERO,
        };
        let (mut open, not_after) = {
            let state = self.state();
            match self.admitted(&state, admission, sent) {
                Ok(open) => (open, state.clock.not_after(sent, deadline)),
                Err(unknown) => return unsent(unknown),
            }
        };
        let Ok(permit) = self.under_way.clone().try_acquire_owned() else {
            return unsent(Unknown::Congested);
        };
        let exchange = async {
            let command = |verb: &str, body: &str| {
                let mut command = redis::cmd(verb);
                command.arg(body);
                fill(&mut command, not_after);
                command
            };
            let ran = || open.ran.lock().unwrap_or_else(PoisonError::into_inner);
            let (verb, body) = script.call(ran().contains(script.name));
            let first = command(verb, body);
            let reply = value(open.connection.clone().send_packed_command(&first).await);
            if reply.is_ok() {
                ran().insert(script.name);
            }
            match reply {
                // The same attempt: only this master had forgotten the script.
                Err(unknown) if unknown.is_no_script() => value(
                    open.connection
                        .send_packed_command(&command("EVAL", &script.source))
                        .await,
                ),
                reply => reply,
            }
        };
        let result = tokio::select! {
            // A reply that is there counts, however late this task was woken; `received` says how late.
            biased;
            reply = exchange => Some(reply),
            () = over => None,
        };
        drop(permit);
        let received = clock::now();
        let reply = match result {
            Some(reply) => {
                let explained = |unknown| permission::explained(unknown, Some(script), &self.keys);
                let reply = reply.map_err(explained);
                self.state().refusals.note(script, &reply);
                reply.and_then(Reply::parse)
            }
            None => {
                // A deadline cut short by the limit of an attempt says nothing against the master.
                if deadline >= self.command_timeout() {
                    self.state().silent_since(sent);
                }
                Err(Unknown::TimedOut(deadline.as_millis()))
            }
        };
        // A server that answers a look with an error says the same again a moment later.
        if let Err(unknown) = &reply
            && (admission == Admission::Voting || !unknown.is_of_server())
        {
            self.poke();
        }
        let (reply, doubted) = self.note(admission, reply, open.server, sent, received);
        Exchange {
            reply,
            doubted,
            incarnation: open.incarnation,
            received,
            took: received.since(sent),
        }
    }

    /// Learns from a reply: the clock, whether it is sealed, that it answers. Returns also the reply that is not counted
    /// because of a clock alone.
    fn note(
        &self,
        admission: Admission,
        reply: Result<Reply, Unknown>,
        server: u32,
        sent: Moment,
        received: Moment,
    ) -> (Result<Reply, Unknown>, Option<Reply>) {
        let mut state = self.state();
        if server != state.dial.server {
            // Its vote was a vote then. It says nothing of the server that took its place.
            return (reply.and(Err(Unknown::NotConnected(URL_CHANGED.into()))), None);
        }
        if reply.as_ref().map_or_else(Unknown::is_of_server, |_| true) {
            state.answered = received;
            state.silent = false;
        }
        let reply = match reply {
            Ok(reply) => reply,
            Err(unknown) => return (Err(unknown), None),
        };
        state.latency = received.since(sent);
        let sample = Sample {
            master: reply.time,
            sent,
            received,
        };
        let step = self.judge_clock(sample);
        // The vote that shows a step was given by the clock that stepped. Nor do those count that were asked for
        // before anything else was learned against this master.
        let unfit = state.unfit(received);
        if admission == Admission::Voting && (step.is_some() || unfit.is_some()) {
            let of_a_clock = matches!(unfit, None | Some(Unfit::ClockStep(_)));
            let doubted = (of_a_clock && reply.code == Code::Ok).then_some(reply);
            let unfit = unfit.map(|unfit| Unknown::Unfit(unfit.to_string()));
            return (Err(unfit.or(step).unwrap_or(Unknown::LocalClock)), doubted);
        }
        let unknown = match reply.code {
            Code::Ok | Code::Other(_) => return (Ok(reply), None),
            Code::Unsealed => Unknown::NotSealed,
            Code::Foreign => Unknown::OtherFingerprint,
            Code::Late => return (Err(Unknown::TooLate), None),
        };
        drop(state);
        self.poke();
        (Err(unknown), None)
    }

    /// Why the votes of a reply do not count, if it shows that a clock stepped.
    fn judge_clock(&self, sample: Sample) -> Option<Unknown> {
        match self.clocks.sample(self.index, sample) {
            Judgement::Steady => return None,
            Judgement::Explained => {}
            Judgement::MasterStepped => tracing::warn!(
                master = self.name,
                "clock of the master stepped, it does not count for now"
            ),
            Judgement::LocalStepped => tracing::warn!(
                master = self.name,
                "the clock of this machine stepped or stood still: all leases are given up and acquired anew"
            ),
        }
        Some(Unknown::LocalClock)
    }
}

/// The client library gives an error of the server either way.
fn value(result: redis::RedisResult<Value>) -> Result<Value, Unknown> {
    match result {
        Ok(Value::ServerError(e)) => Err(Unknown::server(e.code(), e.details().unwrap_or_default())),
        Ok(value) => Ok(value),
        Err(e) => Err(Unknown::of(&e)),
    }
}

#[cfg(test)]
mod tests;
