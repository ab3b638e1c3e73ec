//! Keeps the masters connected and polled, as the task of each master does in the program.

use std::time::Duration;

use redlock_core::{
    Admission, BootInstant, ConnectionId, Input, MasterFacts, Reply, Unknown, engine::Call, reply::Code,
};

use super::{Candidate, Out};
use crate::{
    rate::Instant,
    world::{COMMAND_TIMEOUT, EPOCH},
};

/// The interval of polls of a master that is in use.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// The least interval of polls on request.
const POLL_AGAIN: Duration = Duration::from_millis(50);
/// The time after which a connection without any answer is given up.
const SILENT: Duration = Duration::from_secs(2);
/// The first wait between two connection attempts. It doubles up to `LAST_RETRY`.
const FIRST_RETRY: Duration = Duration::from_millis(20);
const LAST_RETRY: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LinkState {
    /// No connection until the next attempt.
    #[default]
    Closed,
    Opening,
    Open(u32),
}

#[derive(Debug)]
pub(super) struct Link {
    state: LinkState,
    /// The poll under way, by its number.
    poll: Option<(u64, Call)>,
    /// The end of the last poll.
    polled: BootInstant,
    /// The wait before the poll under way.
    waited: Duration,
    /// Whether a poll is requested.
    poked: bool,
    /// The time at which the task acts next.
    next: Option<BootInstant>,
    retry: Duration,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            state: LinkState::Closed,
            poll: None,
            polled: BootInstant::default(),
            waited: POLL_EVERY,
            poked: false,
            next: None,
            retry: FIRST_RETRY,
        }
    }
}

/// The answer of a master to a poll.
#[derive(Clone, Debug)]
pub(crate) struct Polled {
    /// Microseconds by the master's clock.
    pub(crate) time: u64,
    pub(crate) facts: MasterFacts,
}

impl Candidate {
    pub(super) fn open_all(&mut self, out: &mut Vec<Out>) {
        for (master, link) in self.links.iter_mut().enumerate() {
            link.state = LinkState::Opening;
            out.push(Out::Open { master });
        }
    }

    /// Returns the connection to this master, if there is one.
    pub(crate) fn connection(&self, master: usize) -> Option<u32> {
        match self.links.get(master)?.state {
            LinkState::Open(connection) if self.runs => Some(connection),
            _ => None,
        }
    }

    pub(crate) fn on_opened(
        &mut self,
        at: Instant,
        master: usize,
        opened: bool,
        rng: &mut fastrand::Rng,
    ) -> Vec<Out> {
        let (mut out, now) = (Vec::new(), self.clock.moment(at));
        if opened {
            let connection = self.new_connection(master);
            let input = Input::Connected {
                master,
                connection: ConnectionId(connection),
            };
            self.engine.handle(input, now);
            self.poll(now, master, &mut out);
        } else {
            let reason = Unknown::NotConnected("refused".into());
            self.engine.handle(Input::Unreachable { master, reason }, now);
            self.retry(now, master, rng, &mut out);
        }
        self.settle(at, rng, &mut out);
        out
    }

    fn new_connection(&mut self, master: usize) -> u32 {
        self.connections[master] += 1;
        self.links[master].state = LinkState::Open(self.connections[master]);
        self.connections[master]
    }

    /// Applies other credentials: another connection replaces the present one, whose replies still arrive.
    pub(crate) fn replace(
        &mut self,
        at: Instant,
        master: usize,
        facts: MasterFacts,
        rng: &mut fastrand::Rng,
    ) -> Vec<Out> {
        let mut out = Vec::new();
        let input = Input::Replaced {
            master,
            connection: ConnectionId(self.new_connection(master)),
            facts,
        };
        self.engine.handle(input, self.clock.moment(at));
        self.settle(at, rng, &mut out);
        out
    }

    /// Makes another server this master, reached by a new connection. Replies of the former one may still arrive.
    pub(crate) fn change_server(&mut self, at: Instant, master: usize, rng: &mut fastrand::Rng) -> Vec<Out> {
        let mut out = Vec::new();
        self.engine
            .handle(Input::ServerChanged { master }, self.clock.moment(at));
        let link = &mut self.links[master];
        let opens = link.state == LinkState::Opening;
        *link = Link::default();
        link.state = LinkState::Opening;
        if !opens {
            out.push(Out::Open { master });
        }
        self.settle(at, rng, &mut out);
        out
    }

    fn act_at(&mut self, master: usize, at: BootInstant, out: &mut Vec<Out>) {
        self.links[master].next = Some(at);
        out.push(Out::KeepAt { master, at });
    }

    fn retry(&mut self, now: BootInstant, master: usize, rng: &mut fastrand::Rng, out: &mut Vec<Out>) {
        let link = &mut self.links[master];
        link.state = LinkState::Closed;
        link.poll = None;
        let wait = link.retry.mul_f64(0.5 + rng.f64());
        link.retry = (link.retry * 2).min(LAST_RETRY);
        self.act_at(master, now + wait, out);
    }

