//! How far one call is, and when its delivery is certain.

use super::{Answer, Call, Delivery, Request};
use crate::lease::{
    Attempt, GrantReply, Moment, QuorumSize, Sighting, SlotView, Step, Tally, Verdict, View, Vote,
    vote::MAX_MASTERS,
};

/// Holds what the kind of request needs to be decided, and no more.
#[derive(Debug)]
pub(super) enum Progress {
    Attempt(Box<Attempt>),
    Renewal {
        started: Moment,
        tally: Tally,
    },
    Look {
        view: Box<View>,
        answered: usize,
    },
    Slots {
        view: Box<SlotView>,
        answered: usize,
    },
    Round {
        tally: Tally,
        answers: Box<[Option<Answer>; MAX_MASTERS]>,
        all: bool,
        /// What is answered later counts for nothing.
        limit: Moment,
    },
    Over,
}

/// What an answer led to.
#[derive(Debug)]
pub(super) enum Change {
    None,
    Deliver(Delivery),
    /// The attempt goes on with a confirm.
    Confirm(Request, Box<Attempt>),
}

impl Progress {
    pub(super) fn new(
        call: &Call,
        size: QuorumSize,
        started: Moment,
        acquire_limit: std::time::Duration,
    ) -> Self {
        match &call.request {
            Request::Acquire { lease_duration, .. } => Self::Attempt(Box::new(Attempt::new(
                size,
                started,
                *lease_duration,
                acquire_limit,
            ))),
            Request::Renew { .. } => Self::Renewal {
                started,
                tally: Tally::new(size),
            },
            Request::Observe => Self::Look {
                view: Box::new(View::new(size)),
                answered: 0,
            },
            Request::Slots { .. } => Self::Slots {
                view: Box::new(SlotView::new(size)),
                answered: 0,
            },
            Request::Inspect | Request::Break { .. } => Self::round(size, true, Moment::NEVER),
            // A master that loses its memory waits twice as long before it reads what the others granted meanwhile.
            Request::Claim { .. } | Request::Mark { .. } => Self::round(size, false, started + acquire_limit),
            _ => Self::round(size, false, Moment::NEVER),
        }
    }

    fn round(size: QuorumSize, all: bool, limit: Moment) -> Self {
        Self::Round {
            tally: Tally::new(size),
            answers: Box::new([const { None }; MAX_MASTERS]),
            all,
            limit,
        }
    }

    /// Whether what it leads to depends on when it began.
    pub(super) fn is_timed(&self) -> bool {
        match self {
            Self::Attempt(_) | Self::Renewal { .. } => true,
            Self::Round { limit, .. } => *limit != Moment::NEVER,
            Self::Look { .. } | Self::Slots { .. } | Self::Over => false,
        }
    }

    /// No reply is waited for after this.
    pub(super) fn limit(&self) -> Moment {
        match self {
            Self::Attempt(attempt) => attempt.limit(),
            Self::Round { limit, .. } => *limit,
            _ => Moment::NEVER,
        }
    }

    /// Takes one master's answer, received at `now`.
    pub(super) fn on_answer(
        &mut self,
        call: &Call,
        size: QuorumSize,
        master: usize,
        answer: Answer,
        now: Moment,
    ) -> Change {
        match self {
            Self::Over => Change::None,
            Self::Attempt(_) => self.on_attempt(call, master, answer, now),
            Self::Renewal { started, tally } => {
                tally.record(master, vote(&answer));
                if !tally.settled() {
                    return Change::None;
                }
                let delivery = match tally.verdict() {
                    Verdict::Won => Delivery::Renewed { started: *started },
                    _ if tally.refused_by_too_many() => Delivery::RenewalRefused,
                    _ => Delivery::RenewalUndecided,
                };
                self.over(delivery)
            }
            Self::Look { view, answered } => {
                *answered += 1;
                if let Some(sighting) = sighting(answer) {
                    view.record(master, sighting);
                }
                if *answered < size.masters() && !view.free() && !view.blocked() {
                    return Change::None;
                }
                let view = (**view).clone();
                self.over(Delivery::Observed(view))
            }
            Self::Slots { view, answered } => {
                *answered += 1;
                if let Answer::Slot(register) = answer {
                    view.record(register);
                }
                if *answered < size.masters() && !view.agreed() {
                    return Change::None;
                }
                let view = (**view).clone();
                self.over(Delivery::Slots(view))
            }
            Self::Round {
                tally,
                answers,
                all,
                limit,
            } => {
                let counts = if now < *limit {
                    vote(&answer)
                } else {
                    Vote::Unknown
                };
                tally.record(master, counts);
                answers[master] = Some(answer);
                let certain = if *all {
                    tally.outstanding() == 0
                } else {
                    tally.settled()
                };
                if !certain {
                    return Change::None;
                }
                let majority = tally.verdict() == Verdict::Won;
                let refused = tally.refused_by_too_many();
                let answers = std::mem::replace(answers, Box::new([const { None }; MAX_MASTERS]));
                self.over(Delivery::Done {
                    majority,
                    refused,
                    answers,
                })
            }
        }
    }

    fn on_attempt(&mut self, call: &Call, master: usize, answer: Answer, now: Moment) -> Change {
        let Self::Attempt(attempt) = self else {
            return Change::None;
        };
        let step = match &call.request {
            Request::Confirm { .. } => attempt.on_confirm(master, vote(&answer), now),
            _ => attempt.on_grant(master, grant_reply(answer), now),
        };
        match step {
            Step::Wait => Change::None,
            Step::Won(won) => self.over(Delivery::Won(won)),
            Step::Lost(loss) => self.over(Delivery::NotWon(loss)),
            Step::Confirm { token, granted } => {
                match (std::mem::replace(self, Self::Over), call.request.tenure()) {
                    (Self::Attempt(attempt), Some(tenure)) => Change::Confirm(
                        Request::Confirm {
                            tenure: tenure.clone(),
                            token,
                            granted,
                        },
                        attempt,
                    ),
                    _ => Change::None,
                }
            }
        }
    }

    fn over(&mut self, delivery: Delivery) -> Change {
        *self = Self::Over;
        Change::Deliver(delivery)
    }
}

pub(super) const fn vote(answer: &Answer) -> Vote {
    match answer {
        // One that shows what was asked for.
        Answer::Granted { .. } | Answer::Slot(_) => Vote::Granted,
        Answer::Refused(_) => Vote::Refused,
        Answer::Unknown(_) => Vote::Unknown,
    }
}

fn grant_reply(answer: Answer) -> GrantReply {
    match answer {
        Answer::Granted { number, marks } => GrantReply::Granted { number, marks },
        Answer::Refused(sighting) => GrantReply::Refused(sighting),
        Answer::Slot(_) | Answer::Unknown(_) => GrantReply::Unknown,
    }
}

/// What an observation shows: "granted" is free.
fn sighting(answer: Answer) -> Option<Sighting> {
    match answer {
        Answer::Granted { .. } => Some(Sighting::FREE),
        Answer::Refused(sighting) => Some(sighting),
        Answer::Slot(_) | Answer::Unknown(_) => None,
    }
}
