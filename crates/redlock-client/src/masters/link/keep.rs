//! Keeps one master connected: opens, looks, listens for releases, gives up on a silent connection, tries again.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use redis::{AsyncConnectionConfig, PushInfo, PushKind, Value};
use tokio::{
    sync::{Notify, mpsc},
    time,
};

use super::{Admission, Link, Open, URL_CHANGED, state::Pushes};
use crate::{
    clock,
    lease::LockName,
    masters::{
        Facts, Keyspace, Unfit,
        permission::{self, Refusals},
        scripts::LOOK,
        unknown::Unknown,
    },
};

/// How often a master is looked at: a step of its clock and a lost seal show within a second.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two looks that were asked for: a burst of votes without a seal asks once.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// A connection without any answer for so long is dead or black-holed. Shorter than TCP's own retransmission would
/// take to find out, longer than the pause of a busy server.
const SILENT: Duration = Duration::from_secs(2);
/// Waits between two tries to connect, doubling, with jitter.
const FIRST_RETRY: Duration = Duration::from_millis(20);
const LAST_RETRY: Duration = Duration::from_secs(1);

/// What the masters tell without being asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// This master published that a lock was released.
    Released { master: usize, lock: LockName },
    /// A master came or went, or was sealed: the number of masters that can vote has changed.
    VotersChanged,
}

/// The servers behind all masters of the set, as of the last look at each: the same server under two names has one vote
/// too many, and a majority of them decides which quorum this is.
#[derive(Debug)]
pub(crate) struct Servers(Mutex<Vec<Option<Facts>>>);

impl Servers {
    pub(crate) fn new(masters: usize) -> Self {
        Self(Mutex::new(vec![None; masters]))
    }

    /// Enters what a master showed (`None`: gone) and marks every master that shares a run_id with another one.
    pub(super) fn enter(&self, index: usize, facts: Option<&Facts>, links: &[Arc<Link>]) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all[index] = facts.cloned();
        for link in links {
            let run_id = |server: &Option<Facts>| server.as_ref().map(|facts| facts.run_id.clone());
            let own = run_id(&all[link.index]);
            link.set_duplicate(own.is_some() && all.iter().filter(|other| run_id(other) == own).count() > 1);
        }
        let majority = links.len() / 2 + 1;
        if let Some(link) = links.first()
            && link.identity.learn(all.iter().flatten(), majority)
        {
            links.iter().for_each(|link| link.judge_again());
        }
    }
}

/// What `keep` needs beside its own link.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    pub(crate) links: Arc<[Arc<Link>]>,
    pub(crate) servers: Arc<Servers>,
    pub(crate) notices: mpsc::UnboundedSender<Notice>,
    /// Rings when a connection stands that was opened with earlier credentials.
    pub(crate) outdated: Arc<Notify>,
}

/// Runs until it is cancelled.
pub(crate) async fn keep(link: Arc<Link>, peers: Peers) {
    let mut retry = FIRST_RETRY;
    loop {
        match open(&link).await {
            Ok(mut pushes) => {
                if link.outdated() {
                    peers.outdated.notify_one();
                }
                loop {
                    if serve(&link, &peers, pushes).await {
                        retry = FIRST_RETRY;
                    }
                    match link.handed_over() {
                        Some(successor) => pushes = successor,
                        None => break,
                    }
                }
                peers.servers.enter(link.index, None, &peers.links);
                changed(&link, &peers);
            }
            Err(unknown) => {
                let mut state = link.state();
                if state.trouble.as_ref() != Some(&unknown) {
                    let url = &state.dial.url;
                    tracing::warn!(master = link.name, url, error = %unknown, "master not reached");
                }
                state.trouble = Some(unknown);
            }
        }
        tokio::select! {
            () = time::sleep(retry.mul_f64(0.5 + fastrand::f64())) => {}
            // What was in the way may be gone.
            () = link.switched.notified() => {}
        }
        retry = (retry * 2).min(LAST_RETRY);
    }
}

fn changed(link: &Link, peers: &Peers) {
    link.poke.notify_one();
    // Nobody listens: the set is used without an elector.
    let _ = peers.notices.send(Notice::VotersChanged);
}

impl Link {
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

    /// One look, by a connection that nobody keeps but the caller.
    pub(in crate::masters) async fn look_once(&self) -> Result<Facts, Unknown> {
        open(self).await?;
        self.look().await
    }
}

pub(super) async fn open(link: &Link) -> Result<Pushes, Unknown> {
    let (sender, pushes) = mpsc::unbounded_channel();
    let patience = link.command_timeout().max(Duration::from_secs(1));
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(patience))
        .set_response_timeout(None)
        .set_pipeline_buffer_size(super::UNDER_WAY)
        .set_push_sender(sender);
    let dial = link.state().dial.clone();
    let opening = dial.client.get_multiplexed_async_connection_with_config(&config);
    let connection = time::timeout(patience, opening)
        .await
        .map_err(|_| Unknown::TimedOut(patience.as_millis()))?
        .map_err(|e| permission::explained(Unknown::of(&e), None, &link.keys))?;
    let mut state = link.state();
    if state.dial.server != dial.server {
        return Err(Unknown::NotConnected(URL_CHANGED.into()));
    }
    state.incarnation += 1;
    let incarnation = state.incarnation;
    // No vote before the first look.
    state.facts = None;
    state.refusals = Refusals::default();
    state.told.clear();
    state.silent = false;
    state.answered = clock::now();
    state.open = Some(Open {
        connection,
        incarnation,
        version: dial.version,
        server: dial.server,
        ran: Arc::default(),
    });
    Ok(pushes)
}