    pub(crate) fn on_keep(
        &mut self,
        at: Instant,
        (master, due): (usize, BootInstant),
        rng: &mut fastrand::Rng,
    ) -> Vec<Out> {
        let (mut out, now) = (Vec::new(), self.clock.moment(at));
        if self.links[master].next != Some(due) {
            return out;
        }
        self.links[master].next = None;
        match (self.links[master].state, self.links[master].poll.take()) {
            (LinkState::Opening, _) => {}
            (LinkState::Closed, _) => {
                self.links[master].state = LinkState::Opening;
                out.push(Out::Open { master });
            }
            (LinkState::Open(_), None) => self.poll(now, master, &mut out),
            (LinkState::Open(_), Some((_, call))) => {
                let late = Unknown::TimedOut(call.timeout.as_millis());
                self.poll_failed(now, master, &call, late);
                // During the wait there was no request that could have gone unanswered.
                let waited = self.links[master].waited.saturating_sub(POLL_EVERY);
                if self.engine.quiet(master, now).saturating_sub(waited) > SILENT {
                    self.engine.handle(Input::Disconnected { master }, now);
                    self.retry(now, master, rng, &mut out);
                } else {
                    self.wait(now, master, &mut out);
                }
            }
        }
        self.settle(at, rng, &mut out);
        out
    }

    fn poll(&mut self, now: BootInstant, master: usize, out: &mut Vec<Out>) {
        let call = self
            .engine
            .begin_call(master, Admission::Connected, COMMAND_TIMEOUT, now);
        let call = call.expect("the master is connected");
        self.next += 1;
        out.push(Out::Poll {
            master,
            connection: call.connection.0,
            number: self.next,
        });
        self.links[master].poll = Some((self.next, call));
        self.act_at(master, now + COMMAND_TIMEOUT, out);
    }

    fn poll_failed(&mut self, now: BootInstant, master: usize, call: &Call, reason: Unknown) {
        let _ = self.engine.finish_call(master, call, Err(reason.clone()), now);
        self.engine.handle(Input::PollFailed { master, reason }, now);
    }

    fn wait(&mut self, now: BootInstant, master: usize, out: &mut Vec<Out>) {
        let link = &mut self.links[master];
        link.polled = now;
        let soon = std::mem::take(&mut link.poked);
        let after = if soon {
            POLL_AGAIN
        } else {
            self.engine.poll_after(master)
        };
        self.links[master].waited = after;
        self.act_at(master, now + after, out);
    }

    /// Polls the master soon.
    pub(super) fn poke(&mut self, now: BootInstant, master: usize, out: &mut Vec<Out>) {
        let link = &mut self.links[master];
        match (link.state, &link.poll) {
            (LinkState::Open(_), None) => {
                let soon = now.max(link.polled + POLL_AGAIN);
                if link.next.is_none_or(|next| soon < next) {
                    self.act_at(master, soon, out);
                }
            }
            _ => link.poked = true,
        }
    }

    /// Handles the answer to a poll, and returns whether it was waited for.
    pub(crate) fn on_polled(
        &mut self,
        at: Instant,
        (master, number): (usize, u64),
        polled: Polled,
        rng: &mut fastrand::Rng,
    ) -> (bool, Vec<Out>) {
        let (mut out, now) = (Vec::new(), self.clock.moment(at));
        let link = &mut self.links[master];
        let waited = link.poll.take_if(|(under_way, _)| *under_way == number);
        let Some((_, call)) = waited else {
            return (false, out);
        };
        link.retry = FIRST_RETRY;
        let reply = Reply {
            code: Code::Ok,
            time: polled.time,
            counter: polled.facts.counter,
            items: Vec::new(),
        };
        let finished = self.engine.finish_call(master, &call, Ok(reply), now);
        let input = match finished.reply {
            Ok(_) => Input::Polled {
                master,
                connection: call.connection,
                facts: polled.facts,
            },
            Err(reason) => Input::PollFailed { master, reason },
        };
        self.engine
            .handle(Input::WallClock(Duration::from_nanos(EPOCH + at)), now);
        self.engine.handle(input, now);
        self.wait(now, master, &mut out);
        self.settle(at, rng, &mut out);
        (true, out)
    }

    /// Ends this connection by the network or the server: no more replies arrive on it.
    pub(crate) fn lose_connection(
        &mut self,
        at: Instant,
        (master, connection): (usize, u32),
        rng: &mut fastrand::Rng,
    ) -> Vec<Out> {
        let (mut out, now) = (Vec::new(), self.clock.moment(at));
        if self.connection(master) != Some(connection) {
            return out;
        }
        self.lost[master] = connection;
        let reason = || Unknown::ConnectionLost("reset".into());
        let on_it = |call: &super::Sent| call.id.master == master && call.connection <= connection;
        // The calls notice the loss before or after the task that keeps the connection.
        let calls_first = rng.bool();
        if !calls_first {
            self.engine.handle(Input::Disconnected { master }, now);
        }
        let (failed, others) = std::mem::take(&mut self.calls).into_iter().partition(on_it);
        self.calls = others;
        let failed: Vec<super::Sent> = failed;
        for call in failed {
            let input = Input::Reply {
                transmit: call.id,
                result: Err(reason()),
            };
            self.engine.handle(input, now);
        }
        if let Some((_, call)) = self.links[master].poll.take() {
            self.poll_failed(now, master, &call, reason());
        }
        if calls_first {
            self.engine.handle(Input::Disconnected { master }, now);
        }
        self.retry(now, master, rng, &mut out);
        self.settle(at, rng, &mut out);
        out
    }
}
