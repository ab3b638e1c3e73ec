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
pub(crate) use keep::{Peers, RunIds, keep};
pub(crate) use renew::Renewer;
pub(crate) use state::Admission;
pub(crate) use state::Dial;
pub use state::MasterStatus;
use state::{Open, State};

use super::{
    keys::Keyspace,
    look::Facts,
    offset::{Offset, Sample},
    reply::{Code, Reply},
    scripts::{LOOK, Script},
    seal::Sealing,
    timeout::CommandTimeout,
    unknown::Unknown,
};
use crate::{clock, lease::Moment};

/// More requests than a healthy master ever has under way; beyond it a hung one would only fill memory.
const UNDER_WAY: usize = 256;

const URL_CHANGED: &str = "its url changed";

/// One Redis server of the N, as seen from here.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) keys: Keyspace,
    pub(crate) fingerprint: String,
    command_timeout: CommandTimeout,
    longest_lease: Duration,
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
        fingerprint: String,
        command_timeout: CommandTimeout,
        longest_lease: Duration,
    ) -> Self {
        Self {
            index,
            name,
            keys,
            fingerprint,
            command_timeout,
            longest_lease,
            state: Mutex::new(State {
                dial,
                open: None,
                handed_over: None,
                not_renewed: None,
                retired: None,
                incarnation: 0,
                facts: None,
                unfit: None,
                duplicate: false,
                trouble: None,
                told: String::new(),
                silent: false,
                sealing: None,
                offset: Offset::new(longest_lease),
                latency: Duration::ZERO,
                answered: Moment::default(),
            }),
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
        MasterStatus {
            name: self.name.clone(),
            url: state.dial.url.clone(),
            connected: state.open.is_some(),
            facts: state.facts.clone(),
            unfit: state.unfit(now),
            trouble: state.trouble.clone(),
            not_renewed: state.not_renewed.clone(),
            sealing_left: state.sealing.map(|sealing| sealing.until.left(now)),
            seal_blocked: state.sealing.and_then(|sealing| sealing.blocked),
            latency: state.latency,
            clock_offset_seconds: state.offset.seconds(now, clock::unix_time()),
            no_vote: state.admitted(Admission::Voting, now).err(),
        }
    }

    pub(crate) fn votes(&self) -> bool {
        self.state().admitted(Admission::Voting, clock::now()).is_ok()
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
            incarnation: 0,
            received: sent,
            took: Duration::ZERO,
        };
        let (mut open, not_after) = {
            let state = self.state();
            match state.admitted(admission, sent) {
                Ok(open) => (open, state.offset.not_after(sent, deadline).unwrap_or(0)),
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
            Some(reply) => reply.and_then(Reply::parse),
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
        let reply = self.note(admission, reply, open.server, sent, received);
        Exchange {
            reply,
            incarnation: open.incarnation,
            received,
            took: received.since(sent),
        }
    }

    /// Learns from a reply: the clock, whether it is sealed, that it answers.
    fn note(
        &self,
        admission: Admission,
        reply: Result<Reply, Unknown>,
        server: u32,
        sent: Moment,
        received: Moment,
    ) -> Result<Reply, Unknown> {
        let mut state = self.state();
        if server != state.dial.server {
            // Its vote was a vote then. It says nothing of the server that took its place.
            return reply.and(Err(Unknown::NotConnected(URL_CHANGED.into())));
        }
        if reply.as_ref().map_or_else(Unknown::is_of_server, |_| true) {
            state.answered = received;
            state.silent = false;
        }
        let reply = reply?;
        state.latency = received.since(sent);
        if state.offset.sample(Sample {
            master: reply.time,
            sent,
            received,
        }) {
            tracing::warn!(
                master = self.name,
                "clock of the master stepped, it does not count for now"
            );
        }
        // The vote that shows a step was given by the clock that stepped. Nor do those count that were asked for
        // before anything else was learned against this master.
        if admission == Admission::Voting
            && let Some(unfit) = state.unfit(received)
        {
            return Err(Unknown::Unfit(unfit.to_string()));
        }
        let unknown = match reply.code {
            Code::Ok | Code::Other(_) => return Ok(reply),
            Code::Unsealed => Unknown::NotSealed,
            Code::Foreign => Unknown::OtherFingerprint,
            Code::Late => return Err(Unknown::TooLate),
        };
        drop(state);
        self.poke();
        Err(unknown)
    }

    /// Asks the master about itself.
    pub(crate) async fn look(&self) -> Result<Facts, Unknown> {
        let server = self.state().dial.server;
        let ask = |keys: &'static [fn(&Keyspace) -> &str]| {
            self.call(
                &LOOK,
                Admission::Connected,
                self.command_timeout(),
                |command, _| {
                    command.arg(keys.len());
                    keys.iter().for_each(|key| _ = command.arg(key(&self.keys)));
                },
            )
        };
        let mut reply = ask(&[|keys| &keys.meta, |keys| &keys.probe]).await.reply;
        // In cluster mode the keys are elsewhere, or apart: it still says what it is, and is refused by that name.
        if reply.as_ref().is_err_and(Unknown::is_of_a_cluster) {
            reply = ask(&[]).await.reply;
        }
        let reply = reply?;
        let mut facts = Facts::parse(reply.counter, &reply.items)?;
        self.recall_retirement(&mut facts, server);
        Ok(facts)
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
