//! Keeps one master connected: opens, polls, receives releases, gives up a silent connection, retries.

use std::{sync::Arc, time::Duration};

use redis::{AsyncConnectionConfig, PushInfo, PushKind, Value, aio::SendError};
use redlock_core::{Admission, ConnectionId, Input, Keyspace, LockName, MasterFacts, Unknown, script::FACTS};
use tokio::{
    sync::{Notify, mpsc},
    time,
};

use super::{
    Link, Lost, Notice, Open, URL_CHANGED, bounded::ReplyBounds, connect::connect, convert,
    renew::NextConnection,
};
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    masters::permission::{self, Refusals},
};

/// The interval of polls while the master is in use.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The minimum interval of polls on request: a burst of votes without a seal causes one poll.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The interval of polls that read all facts. A policy that evicts shows in every poll, by the evicted keys.
const FULL_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The interval at which the script of the node agents is run: a cache may be flushed at any time.
const KEEP_SCRIPT: Duration = Duration::from_secs(10);
/// The time without any answer after which a connection is dead or black-holed. Shorter than TCP's own
/// detection by retransmission, and longer than the pause of a busy server.
const SILENT: Duration = Duration::from_secs(2);
/// The first wait between two connection attempts; it doubles up to [`LAST_RETRY`], with jitter.
const FIRST_RETRY: Duration = Duration::from_millis(20);
const LAST_RETRY: Duration = Duration::from_secs(1);

/// The dependencies of `keep` in addition to its own link.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    pub(crate) links: Arc<[Arc<Link>]>,
    /// Notifies that a connection was opened with earlier credentials.
    pub(crate) outdated: Arc<Notify>,
    /// Whether to keep the script of the node agents in the caches of the servers.
    pub(crate) keeps_scripts: bool,
}

/// Runs until it is cancelled.
pub(crate) async fn keep(link: Arc<Link>, peers: Peers) {
    let mut retry = FIRST_RETRY;
    let mut trouble = None;
    loop {
        match open(&link).await {
            Ok(mut lost) => {
                if link.outdated() {
                    peers.outdated.notify_one();
                }
                let mut useful = false;
                let refused = loop {
                    useful |= serve(&link, lost, peers.keeps_scripts, &mut trouble).await;
                    match link.next() {
                        NextConnection::Successor(successor) => lost = successor,
                        NextConnection::Refused(reason) => break Some(reason),
                        NextConnection::Closed => {
                            if useful {
                                retry = FIRST_RETRY;
                            }
                            break None;
                        }
                    }
                };
                // The wait before the next attempt continues to grow: a hostile master costs one attempt a second.
                if let Some(reason) = refused {
                    unreachable(&link, reason, &mut trouble);
                }
            }
            Err(reason) => unreachable(&link, reason, &mut trouble),
        }
        tokio::select! {
            () = time::sleep(retry.mul_f64(0.5 + fastrand::f64())) => {}
            // The obstacle may be gone.
            () = link.switched.notified() => {}
        }
        retry = (retry * 2).min(LAST_RETRY);
    }
}

/// Reports why there is no connection, once for each reason.
fn unreachable(link: &Link, reason: Unknown, trouble: &mut Option<Unknown>) {
    if trouble.as_ref() != Some(&reason) {
        let url = link.url();
        tracing::warn!(master = link.name, url, error = %reason, "master cannot be reached");
        *trouble = Some(reason.clone());
    }
    let master = link.index;
    link.shared.handle(Input::Unreachable { master, reason });
}

impl Link {
    /// Reads the facts of the master.
    pub(crate) async fn read_facts(&self) -> Result<MasterFacts, Unknown> {
        let (_, facts) = self.inspect().await?;
        Ok(facts)
    }

