//! Carries out the requests of a candidate.

use std::time::Duration;

use redlock_core::{Event, FencingToken, Mark, Marks};

use super::{Call, What, World};
use crate::candidate::{Out, SecondEvent};

impl World {
    pub(crate) fn carry(&mut self, candidate: usize, out: Vec<Out>) {
        let life = self.candidates[candidate].life;
        self.interrupt_attempt(candidate);
        self.interrupt_renewal(candidate);
        self.stop_amid_a_round(candidate);
        for out in out {
            if self.trace {
                println!("              {candidate}: {out:?}");
            }
            let clock = self.candidates[candidate].clock;
            match out {
                Out::Transmit(transmit) => {
                    let (master, connection) = (transmit.id.master, transmit.connection.0);
                    let deadline = clock.instant(transmit.deadline);
                    let text = self.text(candidate, &transmit);
                    let call = Call::Script {
                        transmit,
                        deadline,
                        text,
                    };
                    self.dispatch(candidate, (master, connection), call);
                }
                Out::Poll {
                    master,
                    connection,
                    number,
                } => self.dispatch(candidate, (master, connection), Call::Poll(number)),
                Out::Open { master } => self.open(candidate, master),
                Out::WakeAt(due) => self.at(clock.instant(due), What::Timer { candidate, life, due }),
                Out::SecondWakeAt(due) => {
                    self.second_at(clock.instant(due), candidate, SecondEvent::Timer(due));
                }
                Out::SecondActive { token, won } => self.on_second_active(candidate, token, won),
                Out::TimeoutAt(due) => self.at(clock.instant(due), What::Timeout { candidate, life, due }),
                Out::KeepAt { master, at: due } => {
                    let what = What::Keep {
                        candidate,
                        life,
                        master,
                        due,
                    };
                    self.at(clock.instant(due), what);
                }
                Out::Active {
                    token,
                    won,
                    succession,
                } => {
                    self.on_active(candidate, token, won);
                    if let (Some((marks, _)), Some(succession)) = (won, succession) {
                        self.on_won_fenced(candidate, token.0, (marks, succession));
                    }
                }
                Out::Marked { token, mark } => self.on_marked(candidate, token, mark),
                Out::Claimed { slot, job } => self.checks.claimed(slot, job, self.now),
                Out::Reserved {
                    cluster,
                    began,
                    until,
                } => {
                    // The end of a lease from before the clock stood still is invalid.
                    if self.clock_stood_still(candidate) {
                        continue;
                    }
                    let (began, until) = (clock.instant(began), clock.instant(until));
                    self.checks.reserved(&cluster, began, until);
                }
                Out::NoTimeToStop(how) => self.checks.fail("stop", self.now, how),
                Out::WithoutAuthority => {
                    self.checks.fail(
                        "S4",
                        self.now,
                        "a renewal was sent after the local end".to_owned(),
                    );
                }
            }
        }
    }
    fn on_active(&mut self, candidate: usize, token: FencingToken, won: Option<(Marks, Duration)>) {
        let late = self.begun_before_the_stop(candidate, token, won);
        let cluster = &self.candidates[candidate].cluster;
        if late {
            let won = won.is_some();
            self.checks
                .active_late(token.0, won, (candidate, cluster), self.now);
            return;
        }
        self.checks.active(token.0, won, (candidate, cluster), self.now);
        if won.is_some() && !self.is_fenced() && self.rng.bool() {
            self.declare(candidate);
        }
    }

    fn on_marked(&mut self, candidate: usize, token: u64, mark: Mark) {
        if self.is_fenced() {
            self.on_marked_fenced(candidate, token, mark);
        }
        match mark {
            Mark::Held { delay } if self.is_fenced() => self.checks.held(token, delay),
            Mark::Held { delay } => {
                self.checks.held(token, delay);
                // The targets change, and with them the time that their stop needs.
                if self.delays.u32(..3) == 0 {
                    self.declare(candidate);
                }
            }
            Mark::Closed => {}
            Mark::Clean => {
                let abstain = Duration::from_millis(self.rng.u64(..500));
                self.notify(candidate, Event::StepDown { abstain });
            }
        }
    }
}
