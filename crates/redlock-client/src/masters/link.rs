//! Owns the connection to one master: sends the script calls that the engine admits and reports their results.
//!
//! Never waits for a connection: a request to a master that is not connected is an unknown vote at once, so
//! reconnecting never slows a round.

mod bounded;
mod connect;
mod convert;
mod frame;
mod keep;
mod messages;
mod notice;
mod paced;
mod renew;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use redis::Cmd;
use redlock_core::{
    Admission, BootInstant, ConnectionId, Ineligible, Keyspace, MasterFacts, QuorumId, Reply, Transmit,
    Unknown, engine::Call, reply::Value, script::Script,
};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use self::connect::Open;
pub(crate) use self::convert::Packed;
#[cfg(test)]
pub(crate) use self::convert::of_library;
pub use self::notice::Notice;
pub(crate) use keep::{Peers, keep};
pub(crate) use renew::Renewer;

use super::{
    access::MasterClient,
    config::ScriptLoading,
    permission::{self, Refusals},
    scripts,
    seal::Sealing,
    shared::Shared,
    status::MasterStatus,
};
use crate::{clock, transport::Transport};

/// Number of requests that the client library queues on one connection.
const PIPELINE: usize = 256;

const URL_CHANGED: &str = "the url of the master changed";

/// Receives the end of a connection.
type Lost = mpsc::Receiver<()>;

/// One of the N Redis servers, as this process reaches it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) keys: Keyspace,
    /// The engine of the quorum.
    pub(crate) quorum: Arc<Shared>,
    /// The engine of the quorum, or that of a separate connection.
    shared: Arc<Shared>,
    scripts: ScriptLoading,
    /// The time until which the master counts as one that refuses writes, in nanoseconds since boot.
    refuses_until: AtomicU64,
    /// Receives the releases that the master publishes. The driver, and not the link, keeps the channel open.
    notices: mpsc::WeakSender<Notice>,
    /// While this mutex is held, no mutex other than that of the engine is locked.
    state: Mutex<State>,
    /// Wakes the poll of the master after a vote of "not sealed" or a request without an answer.
    poke: Notify,
    /// Notifies that the connection was replaced, or must be opened again.
    switched: Notify,
}

/// The address and credentials of a master, which may change while it is in use.
#[derive(Clone)]
pub(crate) struct Dial {
    /// Without credentials.
    url: String,
    client: MasterClient,
    transport: Transport,
    /// Counts the changes.
    version: u32,
    /// Counts the changes that lead to another server.
    server: u32,
}

impl Dial {
    pub(crate) const fn new(url: String, client: MasterClient, transport: Transport) -> Self {
        Self {
            url,
            client,
            transport,
            version: 0,
            server: 0,
        }
    }
}

impl std::fmt::Debug for Dial {
    // The client contains the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.url)
    }
}

#[derive(Debug)]
struct State {
    dial: Dial,
    open: Option<Arc<Open>>,
    /// The number of the last connection.
    connection: u32,
    /// The end of the connection in `open`, which replaced another one that was being kept.
    handed_over: Option<Lost>,
    /// Replaced connections, each with the time until which a request on it may wait for its reply.
    former: Vec<(BootInstant, CancellationToken)>,
    /// The reason why the connection still uses earlier credentials or certificates.
    not_renewed: Option<Unknown>,
    /// The last poll on the present connection that read all facts, and its time.
    whole: Option<(BootInstant, MasterFacts)>,
    /// The scripts that were refused on the present connection.
    refusals: Refusals,
    /// The progress of the seal, while this process seals the master.
    sealing: Option<Sealing>,
}

impl State {
    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            open.closed.cancel();
        }
        self.former.drain(..).for_each(|(_, closed)| closed.cancel());
    }
}

/// The result of a call outside of a batch.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) reply: Result<Reply, Unknown>,
    pub(crate) received: BootInstant,
    /// `None` if the call was not sent.
    call: Option<Call>,
}

