//! Tracks the progress of one request, and decides when its completion is certain.

use crate::{
    Answer, Attempt, BootInstant, Command, Completion, GrantReply, MAX_MASTERS, QuorumSize, Sighting,
    SlotView, Step, Tally, Verdict, View, Vote, command::Item, timing,
};

/// The state that is needed to decide a request of its kind.
#[derive(Debug)]
pub(super) enum Progress {
    Attempt(Box<Attempt>),
    Renewal {
        started: BootInstant,
        tally: Tally,
    },
    Observation {
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
        /// The time from which an answer no longer counts.
        limit: BootInstant,
    },
    Over,
}

/// The effect of an answer.
#[derive(Debug)]
pub(super) enum Change {
    None,
    Completed(Completion),
    /// The attempt continues with a confirm.
    Confirm(Item, Box<Attempt>),
}

impl Progress {
    pub(super) fn new(
        item: &Item,
        size: QuorumSize,
        started: BootInstant,
        acquire_limit: std::time::Duration,
    ) -> Self {
        let Item::Command(command) = item else {
            return Self::round(size, false, BootInstant::NEVER);
        };
        match command {
            Command::Acquire { lease_duration, .. } => Self::Attempt(Box::new(Attempt::new(
                size,
                started,
                *lease_duration,
                acquire_limit,
            ))),
            Command::Renew { .. } => Self::Renewal {
                started,
                tally: Tally::new(size),
            },
            Command::Observe => Self::Observation {
                view: Box::new(View::new(size)),
                answered: 0,
            },
            Command::Slots { .. } => Self::Slots {
                view: Box::new(SlotView::new(size)),
                answered: 0,
            },
            Command::Inspect | Command::Break { .. } => Self::round(size, true, BootInstant::NEVER),
            // The wait of a seal, which precedes the read of what the other masters granted meanwhile,
            // includes twice this limit (P-79).
            Command::Claim { .. } | Command::Mark { .. } => Self::round(size, false, started + acquire_limit),
            _ => Self::round(size, false, BootInstant::NEVER),
        }
    }

    fn round(size: QuorumSize, all: bool, limit: BootInstant) -> Self {
        Self::Round {
            tally: Tally::new(size),
            answers: Box::new([const { None }; MAX_MASTERS]),
            all,
            limit,
        }
    }

    /// Reports whether the result depends on the time at which the request began.
    pub(super) fn is_timed(&self) -> bool {
        match self {
            Self::Attempt(_) | Self::Renewal { .. } => true,
            Self::Round { limit, .. } => *limit != BootInstant::NEVER,
            Self::Observation { .. } | Self::Slots { .. } | Self::Over => false,
        }
    }

    /// Returns the time after which the engine waits for no reply.
    pub(super) fn limit(&self) -> BootInstant {
        match self {
            Self::Attempt(attempt) => attempt.limit(),
            Self::Round { limit, .. } => *limit,
            _ => BootInstant::NEVER,
        }
    }

    /// Handles one master's answer, received at `now`.
    pub(super) fn on_answer(
        &mut self,
        item: &Item,
        size: QuorumSize,
        master: usize,
        answer: Answer,
        now: BootInstant,
    ) -> Change {
        match self {
            Self::Over => Change::None,
            Self::Attempt(_) => self.on_attempt(item, master, answer, now),
            Self::Renewal { started, tally } => {
                tally.record(master, vote(&answer));
                if !tally.settled() {
                    return Change::None;
                }
                // Only the votes of this round count (P-44). More than N - M refusals lose the lease at once (P-47).
                let completion = match tally.verdict() {
                    Verdict::Won => Completion::Renewed { started: *started },
                    _ if tally.refused_by_too_many() => Completion::RenewalRefused,
                    _ => Completion::RenewalUndecided,
                };
                self.over(completion)
            }
            Self::Observation { .. } | Self::Slots { .. } => self.on_view(size, master, answer),
            Self::Round { .. } => self.on_round(master, answer, now),
        }
    }

    /// Ends the read of a lock or its slots once the masters that answered agree, or all have answered.
    fn on_view(&mut self, size: QuorumSize, master: usize, answer: Answer) -> Change {
        let completion = match self {
            Self::Observation { view, answered } => {
                *answered += 1;
                if let Some(sighting) = sighting(answer) {
                    view.record(master, sighting);
                }
                // A further answer may show an end that a key can have, or that of a right clock.
                let is_sure = view.blocked() && !view.is_bounded() && !view.has_late_end();
                let ends = *answered == size.masters() || view.free() || is_sure;
                ends.then(|| Completion::Observed((**view).clone()))
            }
            Self::Slots { view, answered } => {
                *answered += 1;
                if let Answer::Slot(register) = answer {
                    view.record(register);
                }
                let ends = *answered == size.masters() || view.agreed();
                ends.then(|| Completion::Slots((**view).clone()))
            }
            _ => None,
        };
        completion.map_or(Change::None, |completion| self.over(completion))
    }

    fn on_round(&mut self, master: usize, answer: Answer, now: BootInstant) -> Change {
        let Self::Round {
            tally,
            answers,
            all,
            limit,
        } = self
        else {
            return Change::None;
        };
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
        self.over(Completion::Done {
            majority,
            refused,
            answers,
        })
    }

    fn on_attempt(&mut self, item: &Item, master: usize, answer: Answer, now: BootInstant) -> Change {
        let Self::Attempt(attempt) = self else {
            return Change::None;
        };
        let step = match item {
            Item::Confirm { .. } => attempt.on_confirm(master, vote(&answer), now),
            _ => attempt.on_grant(master, grant_reply(answer), now),
        };
        match step {
            Step::Wait => Change::None,
            Step::Won(mut won) => {
                won.succession = item.attempt().and_then(|lease| {
                    let until = now + timing::outlived(lease.lifetime);
                    let fence = lease.fence()?;
                    Some(fence.win(attempt.registers(), won.marks.held, won.token, until))
                });
                self.over(Completion::Won(won))
            }
            Step::Lost(loss) => self.over(Completion::NotWon(loss)),
            Step::Confirm { token, granted } => match (std::mem::replace(self, Self::Over), item.attempt()) {
                (Self::Attempt(attempt), Some(lease)) => Change::Confirm(
                    Item::Confirm {
                        attempt: lease.clone(),
                        token,
                        granted,
                    },
                    attempt,
                ),
                _ => Change::None,
            },
        }
    }

    fn over(&mut self, completion: Completion) -> Change {
        *self = Self::Over;
        Change::Completed(completion)
    }
}

pub(super) const fn vote(answer: &Answer) -> Vote {
    match answer {
        // The master shows the requested value.
        Answer::Granted { .. } | Answer::Slot(_) => Vote::Granted,
        Answer::Refused(_) => Vote::Refused,
        Answer::Unknown(_) => Vote::Unknown,
    }
}

fn grant_reply(answer: Answer) -> GrantReply {
    match answer {
        Answer::Granted { number, marks, mark } => GrantReply::Granted { number, marks, mark },
        Answer::Refused(sighting) => GrantReply::Refused(sighting),
        Answer::Slot(_) | Answer::Unknown(_) => GrantReply::Unknown,
    }
}

/// Returns the result of an observation, where "granted" means free.
fn sighting(answer: Answer) -> Option<Sighting> {
    match answer {
        Answer::Granted { .. } => Some(Sighting::FREE),
        Answer::Refused(sighting) => Some(sighting),
        Answer::Slot(_) | Answer::Unknown(_) => None,
    }
}
