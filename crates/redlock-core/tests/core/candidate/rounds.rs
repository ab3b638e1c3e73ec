//! How a candidate's rounds become calls to the masters.

use std::time::Duration;

use redlock_core::{
    Attempt, ClusterId, FencingToken, LeaseValue, MAX_MASTERS, Mark, Moment, Nonce, Round, Tally, View,
};

use super::{Candidate, Out, Tenure, millis};
use crate::{
    courier::{Call, Kind, Progress},
    master::{Job, Op},
    plant::Plant,
    rate::Instant,
    world::{ACQUIRE_LIMIT, COMMAND_TIMEOUT},
};

/// No call has this number.
const LOOK: u64 = 0;

impl Candidate {
    pub(super) fn start_round(&mut self, now: Moment, id: u64, round: Round, out: &mut Vec<Out>) {
        let tally = Tally::new(self.size);
        let id = Some(id);
        match round {
            Round::Acquire { lease_duration } => {
                self.next += 1;
                let nonce =
                    Nonce(u128::from(self.index) << 96 | u128::from(self.life) << 64 | u128::from(self.next));
                let (cluster, identity) = (self.cluster.clone(), self.identity.clone());
                let stem = LeaseValue {
                    cluster,
                    identity,
                    nonce,
                    grant: 0,
                };
                self.tenures.push(Tenure {
                    stem: stem.clone(),
                    sent: [0; _],
                    pending: [0; _],
                    reserved: None,
                });
                self.sum = None;
                let attempt = Attempt::new(self.size, now, lease_duration, ACQUIRE_LIMIT);
                let (floor, lease_ms) = (self.floor, millis(lease_duration));
                let call = self.open(now, id, Kind::Grant, Progress::Attempt(Box::new(attempt)), out);
                self.send(
                    now,
                    call,
                    out,
                    |_| true,
                    |_| Op::Grant {
                        stem: stem.clone(),
                        floor,
                        lease_ms,
                    },
                );
            }
            Round::Renew {
                lease_duration,
                token,
            } => {
                let tally = match self.plant {
                    Plant::VotesSummedOverRounds => self.sum.unwrap_or(tally),
                    _ => tally,
                };
                let progress = Progress::Renewal { started: now, tally };
                self.renew(now, id, token, lease_duration, progress, out);
            }
            Round::Observe => {
                let progress = Progress::Look {
                    view: View::new(self.size),
                    answered: 0,
                };
                let cluster = self.cluster.to_string();
                let call = self.open(now, id, Kind::Observe, progress, out);
                self.send(
                    now,
                    call,
                    out,
                    |_| true,
                    |_| Op::Observe {
                        cluster: cluster.clone(),
                    },
                );
            }
            Round::Release => self.launch(now, id, Kind::Release, Progress::Round(tally), out, |_| true),
            Round::Undo => {
                let kind = match self.plant {
                    Plant::AttemptReleased => Kind::Release,
                    _ => Kind::GiveUp,
                };
                self.launch(now, id, kind, Progress::Round(tally), out, |_| true);
            }
            Round::Reserve { cluster } => {
                self.reserved_for = (cluster.clone(), now);
                if let Some(tenure) = self.tenures.len().checked_sub(1) {
                    self.reserve(now, tenure, id, Kind::Reserve, &cluster, out, |_| true);
                }
            }
        }
    }

    pub(super) fn renew(
        &mut self,
        now: Moment,
        round: Option<u64>,
        token: FencingToken,
        lease: Duration,
        progress: Progress,
        out: &mut Vec<Out>,
    ) {
        if self.published.and_then(|authority| authority.at(now)).is_none()
            && self.plant != Plant::HealAfterTheEnd
        {
            out.push(Out::WithoutAuthority);
        }
        let Some(stem) = self.tenures.last().map(|tenure| tenure.stem.clone()) else {
            return;
        };
        let call = self.open(now, round, Kind::Renew, progress, out);
        let lease_ms = millis(lease);
        self.send(
            now,
            call,
            out,
            |_| true,
            |_| Op::Renew {
                stem: stem.clone(),
                token: token.0,
                lease_ms,
            },
        );
    }

    /// Marks the lease that it holds: something runs under it, or is confirmed to have stopped.
    pub(crate) fn mark(&mut self, at: Instant, mark: Mark) -> Vec<Out> {
        let (mut out, now) = (Vec::new(), self.clock.moment(at));
        let (Some(authority), Some(tenure)) = (self.authority(at), self.tenures.last()) else {
            return out;
        };
        let (token, stem) = (authority.token.0, tenure.stem.clone());
        self.ask(now, Kind::Mark { token, mark }, &mut out, |_| Op::Mark {
            stem: stem.clone(),
            token,
            mark,
        });
        out
    }

