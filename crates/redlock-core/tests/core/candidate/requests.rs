//! Turns a candidate's rounds into requests to the engine, and completions into outcomes.

use std::sync::Arc;

use redlock_core::{
    BootInstant, ClusterId, Command, Completion, Event, Input, LeaseAttempt, LeaseStem, Loss, Mark, Nonce,
    Request, RequestId, Round, planted::Plant,
};

use super::{Candidate, Out};
use crate::{master::Job, plant::Plant as Model, rate::Instant, scripts, world::LONGEST};

/// The purpose of a request that waits for a completion.
#[derive(Debug)]
pub(super) enum Wanted {
    Round {
        id: u64,
        /// The cluster to which the round passes the lock on, and the start of the round.
        reserve: Option<(ClusterId, BootInstant)>,
    },
    /// A round of the second lock.
    Second {
        id: u64,
    },
    Mark {
        token: u64,
        mark: Mark,
    },
    Claim {
        slot: u64,
        job: Job,
    },
}

impl Candidate {
    pub(super) fn start_round(&mut self, now: BootInstant, id: u64, round: Round, out: &mut Vec<Out>) {
        let mut reserve = None;
        match &round {
            Round::Acquire { .. } => self.attempt = Some(self.new_attempt()),
            Round::Renew { .. } => {
                let held = self.published.and_then(|authority| authority.at(now));
                if held.is_none() && self.planted.code != Plant::HealAfterTheEnd {
                    out.push(Out::WithoutAuthority);
                }
            }
            Round::Reserve { cluster } if self.attempt.is_some() => reserve = Some((cluster.clone(), now)),
            _ => {}
        }
        let command = round.command(self.attempt.clone());
        self.request(now, command, Some(Wanted::Round { id, reserve }));
    }

    pub(super) fn new_attempt(&mut self) -> Arc<LeaseAttempt> {
        self.next += 1;
        let nonce = u128::from(self.index) << 96 | u128::from(self.life) << 64 | u128::from(self.next);
        let stem = LeaseStem::new(&self.cluster, &self.identity, Nonce(nonce));
        Arc::new(if self.fenced {
            let beyond = self.planted.model == Model::KeptBeyondLongest;
            let longest = if beyond { LONGEST * 3 } else { LONGEST };
            LeaseAttempt::fenced(stem, longest, self.cluster.clone())
        } else {
            LeaseAttempt::new(stem, LONGEST)
        })
    }

    fn request(&mut self, now: BootInstant, command: Command, wanted: Option<Wanted>) {
        self.next += 1;
        let id = RequestId(self.next);
        if let Some(wanted) = wanted {
            self.wanted.insert(id, wanted);
        }
        let lock = self.lock.clone();
        self.engine
            .handle(Input::Request(Request { id, lock, command }), now);
    }

    /// Marks the lease that the candidate holds: work runs under it, or is confirmed to have stopped.
    pub(crate) fn mark(&mut self, at: Instant, mark: Mark, rng: &mut fastrand::Rng) -> Vec<Out> {
        let (mut out, now) = (Vec::new(), self.clock.moment(at));
        let (Some(authority), Some(attempt), true) = (self.authority(at), self.attempt.clone(), self.runs)
        else {
            return out;
        };
        let token = authority.token;
        let wanted = Wanted::Mark { token: token.0, mark };
        let is_first = attempt.is_first(mark);
        self.request(now, Command::Mark { attempt, token, mark }, Some(wanted));
        // Half of the first marks are not followed by the renewal, as if every master lost it, so that faults
        // before the renewal stay likely.
        if is_first && rng.bool() {
            self.feed(at, Event::Marked, rng, &mut out);
        }
        self.settle(at, rng, &mut out);
        out
    }

    /// Claims slots, whether or not the candidate holds the lock: the register alone decides.
    pub(crate) fn claim(&mut self, at: Instant, slots: &[(u64, Job)], rng: &mut fastrand::Rng) -> Vec<Out> {
        let (mut out, now) = (Vec::new(), self.clock.moment(at));
        if !self.alive() {
            return out;
        }
        for (slot, job) in slots.iter().copied() {
            let command = Command::Claim {
                object: "t".into(),
                slot,
                job: scripts::job_text(job).into(),
            };
            self.request(now, command, Some(Wanted::Claim { slot, job }));
        }
        self.settle(at, rng, &mut out);
        out
    }

    pub(super) fn on_completed(
        &mut self,
        at: Instant,
        request: RequestId,
        (won, completion): (Option<Arc<LeaseAttempt>>, Completion),
        rng: &mut fastrand::Rng,
        out: &mut Vec<Out>,
    ) {
        let now = self.clock.moment(at);
        let majority = matches!(completion, Completion::Done { majority: true, .. });
        match self.wanted.remove(&request) {
            Some(Wanted::Round { id, reserve }) if self.alive() => {
                if matches!(
                    completion,
                    Completion::RenewalUndecided | Completion::NotWon(Loss::NoQuorum(_))
                ) {
                    // Masters also lose their votes as time passes, which no output shows.
                    self.voting &= self.voters(now) >= self.size.majority();
                }
                let reserves = reserve.is_some();
                if let (Some((cluster, began)), Some(ended), true) = (reserve, self.ended, majority) {
                    out.push(Out::Reserved {
                        cluster,
                        began,
                        until: ended.valid_until,
                    });
                }
                if let Some(outcome) = completion.outcome(reserves) {
                    self.feed(at, Event::RoundFinished { id, outcome }, rng, out);
                }
            }
            Some(Wanted::Round { .. }) => {
                // The elector is gone: the lease that was won has no user.
                if let Some(attempt) = won {
                    let publish = true;
                    self.request(now, Command::Undo { attempt, publish }, None);
                }
            }
            Some(Wanted::Second { id }) if self.second.is_some() => {
                if let Some(outcome) = completion.outcome(false) {
                    self.feed_second(at, Event::RoundFinished { id, outcome }, rng, out);
                }
            }
            Some(Wanted::Second { .. }) => {
                if let Some(attempt) = won {
                    let publish = true;
                    self.request_second(now, Command::Undo { attempt, publish }, None);
                }
            }
            Some(Wanted::Mark { token, mark }) if majority => out.push(Out::Marked { token, mark }),
            Some(Wanted::Claim { slot, job }) if majority => out.push(Out::Claimed { slot, job }),
            Some(Wanted::Mark { .. } | Wanted::Claim { .. }) | None => {}
        }
    }
}
