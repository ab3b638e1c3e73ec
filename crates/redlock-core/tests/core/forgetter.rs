//! A process that removes the registers of a lock that ended cleanly, while candidates contend for it.

use redlock_core::seal::{EndedKind, EndedRegister, Registers, ended_registers};

use crate::{
    plant::Plant,
    rate::{Instant, MS},
    scripts::{self, Named},
    world::{What, World},
};

/// The number of times that a removal is sent, and the latest time at which one arrives, in milliseconds.
const REPEATED: usize = 40;
const LATEST: u64 = 6_000;

/// The process, in one of four worlds.
#[derive(Debug)]
pub(crate) struct Forgetter {
    /// Has a state of its own: other worlds stay as they are.
    rng: fastrand::Rng,
    /// The registers that the masters have returned in this round.
    read: Vec<Option<Registers>>,
}

/// An action of the process.
#[derive(Clone, Debug)]
pub(crate) enum Forgetting {
    Begin,
    /// The registers of a master are read.
    Read {
        master: usize,
    },
    Decide,
    Remove {
        master: usize,
        ended: EndedRegister,
    },
}

impl Forgetter {
    pub(crate) fn of(seed: u64) -> Option<Self> {
        (seed % 4 == 1).then(|| Self {
            rng: fastrand::Rng::with_seed(seed),
            read: Vec::new(),
        })
    }

    fn later(&mut self, ms: u64) -> Instant {
        self.rng.u64(..ms) * MS
    }
}

impl World {
    pub(crate) fn begin_forgetting(&mut self) {
        // The registers of a fenced lock stay.
        if self.forgetter.is_some() && !self.is_fenced() {
            self.at(self.now, What::Forgets(Forgetting::Begin));
        }
    }

    pub(crate) fn forgets(&mut self, step: Forgetting) {
        let Some(mut forgetter) = self.forgetter.take() else {
            return;
        };
        match step {
            Forgetting::Begin if !self.storms() => {}
            Forgetting::Begin => {
                forgetter.read = vec![None; self.masters.len()];
                for master in 0..self.masters.len() {
                    let at = self.now + forgetter.later(50);
                    self.at(at, What::Forgets(Forgetting::Read { master }));
                }
                self.at(self.now + 50 * MS, What::Forgets(Forgetting::Decide));
            }
            Forgetting::Read { master } => {
                let votes = self.is_sealed_for(master, Named::Quorum);
                let registers = scripts::shipped(&self.masters[master].registers);
                forgetter.read[master] = (votes && self.reachable(master)).then_some(registers);
            }
            Forgetting::Decide => {
                for (master, ended) in self.ended(&forgetter) {
                    // The lock is rarely free: a call that is repeated meets such a moment.
                    for _ in 0..REPEATED {
                        let at = self.now + forgetter.later(LATEST);
                        let ended = ended.clone();
                        self.at(at, What::Forgets(Forgetting::Remove { master, ended }));
                    }
                }
                let at = self.now + forgetter.later(300);
                self.at(at, What::Forgets(Forgetting::Begin));
            }
            Forgetting::Remove { master, ended } => self.remove(master, &ended),
        }
        self.forgetter = Some(forgetter);
    }

    /// Returns the removals at each master. A planted fault believes one clean end.
    fn ended(&self, forgetter: &Forgetter) -> Vec<(usize, EndedRegister)> {
        let read: Option<Vec<Registers>> = forgetter.read.iter().cloned().collect();
        let majority = match self.planted.model {
            Plant::ForgetsByOne => 1,
            _ => self.size.majority(),
        };
        let ended = read.map_or_else(Vec::new, |read| ended_registers(&read, majority));
        let of = |master| ended.iter().map(move |ended| (master, ended.clone()));
        (0..self.masters.len()).flat_map(of).collect()
    }

    fn remove(&mut self, master: usize, ended: &EndedRegister) {
        if !self.reachable(master) || !self.is_sealed_for(master, Named::Quorum) {
            return;
        }
        let now = self.now;
        let server = &mut self.masters[master];
        let used = server.lease(now).is_some() || server.reservation(now).is_some();
        if used {
            return;
        }
        let unbounded = self.planted.model == Plant::ForgetsLater;
        let (registers, token) = (&mut server.registers, ended.token);
        match ended.kind {
            EndedKind::Held if registers.held <= token || unbounded => {
                registers.held = 0;
                if registers.delay.token <= token {
                    registers.delay = redlock_core::DeclaredDelay::default();
                }
                self.count("registers of an ended lease removed");
            }
            EndedKind::Clean if registers.clean <= token => registers.clean = 0,
            EndedKind::Held | EndedKind::Clean => {}
        }
    }
}