impl Link {
    pub(crate) fn new(
        (index, name): (usize, String),
        dial: Dial,
        keys: Keyspace,
        quorum: &Arc<Shared>,
        notices: mpsc::WeakSender<Notice>,
        scripts: ScriptLoading,
    ) -> Self {
        Self {
            index,
            name,
            keys,
            quorum: quorum.clone(),
            shared: quorum.clone(),
            notices,
            scripts,
            refuses_until: AtomicU64::new(0),
            state: Mutex::new(State {
                dial,
                open: None,
                connection: 0,
                handed_over: None,
                former: Vec::new(),
                not_renewed: None,
                whole: None,
                refusals: Refusals::default(),
                sealing: None,
            }),
            poke: Notify::new(),
            switched: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that panics runs under this lock; a poisoned one still holds consistent values.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the timeout of the next command.
    pub(crate) fn command_timeout(&self) -> Duration {
        self.shared.command_timeout()
    }

    pub(crate) fn status(&self) -> MasterStatus {
        let (view, clock_offset_seconds, now) = self.shared.read(|engine, now| {
            let offset = engine.clocks().seconds(self.index, now, clock::unix_time());
            (engine.master(self.index, now), offset, now)
        });
        let state = self.state();
        MasterStatus {
            name: self.name.clone(),
            url: state.dial.url.clone(),
            connected: view.connected,
            facts: view.facts,
            ineligible: view.ineligible,
            trouble: view.trouble,
            not_permitted: state.refusals.permission().cloned(),
            refused_write: state.refusals.write(now).cloned(),
            not_renewed: state.not_renewed.clone(),
            sealing_left: state.sealing.as_ref().map(|sealing| sealing.until.left(now)),
            seal_blocked: state.sealing.as_ref().and_then(|sealing| sealing.blocked.clone()),
            latency: view.latency,
            clock_offset_seconds,
            no_vote: view.no_vote,
        }
    }

    pub(crate) fn votes(&self) -> bool {
        self.shared.read(|engine, now| engine.votes(self.index, now))
    }

    /// Reports whether the master refused a write, and no later one succeeded.
    pub(crate) fn refuses_writes(&self, now: BootInstant) -> bool {
        now.as_nanos() < self.refuses_until.load(Relaxed)
    }

    /// Returns the reason why a server with these facts may not vote as this master.
    pub(crate) fn judge(&self, facts: &MasterFacts) -> Option<Ineligible> {
        self.quorum.read(|engine, _| engine.judge(facts))
    }

    /// Returns the url, without credentials.
    pub(crate) fn url(&self) -> String {
        self.state().dial.url.clone()
    }

    pub(crate) fn transport(&self) -> Transport {
        self.state().dial.transport.clone()
    }

    pub(crate) fn set_sealing(&self, sealing: Option<Sealing>) {
        self.state().sealing = sealing;
    }

    /// Returns the facts of the last poll on this connection.
    pub(crate) fn known(&self) -> Option<MasterFacts> {
        self.shared.read(|engine, _| engine.facts(self.index).cloned())
    }

    pub(crate) fn fingerprint(&self) -> String {
        self.quorum
            .read(|engine, _| engine.identity().fingerprint().to_owned())
    }

    pub(crate) fn quorum_id(&self) -> Option<QuorumId> {
        self.quorum.read(|engine, _| engine.identity().id().cloned())
    }

    /// Polls the master again soon, outside the regular interval.
    pub(crate) fn poke(&self) {
        self.poke.notify_one();
    }

    /// Sends one script call and waits for the reply, for at most `deadline`. `fill` appends keys and
    /// arguments, and receives `not_after` (microseconds of the master's TIME).
    pub(crate) async fn call(
        &self,
        script: &'static Script,
        admission: Admission,
        deadline: Duration,
        fill: impl Fn(&mut Cmd, u64),
    ) -> Exchange {
        let (begun, received) = self.shared.update(|engine, now| {
            let call = engine.begin_call(self.index, admission, deadline, now);
            (call, now)
        });
        let call = match begun {
            Ok(call) => call,
            Err(unknown) => {
                return Exchange {
                    reply: Err(unknown),
                    received,
                    call: None,
                };
            }
        };
        let until = received + deadline;
        let sending = self.send((call.connection, until), script, |command| {
            fill(command, call.not_after)
        });
        let result = tokio::time::timeout(deadline, sending).await;
        let result = result.unwrap_or(Err(Unknown::TimedOut(deadline.as_millis())));
        self.shared.update(|engine, received| Exchange {
            reply: engine.finish_call(self.index, &call, result, received).reply,
            received,
            call: Some(call),
        })
    }

    /// Sends a call of a batch and waits for the reply. The engine enforces the deadline.
    pub(super) async fn transmit(&self, transmit: &Transmit) -> Result<Reply, Unknown> {
        let until = (transmit.connection, transmit.deadline);
        self.send(until, transmit.payload.script(), |command| {
            transmit.write(&mut Packed(command));
        })
        .await
    }

    /// Sends a script call and waits for the reply until the connection is closed.
    async fn send(
        &self,
        (connection, deadline): (ConnectionId, BootInstant),
        script: &'static Script,
        fill: impl Fn(&mut Cmd),
    ) -> Result<Reply, Unknown> {
        let closed = || Unknown::NotConnected("the connection was closed".into());
        let open = self.state().open.clone().filter(|open| open.id == connection);
        let Some(open) = open else {
            return Err(closed());
        };
        let lists = open.bounds.request(script);
        let reply = tokio::select! {
            biased;
            reply = run(&open, (deadline, self.scripts), script, fill) => reply,
            () = open.closed.cancelled() => return Err(closed()),
        };
        if lists {
            open.bounds.answered();
        }
        let reply = reply.map_err(|unknown| open.bounds.refused().unwrap_or(unknown));
        let reply = reply.map_err(|unknown| permission::explained(unknown, Some(script), &self.keys));
        let mut state = self.state();
        state.refusals.note(script, &reply, clock::now());
        let until = state.refusals.write_until();
        self.refuses_until
            .store(until.map_or(0, BootInstant::as_nanos), Relaxed);
        drop(state);
        reply.and_then(Reply::parse)
    }
}

/// Runs a script on a connection.
async fn run(
    open: &Open,
    (deadline, loading): (BootInstant, ScriptLoading),
    script: &'static Script,
    fill: impl Fn(&mut Cmd),
) -> Result<Value, Unknown> {
    let command = |verb: &str, body: &str| {
        let mut command = redis::cmd(verb);
        command.arg(body);
        fill(&mut command);
        command
    };
    let ran = || open.ran.lock().unwrap_or_else(PoisonError::into_inner);
    let before = ran().contains(script.name);
    let (verb, body) = scripts::call(script, before || loading == ScriptLoading::ByHash);
    let first = command(verb, body);
    let reply = convert::value(open.connection.clone().send_packed_command(&first).await);
    if reply.is_ok() && !before {
        ran().insert(script.name);
    }
    let unknown = match reply {
        // The retry belongs to the same attempt: only this master had forgotten the script. After the
        // deadline, the undo of the attempt may already be sent, and must run after every call of the
        // attempt (P-20).
        Err(unknown) if unknown.is_no_script() && clock::now() < deadline => unknown,
        reply => return reply,
    };
    let again = command("EVAL", &script.source);
    let reply = convert::value(open.connection.clone().send_packed_command(&again).await);
    match reply {
        // The user relies on others, which will have loaded the script soon.
        Err(refused) if loading == ScriptLoading::ByHash && refused.is_no_permission() => Err(unknown),
        reply => reply,
    }
}
