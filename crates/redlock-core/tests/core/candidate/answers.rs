//! What a candidate makes of the masters' answers.

use std::time::Duration;

use redlock_core::{Authority, Event, Judgement, LeaseValue, Moment, Outcome, Sample, Tally, Vote, timing};

use super::{Candidate, Out};
use crate::{
    courier::{Change, Kind, Progress, is_loss, vote},
    master::{Op, Reply},
    plant::Plant,
    rate::Instant,
    world::{COMMAND_TIMEOUT, LONGEST},
};

impl Candidate {
    /// The deadline of a call: who has not answered will not be heard.
    /// `silent`: of those, only the masters that were not asked.
    pub(crate) fn on_deadline(
        &mut self,
        at: Instant,
        (call, silent): (u64, bool),
        rng: &mut fastrand::Rng,
    ) -> Vec<Out> {
        let mut out = Vec::new();
        for master in 0..self.size.masters() {
            let waits = self.calls.get(&call).is_some_and(|call| call.outstanding[master]);
            let now = self.clock.moment(at);
            let unasked = self.silent[master] || self.clocks.distrusted(master, now).is_some();
            if !waits || (silent && !unasked) {
                continue;
            }
            self.silent[master] |= !silent;
            // 0: it was not sent.
            let connection = if silent { 0 } else { self.connections[master] };
            self.answer(at, call, master, None, connection, rng, &mut out);
        }
        out
    }

    pub(crate) fn on_reply(
        &mut self,
        at: Instant,
        (call, master, connection): (u64, usize, u32),
        sent: Moment,
        reply: Option<&Reply>,
        rng: &mut fastrand::Rng,
    ) -> Vec<Out> {
        let mut out = Vec::new();
        let mut counts = None;
        if let Some(reply) = reply {
            self.silent[master] = false;
            // The floor keeps the counters together for speed. Safety must not lean on it: not everybody has one.
            if self.index.is_multiple_of(2) {
                self.floor = self.floor.max(reply.counter);
            }
            let steps = self.judge(at, master, sent, reply);
            let kind = self.calls.get(&call).map(|call| call.kind);
            counts = self.counted(at, master, kind, reply, steps);
            if steps == Judgement::LocalStepped && self.plant != Plant::MastersBlamed {
                self.local_steps += 1;
                self.feed(at, rng.u64(..), Event::ClockStepped, &mut out);
            }
        }
        self.answer(at, call, master, counts.as_ref(), connection, rng, &mut out);
        out
    }

    fn judge(&mut self, at: Instant, master: usize, sent: Moment, reply: &Reply) -> Judgement {
        let sample = Sample {
            master: reply.time,
            sent,
            received: self.clock.moment(at),
        };
        self.clocks.sample(master, sample)
    }