    /// Reads the facts, and returns them with the connection that was used.
    async fn inspect(&self) -> Result<(ConnectionId, MasterFacts), Unknown> {
        let whole = self.whole_facts();
        let process = whole.as_ref().map_or("", |facts| &*facts.replication_id);
        let ask = |keys: &'static [fn(&Keyspace) -> &str]| {
            self.call(
                &FACTS,
                Admission::Connected,
                self.command_timeout(),
                |command, _| {
                    command.arg(keys.len());
                    keys.iter().for_each(|key| _ = command.arg(key(&self.keys)));
                    command.arg(process);
                    command.arg(process);
                },
            )
        };
        let mut exchange = ask(&[|keys| &keys.meta, |keys| &keys.probe]).await;
        // In cluster mode, the keys are on other servers or in different slots. The server still reports its
        // mode, and is refused by that name.
        if exchange.reply.as_ref().is_err_and(Unknown::is_of_a_cluster) {
            exchange = ask(&[]).await;
        }
        let parsed = exchange
            .reply
            .and_then(|reply| MasterFacts::parse(reply.counter, &reply.items, whole.as_ref()));
        let mut facts = match parsed {
            Ok(facts) => facts,
            Err(unknown) => return self.refused_by_name(unknown).await,
        };
        if process.is_empty() || process != facts.replication_id {
            let now = exchange.received;
            self.state().whole = Some((now, facts.clone()));
        }
        let mut connection = ConnectionId::default();
        if let Some(call) = exchange.call {
            connection = call.connection;
            self.shared
                .update(|engine, _| engine.recall_retirement(self.index, &call, &mut facts));
        }
        Ok((connection, facts))
    }

    /// Checks whether a program that does not run the script is refused by its name. If the name cannot be
    /// read, the error is returned unchanged: without a name, no server is refused.
    async fn refused_by_name(&self, unknown: Unknown) -> Result<(ConnectionId, MasterFacts), Unknown> {
        let open = self.state().open.clone();
        let (Some(open), true) = (open, unknown.may_be_of_another_program()) else {
            return Err(unknown);
        };
        let mut connection = open.connection.clone();
        let mut command = redis::cmd("INFO");
        let asked = command.arg("server").query_async::<String>(&mut connection);
        match time::timeout(self.command_timeout(), asked).await {
            Ok(Ok(info)) => MasterFacts::refused(&info)
                .map(|facts| (open.id, facts))
                .ok_or(unknown),
            Ok(Err(_)) | Err(_) => Err(unknown),
        }
    }

    /// Returns the facts that a brief poll may omit while it finds the same process.
    fn whole_facts(&self) -> Option<MasterFacts> {
        let state = self.state();
        let (at, facts) = state.whole.as_ref()?;
        (clock::now().since(*at) < FULL_POLL_INTERVAL).then(|| facts.clone())
    }

    /// Reads the facts once, on a connection that only the caller keeps.
    pub(in crate::masters) async fn inspect_once(&self) -> Result<MasterFacts, Unknown> {
        open(self).await?;
        self.read_facts().await
    }
}

pub(super) async fn open(link: &Link) -> Result<Lost, Unknown> {
    // The end of a connection is published once.
    let (sender, lost) = mpsc::channel(1);
    let bounds = ReplyBounds::default();
    let patience = link.command_timeout().max(Duration::from_secs(1));
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(patience))
        .set_response_timeout(None)
        .set_pipeline_buffer_size(super::PIPELINE)
        .set_push_sender(released_or(sender, link));
    let dial = link.state().dial.clone();
    let opening = connect(&dial, config, bounds.clone(), &link.name, &link.shared);
    let (connection, carrier) = time::timeout(patience, opening)
        .await
        .map_err(|_| Unknown::TimedOut(patience.as_millis()))?
        .map_err(|e| {
            let unknown = bounds.refused().unwrap_or_else(|| convert::unknown(&e));
            permission::explained(unknown, None, &link.keys)
        })?;
    let mut state = link.state();
    if state.dial.server != dial.server {
        return Err(Unknown::NotConnected(URL_CHANGED.into()));
    }
    state.connection += 1;
    let id = ConnectionId(state.connection);
    state.refusals = Refusals::default();
    state.whole = None;
    state.open = Some(Arc::new(Open {
        connection,
        id,
        version: dial.version,
        closed: CancellationToken::new(),
        ran: Arc::default(),
        carrier: Arc::new(carrier),
        bounds,
    }));
    link.shared.handle(Input::Connected {
        master: link.index,
        connection: id,
    });
    Ok(lost)
}

