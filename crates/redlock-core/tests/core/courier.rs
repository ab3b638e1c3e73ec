//! How a round becomes calls to the masters and their answers an outcome: what `courier` in redlock-client does.

use std::time::Duration;

use redlock_core::{
    Attempt, FencingToken, GrantReply, Loss, MAX_MASTERS, Mark, Marks, Moment, Outcome, QuorumSize, Step,
    Tally, Verdict, View, Vote, Won, timing,
};

use crate::{
    master::{Answer, Job, Reply},
    plant::Plant,
};

/// One call under way to all masters, or to those that it is for.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) round: Option<u64>,
    pub(crate) tenure: usize,
    pub(crate) kind: Kind,
    /// How often the local clock had stepped when it began.
    pub(crate) local_steps: u64,
    pub(crate) deadline: Moment,
    pub(crate) outstanding: [bool; MAX_MASTERS],
    pub(crate) progress: Progress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Grant,
    Confirm,
    Renew,
    Release,
    Reserve,
    Observe,
    Undo,
    /// The undo of an attempt that was given up.
    GiveUp,
    /// Of an undo, or of a reserve.
    Repeat {
        wait: Duration,
        until: Moment,
        reserve: bool,
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

#[derive(Debug)]
pub(crate) enum Progress {
    Attempt(Box<Attempt>),
    Renewal { started: Moment, tally: Tally },
    Look { view: View, answered: usize },
    Round(Tally),
    Over,
}

/// What an answer led to.
#[derive(Debug)]
pub(crate) enum Change {
    None,
    Deliver(Outcome),
    /// A majority did it: a mark or a claim.
    Done,
    Confirm {
        token: FencingToken,
        granted: Vec<(usize, u64)>,
        attempt: Box<Attempt>,
    },
}

pub(crate) fn vote(reply: Option<&Reply>) -> Vote {
    match reply.map(|reply| &reply.answer) {
        Some(Answer::Granted(_) | Answer::Done) => Vote::Granted,
        Some(Answer::NotDone | Answer::Ours | Answer::Obstacle(..)) => Vote::Refused,
        Some(Answer::Unknown) | None => Vote::Unknown,
    }
}

fn grant_reply(reply: Option<&Reply>, now: Moment) -> GrantReply {
    match reply {
        Some(Reply {
            answer: Answer::Granted(number),
            marks,
            ..
        }) => GrantReply::Granted {
            number: *number,
            marks: *marks,
        },
        Some(reply) => reply
            .sighting(now)
            .map_or(GrantReply::Unknown, GrantReply::Refused),
        None => GrantReply::Unknown,
    }
}

impl Call {
    /// Takes one master's answer (`None`: there will be none), received at `now`.
    pub(crate) fn on_answer(
        &mut self,
        size: QuorumSize,
        master: usize,
        reply: Option<&Reply>,
        now: Moment,
        plant: Plant,
    ) -> Change {
        match &mut self.progress {
            Progress::Over => Change::None,
            Progress::Attempt(attempt) => {
                let now = match plant {
                    Plant::NoCheckAfterTheReplies => attempt.limit() - crate::world::ACQUIRE_LIMIT,
                    _ => now,
                };
                let step = match self.kind {
                    Kind::Confirm => attempt.on_confirm(master, vote(reply), now),
                    _ => attempt.on_grant(master, grant_reply(reply, now), now),
                };
                self.on_step(step, plant, now)
            }
            Progress::Renewal { started, tally } => {
                tally.record(master, vote(reply));
                if plant == Plant::VoteCountedTwice && vote(reply) == Vote::Granted {
                    tally.record((master + 1) % size.masters(), Vote::Granted);
                }
                if !tally.settled() {
                    return Change::None;
                }
                let outcome = match tally.verdict() {
                    Verdict::Won => Outcome::Renewed { started: *started },
                    _ if tally.refused_by_too_many() => Outcome::RenewalRefused,
                    _ => Outcome::RenewalUndecided,
                };
                self.over(outcome)
            }
            Progress::Look { view, answered } => {
                *answered += 1;
                if let Some(sighting) = reply.and_then(|reply| reply.sighting(now)) {
                    view.record(master, sighting);
                }
                if *answered < size.masters() && !view.free() && !view.blocked() {
                    return Change::None;
                }
                let view = view.clone();
                self.over(Outcome::Observed(view))
            }
            Progress::Round(tally) => {
                tally.record(master, vote(reply));
                if !tally.settled() {
                    return Change::None;
                }
                let majority = tally.verdict() == Verdict::Won;
                match self.kind {
                    Kind::Reserve => {
                        let majority = majority || plant == Plant::ReserveOnAMinority;
                        self.over(Outcome::Reserved { majority })
                    }
                    Kind::Mark { .. } | Kind::Claim { .. } => {
                        self.progress = Progress::Over;
                        if majority { Change::Done } else { Change::None }
                    }
                    _ => self.over(Outcome::Released),
                }
            }
        }
    }

    fn on_step(&mut self, step: Step, plant: Plant, now: Moment) -> Change {
        match step {
            Step::Wait => Change::None,
            Step::Won(won) => self.over(Outcome::Won(won)),
            Step::Lost(loss) => self.over(Outcome::NotWon(loss)),
            Step::Confirm { token, granted } => {
                let Progress::Attempt(attempt) = std::mem::replace(&mut self.progress, Progress::Over) else {
                    return Change::None;
                };
                if plant == Plant::NoConfirm {
                    let limit = attempt.limit();
                    let _ = now;
                    return Change::Deliver(Outcome::Won(unconfirmed(token, limit)));
                }
                Change::Confirm {
                    token,
                    granted,
                    attempt,
                }
            }
        }
    }

    fn over(&mut self, outcome: Outcome) -> Change {
        self.progress = Progress::Over;
        Change::Deliver(outcome)
    }
}

/// The planted win without a confirm: good until the limit of the attempt, so that only its token is wrong.
fn unconfirmed(token: FencingToken, limit: Moment) -> Won {
    let started = limit - crate::world::ACQUIRE_LIMIT;
    let lease = crate::world::SHORT.lease_duration;
    Won {
        token,
        started,
        valid_until: started + lease - timing::drift(lease),
        marks: Marks::default(),
    }
}

pub(crate) fn is_loss(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::NotWon(Loss::Refused(_) | Loss::NoQuorum(_) | Loss::TooLate)
    )
}