/// True if the master was of any use on this connection.
async fn serve(link: &Link, peers: &Peers, mut pushes: Pushes) -> bool {
    let mut useful = false;
    let mut subscribed = false;
    loop {
        match link.look().await {
            Ok(facts) => {
                useful = true;
                learn(link, peers, facts);
                // One that was not answered is asked again; one that was refused stays refused on this connection.
                subscribed = subscribed || subscribe(link).await;
            }
            Err(unknown) => {
                let mut state = link.state();
                let silent = clock::now().since(state.answered) > SILENT;
                let lost = !matches!(
                    unknown,
                    Unknown::TimedOut(_) | Unknown::Server { .. } | Unknown::Congested
                );
                if state.trouble.as_ref() != Some(&unknown) {
                    let url = &state.dial.url;
                    tracing::warn!(master = link.name, url, error = %unknown, "master does not answer");
                }
                state.trouble = Some(unknown);
                drop(state);
                tell(link, peers);
                if silent || lost {
                    return useful;
                }
            }
        }
        if !listen(link, peers, &mut pushes).await {
            return useful;
        }
    }
}

/// Passes releases on until it is time for the next look; false once the connection is gone.
async fn listen(link: &Link, peers: &Peers, pushes: &mut Pushes) -> bool {
    let next = time::sleep(LOOK_EVERY);
    let poked = async {
        time::sleep(LOOK_AGAIN).await;
        link.poke.notified().await;
    };
    tokio::pin!(next, poked);
    loop {
        tokio::select! {
            push = pushes.recv() => match push {
                Some(PushInfo { kind: PushKind::Message, data }) => {
                    if let Some(lock) = released(link, &data) {
                        let _ = peers.notices.send(Notice::Released { master: link.index, lock });
                    }
                }
                Some(PushInfo { kind: PushKind::Disconnection, .. }) | None => {
                    if link.is_handed_over() {
                        return false;
                    }
                    tracing::warn!(master = link.name, url = link.url(), "connection to the master lost");
                    return false;
                }
                Some(_) => {}
            },
            () = &mut next => return true,
            () = &mut poked => return true,
            () = link.switched.notified() => if link.is_switched() {
                return false;
            },
        }
    }
}

/// The lock that a message on the channel of releases names.
fn released(link: &Link, data: &[Value]) -> Option<LockName> {
    let [Value::BulkString(channel), Value::BulkString(lock)] = data else {
        return None;
    };
    if **channel != *link.keys.channel.as_bytes() {
        return None;
    }
    LockName::any(std::str::from_utf8(lock).ok()?).ok()
}

impl Link {
    /// Asks for the messages of released locks; once more does no harm.
    pub(crate) async fn subscribe(&self) -> Result<(), Unknown> {
        let open = self.state().open.clone();
        let mut open = open.ok_or_else(|| Unknown::NotConnected("connecting".into()))?;
        let subscribing = open.connection.subscribe(&*self.keys.channel);
        let deadline = self.command_timeout();
        match time::timeout(deadline, subscribing).await {
            Ok(result) => result.map_err(|e| permission::explained(Unknown::of(&e), None, &self.keys)),
            Err(_) => Err(Unknown::TimedOut(deadline.as_millis())),
        }
    }
}

/// False if it is worth asking again. Until then the slow poll covers it.
async fn subscribe(link: &Link) -> bool {
    let Err(unknown) = link.subscribe().await else {
        return true;
    };
    tracing::warn!(master = link.name, error = %unknown, "releases of locks will not be heard from this master");
    !matches!(unknown, Unknown::TimedOut(_))
}

pub(super) fn learn(link: &Link, peers: &Peers, facts: Facts) {
    // Before the first vote of this connection: a second name for the same server must not bring a second vote.
    peers.servers.enter(link.index, Some(&facts), &peers.links);
    let unfit = link.judge(&facts);
    {
        let mut state = link.state();
        let now = clock::now();
        if state.facts.is_some() && state.is_stale(now) {
            // It has a vote again, which is news.
            state.told.clear();
        }
        state.facts = Some(facts);
        state.looked = now;
        state.unfit = unfit;
        state.trouble = None;
    }
    tell(link, peers);
}

/// Logs and notices how the master stands, if that is another than was told last: a clock step or a duplicate comes and
/// goes between two looks.
fn tell(link: &Link, peers: &Peers) {
    let (standing, refused) = {
        let mut state = link.state();
        let now = clock::now();
        let standing = state.standing(now);
        if state.told == standing {
            return;
        }
        state.told.clone_from(&standing);
        (standing, state.unfit(now).is_some())
    };
    if refused {
        tracing::warn!(master = link.name, url = link.url(), state = standing, "master");
    } else {
        tracing::info!(master = link.name, url = link.url(), state = standing, "master");
    }
    // Nobody listens: the set is used without an elector.
    let _ = peers.notices.send(Notice::VotersChanged);
}

impl super::State {
    fn standing(&self, now: crate::lease::Moment) -> String {
        match (self.unfit(now), &self.facts) {
            _ if self.silent => "does not answer".into(),
            _ if self.facts.is_some() && self.is_stale(now) => "not looked at".into(),
            (_, None) => "unknown".into(),
            // Without the seconds left, which are other ones at each look.
            (Some(Unfit::ClockStep(_)), _) => "refused: its clock stepped".into(),
            (Some(unfit), _) => format!("refused: {unfit}"),
            (None, Some(facts)) if facts.sealed() => "sealed".into(),
            _ => "not sealed".into(),
        }
    }
}