    /// What counts of a reply: of one that shows a step, or of a master that is distrusted, refusals to renew alone.
    fn counted(
        &self,
        at: Instant,
        master: usize,
        kind: Option<Kind>,
        reply: &Reply,
        steps: Judgement,
    ) -> Option<Reply> {
        let deletes = matches!(
            kind,
            Some(Kind::Release | Kind::Undo | Kind::GiveUp | Kind::Repeat { reserve: false, .. })
        );
        let distrusted = self.clocks.distrusted(master, self.clock.moment(at)).is_some();
        let refused = kind == Some(Kind::Renew) && vote(Some(reply)) == Vote::Refused;
        let blamed = self.plant == Plant::MastersBlamed;
        let doubted = steps != Judgement::Steady || distrusted;
        (deletes || !doubted || (refused && !blamed)).then(|| reply.clone())
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn answer(
        &mut self,
        at: Instant,
        id: u64,
        master: usize,
        reply: Option<&Reply>,
        connection: u32,
        rng: &mut fastrand::Rng,
        out: &mut Vec<Out>,
    ) {
        let now = self.clock.moment(at);
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        // Its beginning was read from another clock than the one that it ends by.
        let timed = matches!(
            call.kind,
            Kind::Grant | Kind::Confirm | Kind::Renew | Kind::Mark { .. } | Kind::Claim { .. }
        );
        let stale = timed && call.local_steps != self.local_steps;
        let reply = reply.filter(|reply| !stale || vote(Some(reply)) != Vote::Granted);
        if !std::mem::take(&mut call.outstanding[master]) {
            return;
        }
        let change = call.on_answer(self.size, master, reply, now, self.plant);
        let (round, tenure, kind) = (call.round, call.tenure, call.kind);
        if let (Kind::Renew, Plant::VotesSummedOverRounds) = (kind, self.plant) {
            let sum = self.sum.get_or_insert_with(|| Tally::new(self.size));
            if vote(reply) == Vote::Granted {
                sum.record(master, Vote::Granted);
            }
        }
        if call.outstanding.iter().all(|outstanding| !outstanding) {
            self.calls.remove(&id);
        }
        self.clean_up(now, tenure, kind, master, reply, connection, out);
        match change {
            Change::None => {}
            Change::Confirm {
                token,
                granted,
                attempt,
            } => {
                let call = self.open(now, round, Kind::Confirm, Progress::Attempt(attempt), out);
                let stem = self.tenures[tenure].stem.clone();
                let number = |m: usize| granted.iter().find(|(master, _)| *master == m).map(|(_, n)| *n);
                self.send(
                    now,
                    call,
                    out,
                    |m| number(m).is_some(),
                    |m| {
                        let value = LeaseValue {
                            grant: number(m).unwrap_or(0),
                            ..stem.clone()
                        };
                        Op::Confirm {
                            value,
                            token: token.0,
                        }
                    },
                );
            }
            Change::Done => out.push(match kind {
                Kind::Claim { slot, job } => Out::Claimed { slot, job },
                Kind::Mark { token, mark } => Out::Marked { token, mark },
                _ => return,
            }),
            Change::Deliver(outcome) => {
                if let (Outcome::Reserved { majority: true }, Some(ended)) = (&outcome, self.ended) {
                    let (cluster, began) = self.reserved_for.clone();
                    let until = ended.valid_until;
                    self.tenures[tenure].reserved = Some(cluster.clone());
                    out.push(Out::Reserved {
                        cluster,
                        began,
                        until,
                    });
                }
                if is_loss(&outcome) && self.plant != Plant::NoCleanUp {
                    let progress = Progress::Round(Tally::new(self.size));
                    self.delete(now, tenure, None, Kind::Undo, progress, out, |_| true);
                }
                if matches!(outcome, Outcome::Renewed { .. }) {
                    self.sum = None;
                }
                self.deliver(at, round, kind, outcome, rng, out);
            }
        }
    }

    pub(super) fn deliver(
        &mut self,
        at: Instant,
        round: Option<u64>,
        kind: Kind,
        outcome: Outcome,
        rng: &mut fastrand::Rng,
        out: &mut Vec<Out>,
    ) {
        let now = self.clock.moment(at);
        if let (Kind::Release, Some(token)) = (kind, self.heals) {
            let progress = Progress::Renewal {
                started: now,
                tally: Tally::new(self.size),
            };
            self.renew(
                now,
                None,
                token,
                crate::world::SHORT.lease_duration,
                progress,
                out,
            );
        }
        if let Some(id) = round {
            return self.feed(at, rng.u64(..), Event::RoundFinished { id, outcome }, out);
        }
        // The planted heal: it believes again.
        if let (Kind::Renew, Outcome::Renewed { started }, Some(token)) = (kind, outcome, self.heals.take()) {
            let lease = crate::world::SHORT.lease_duration;
            let valid_until = started + lease - timing::drift(lease);
            self.published = Some(Authority { token, valid_until });
            out.push(Out::Active { token, won: None });
        }
    }

    /// An undo that may have run before the grant is repeated, after every `not_after` of that lease.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn clean_up(
        &mut self,
        now: Moment,
        tenure: usize,
        kind: Kind,
        master: usize,
        reply: Option<&Reply>,
        connection: u32,
        out: &mut Vec<Out>,
    ) {
        if self.plant == Plant::NoCleanUp {
            return;
        }
        let Some(lease) = self.tenures.get_mut(tenure) else {
            return;
        };
        let done = vote(reply) != Vote::Unknown;
        let (wait, until) = match kind {
            Kind::Grant | Kind::Renew if connection == 0 => return,
            Kind::Grant | Kind::Renew => {
                lease.pending[master] = lease.pending[master].saturating_sub(1);
                lease.sent[master] = connection;
                return;
            }
            Kind::Release | Kind::Undo | Kind::GiveUp | Kind::Reserve => (
                COMMAND_TIMEOUT * 102 / 100 + Duration::from_millis(5),
                now + LONGEST + COMMAND_TIMEOUT,
            ),
            Kind::Repeat { wait, until, .. } if !done => (wait * 2, until),
            _ => return,
        };
        let left = lease.pending[master] > 0
            || (lease.sent[master] != 0 && (!done || lease.sent[master] != connection));
        if left && now + wait <= until {
            let reserve = matches!(kind, Kind::Reserve | Kind::Repeat { reserve: true, .. });
            out.push(Out::Repeat {
                tenure,
                master,
                reserve: reserve && !matches!(self.plant, Plant::ReserveUndone | Plant::ReserveOnAMinority),
                wait,
                until,
                at: now + wait,
            });
        }
    }

    pub(crate) fn on_repeat(
        &mut self,
        at: Instant,
        (tenure, master, reserve): (usize, usize, bool),
        wait: Duration,
        until: Moment,
    ) -> Vec<Out> {
        let (mut out, now) = (Vec::new(), self.clock.moment(at));
        let progress = Progress::Round(Tally::new(self.size));
        let kind = Kind::Repeat { wait, until, reserve };
        if !reserve {
            self.delete(now, tenure, None, kind, progress, &mut out, |m| m == master);
        } else if let Some(cluster) = self.tenures[tenure].reserved.clone() {
            self.reserve(now, tenure, None, kind, &cluster, &mut out, |m| m == master);
        }
        out
    }
}