    /// Claims a slot. Whether or not it holds: the register alone decides.
    pub(crate) fn claim(&mut self, at: Instant, slot: u64, job: Job) -> Vec<Out> {
        let (mut out, now) = (Vec::new(), self.clock.moment(at));
        if self.alive() {
            self.ask(now, Kind::Claim { slot, job }, &mut out, |_| Op::Claim {
                slot,
                job,
            });
        }
        out
    }

    /// A round of which only a majority counts.
    fn ask(&mut self, now: Moment, kind: Kind, out: &mut Vec<Out>, op: impl Fn(usize) -> Op) {
        let call = self.open(now, None, kind, Progress::Round(Tally::new(self.size)), out);
        self.send(now, call, out, |_| true, op);
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn reserve(
        &mut self,
        now: Moment,
        tenure: usize,
        round: Option<u64>,
        kind: Kind,
        cluster: &ClusterId,
        out: &mut Vec<Out>,
        to: impl Fn(usize) -> bool,
    ) {
        let stem = self.tenures[tenure].stem.clone();
        let call = self.open(now, round, kind, Progress::Round(Tally::new(self.size)), out);
        if let Some(call) = self.calls.get_mut(&call) {
            call.tenure = tenure;
        }
        self.send(now, call, out, to, |_| Op::Reserve {
            stem: stem.clone(),
            cluster: cluster.to_string(),
        });
    }

    /// A release or an undo of the last lease.
    pub(super) fn launch(
        &mut self,
        now: Moment,
        round: Option<u64>,
        kind: Kind,
        progress: Progress,
        out: &mut Vec<Out>,
        to: impl Fn(usize) -> bool,
    ) {
        let Some(tenure) = self.tenures.len().checked_sub(1) else {
            return;
        };
        self.delete(now, tenure, round, kind, progress, out, to);
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn delete(
        &mut self,
        now: Moment,
        tenure: usize,
        round: Option<u64>,
        kind: Kind,
        progress: Progress,
        out: &mut Vec<Out>,
        to: impl Fn(usize) -> bool,
    ) {
        let stem = self.tenures[tenure].stem.clone();
        let call = self.open(now, round, kind, progress, out);
        if let Some(call) = self.calls.get_mut(&call) {
            call.tenure = tenure;
        }
        let publish = matches!(kind, Kind::Release | Kind::GiveUp);
        self.send(now, call, out, to, |_| Op::Release {
            stem: stem.clone(),
            publish,
            keep_reservation: kind != Kind::Release,
        });
    }

    pub(super) fn open(
        &mut self,
        now: Moment,
        round: Option<u64>,
        kind: Kind,
        progress: Progress,
        out: &mut Vec<Out>,
    ) -> u64 {
        let limit = match &progress {
            Progress::Attempt(attempt) => attempt.limit(),
            _ => Moment::NEVER,
        };
        self.next += 1;
        let deadline = (now + COMMAND_TIMEOUT).min(limit);
        let tenure = self.tenures.len().saturating_sub(1);
        let outstanding = [false; MAX_MASTERS];
        self.calls.insert(
            self.next,
            Call {
                round,
                tenure,
                kind,
                local_steps: self.local_steps,
                deadline,
                outstanding,
                progress,
            },
        );
        out.push(Out::Deadline {
            call: self.next,
            at: deadline,
            silent: false,
        });
        self.next
    }

    pub(super) fn send(
        &mut self,
        now: Moment,
        call: u64,
        out: &mut Vec<Out>,
        to: impl Fn(usize) -> bool,
        op: impl Fn(usize) -> Op,
    ) {
        let Some(entry) = self.calls.get_mut(&call) else {
            return;
        };
        let deletes = matches!(
            entry.kind,
            Kind::Release | Kind::Undo | Kind::GiveUp | Kind::Repeat { .. }
        );
        let mut unasked = false;
        for master in (0..self.size.masters()).filter(|master| to(*master)) {
            entry.outstanding[master] = true;
            let distrusted = self.clocks.distrusted(master, now).is_some();
            if (self.silent[master] || distrusted) && !deletes {
                // A look instead, of which only the answer counts.
                unasked = true;
                let (connection, cluster) = (self.connections[master], self.cluster.to_string());
                out.push(Out::Send {
                    master,
                    connection,
                    call: LOOK,
                    op: Op::Observe { cluster },
                    not_after: u64::MAX,
                    deadline: Moment::NEVER,
                });
                continue;
            }
            if matches!(entry.kind, Kind::Grant | Kind::Renew) {
                self.tenures[entry.tenure].pending[master] += 1;
            }
            let limit = entry.deadline.left(now);
            let not_after = self.clocks.not_after(master, now, limit).unwrap_or(0);
            let connection = self.connections[master];
            out.push(Out::Send {
                master,
                connection,
                call,
                op: op(master),
                not_after,
                deadline: entry.deadline,
            });
        }
        if unasked {
            out.push(Out::Deadline {
                call,
                at: now,
                silent: true,
            });
        }
    }
}