/// Returns true if the master answered on this connection.
async fn serve(link: &Link, mut lost: Lost, keeps_scripts: bool, trouble: &mut Option<Unknown>) -> bool {
    let master = link.index;
    let mut useful = false;
    let mut subscribed = false;
    let mut kept = None;
    let mut waited = POLL_INTERVAL;
    loop {
        link.close_former();
        match link.inspect().await {
            Ok((connection, facts)) => {
                useful = true;
                *trouble = None;
                link.shared.handle(Input::WallClock(clock::unix_time()));
                link.shared.handle(Input::Polled {
                    master,
                    connection,
                    facts,
                });
                // A subscription without an answer is repeated; a refused one stays refused on this connection. A set
                // without a listener does not subscribe: a user that only reads needs no channel.
                subscribed = subscribed || !link.has_listener() || subscribe(link).await;
                let now = clock::now();
                if keeps_scripts && kept.is_none_or(|at| now.since(at) >= KEEP_SCRIPT) {
                    kept = Some(now);
                    link.keep_fence_script().await;
                }
            }
            Err(reason) => {
                // No request could have remained unanswered during the wait.
                let quiet = link.shared.read(|engine, now| engine.quiet(master, now));
                let silent = quiet.saturating_sub(waited.saturating_sub(POLL_INTERVAL)) > SILENT;
                let gone = !matches!(
                    reason,
                    Unknown::TimedOut(_) | Unknown::Server { .. } | Unknown::Congested
                );
                if trouble.as_ref() != Some(&reason) {
                    let url = link.url();
                    tracing::warn!(master = link.name, url, error = %reason, "master does not answer");
                    *trouble = Some(reason.clone());
                }
                link.shared.handle(Input::PollFailed { master, reason });
                if silent || gone {
                    return useful;
                }
            }
        }
        waited = link.shared.read(|engine, _| engine.poll_after(master));
        if !listen(link, waited, &mut lost).await {
            return useful;
        }
    }
}

/// Waits until the next poll is due; returns false once the connection is gone.
async fn listen(link: &Link, wait: Duration, lost: &mut Lost) -> bool {
    let next = time::sleep(wait);
    let poked = async {
        time::sleep(MIN_POLL_INTERVAL).await;
        link.poke.notified().await;
    };
    tokio::pin!(next, poked);
    loop {
        tokio::select! {
            _ = lost.recv() => {
                if !link.is_handed_over() {
                    tracing::warn!(master = link.name, url = link.url(), "connection to the master lost");
                }
                return false;
            }
            () = &mut next => return true,
            () = &mut poked => return true,
            () = link.switched.notified() => if link.is_switched() {
                return false;
            },
        }
    }
}

/// Passes releases to their listener, if there is one, and the end of the connection to `lost`. A release does not
/// wake the task that keeps the master connected. No other message has a use.
fn released_or(
    lost: mpsc::Sender<()>,
    link: &Link,
) -> impl Fn(PushInfo) -> Result<(), SendError> + Send + Sync + 'static {
    let (master, channel, notices) = (link.index, link.keys.channel.clone(), link.notices.clone());
    let shared = link.shared.clone();
    move |push| {
        if push.kind == PushKind::Disconnection {
            return lost.try_send(()).map_err(|_| SendError);
        }
        if push.kind == PushKind::Message
            && let Some(notices) = notices.upgrade().filter(|notices| !notices.is_closed())
            && let Some(lock) = released(&channel, &push.data)
        {
            shared.with_observed_ends(|ends, _| ends.release(&lock));
            Notice::Released { master, lock }.send(&notices);
        }
        Ok(())
    }
}

/// Parses the lock that a message on the channel of releases names.
fn released(releases: &str, data: &[Value]) -> Option<LockName> {
    let [Value::BulkString(channel), Value::BulkString(lock)] = data else {
        return None;
    };
    if **channel != *releases.as_bytes() {
        return None;
    }
    LockName::any(std::str::from_utf8(lock).ok()?).ok()
}

impl Link {
    fn has_listener(&self) -> bool {
        self.notices.upgrade().is_some_and(|notices| !notices.is_closed())
    }

    /// Subscribes to the messages of released locks; repeating it is harmless.
    pub(crate) async fn subscribe(&self) -> Result<(), Unknown> {
        let open = self.state().open.clone();
        let open = open.ok_or_else(|| Unknown::NotConnected("connecting".into()))?;
        let mut connection = open.connection.clone();
        let subscribing = connection.subscribe(&*self.keys.channel);
        let deadline = self.command_timeout();
        match time::timeout(deadline, subscribing).await {
            Ok(result) => result.map_err(|e| permission::explained(convert::unknown(&e), None, &self.keys)),
            Err(_) => Err(Unknown::TimedOut(deadline.as_millis())),
        }
    }
}

/// Returns false if the subscription should be repeated. Until then, the standbys rely on their periodic
/// observations.
async fn subscribe(link: &Link) -> bool {
    let Err(unknown) = link.subscribe().await else {
        return true;
    };
    tracing::warn!(master = link.name, error = %unknown, "this master does not deliver the messages of released locks");
    !matches!(unknown, Unknown::TimedOut(_))
}
