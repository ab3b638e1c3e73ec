//! One exchange with all masters and how far it is, decided with the production code.

use std::time::Duration;

use redlock::lease::{
    Attempt, GrantReply, LeaseValue, Loss, Marks, Moment, Outcome, QuorumSize, Sighting, Step, Tally,
    Verdict, View, Vote,
};

use super::message::Answer;

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "few are alive at a time")]
pub enum Progress {
    Granting(Attempt),
    Confirming(Attempt),
    Renewing {
        started: Moment,
        tally: Tally,
    },
    Looking {
        view: View,
        answered: usize,
    },
    /// A release or an undo; a reserve.
    Telling {
        tally: Tally,
        reserve: bool,
    },
    Over,
}

#[derive(Debug)]
pub struct Flight {
    /// The round of the machine, if it waits for one.
    pub round: Option<u64>,
    pub lease: LeaseValue,
    pub duration: Duration,
    pub progress: Progress,
    /// Masters that have not answered.
    pub missing: Vec<usize>,
}

/// What an answer led to.
#[allow(clippy::large_enum_variant, reason = "taken apart at once")]
pub enum Change {
    Wait,
    Finished(Outcome),
    Confirm {
        attempt: Attempt,
        token: u64,
        granted: Vec<(usize, u64)>,
    },
}

pub const fn vote(answer: &Answer) -> Vote {
    match answer {
        Answer::Granted(_) | Answer::Done => Vote::Granted,
        Answer::Unknown => Vote::Unknown,
        Answer::NotMine | Answer::Free | Answer::Ours | Answer::Blocked(..) => Vote::Refused,
    }
}

fn sighting(answer: Answer, now: Moment) -> Option<Sighting> {
    match answer {
        Answer::Unknown => None,
        Answer::Ours => Some(Sighting::OURS),
        Answer::Blocked(what, left) => Some(Sighting::blocked(what, now + Duration::from_millis(left))),
        _ => Some(Sighting::FREE),
    }
}

impl Flight {
    pub fn answered(&mut self, size: QuorumSize, master: usize, answer: Answer, now: Moment) -> Change {
        match std::mem::replace(&mut self.progress, Progress::Over) {
            Progress::Over => Change::Wait,
            Progress::Granting(mut attempt) => {
                let reply = match answer {
                    Answer::Granted(number) => GrantReply::Granted {
                        number,
                        marks: Marks::default(),
                    },
                    answer => sighting(answer, now).map_or(GrantReply::Unknown, GrantReply::Refused),
                };
                let step = attempt.on_grant(master, reply, now);
                self.step(step, attempt, false)
            }
            Progress::Confirming(mut attempt) => {
                let step = attempt.on_confirm(master, vote(&answer), now);
                self.step(step, attempt, true)
            }
            Progress::Renewing { started, mut tally } => {
                tally.record(master, vote(&answer));
                if !tally.settled() {
                    self.progress = Progress::Renewing { started, tally };
                    return Change::Wait;
                }
                Change::Finished(match tally.verdict() {
                    Verdict::Won => Outcome::Renewed { started },
                    _ if tally.refused_by_too_many() => Outcome::RenewalRefused,
                    _ => Outcome::RenewalUndecided,
                })
            }
            Progress::Looking { mut view, answered } => {
                let answered = answered + 1;
                if let Some(sighting) = sighting(answer, now) {
                    view.record(master, sighting);
                }
                if answered < size.masters() && !view.free() && !view.blocked() {
                    self.progress = Progress::Looking { view, answered };
                    return Change::Wait;
                }
                Change::Finished(Outcome::Observed(view))
            }
            Progress::Telling { mut tally, reserve } => {
                tally.record(master, vote(&answer));
                if !tally.settled() {
                    self.progress = Progress::Telling { tally, reserve };
                    return Change::Wait;
                }
                let majority = tally.verdict() == Verdict::Won;
                Change::Finished(if reserve {
                    Outcome::Reserved { majority }
                } else {
                    Outcome::Released
                })
            }
        }
    }

    fn step(&mut self, step: Step, attempt: Attempt, confirming: bool) -> Change {
        match step {
            Step::Wait if confirming => self.progress = Progress::Confirming(attempt),
            Step::Wait => self.progress = Progress::Granting(attempt),
            Step::Won(won) => return Change::Finished(Outcome::Won(won)),
            Step::Lost(loss) => return Change::Finished(Outcome::NotWon(loss)),
            Step::Confirm { token, granted } => {
                let token = token.0;
                return Change::Confirm {
                    attempt,
                    token,
                    granted,
                };
            }
        }
        Change::Wait
    }
}

pub fn is_lost(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::NotWon(Loss::Refused(_) | Loss::NoQuorum(_) | Loss::TooLate)
    )
}
