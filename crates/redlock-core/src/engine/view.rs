//! What an engine shows of itself, for people, metrics and the tasks beside it.

use std::{sync::Arc, time::Duration};

use super::Engine;
use crate::{
    Admission, BootInstant, Clocks, FencingToken, Identity, Ineligible, MasterFacts, QuorumSize, Unknown,
    seal::{Known, Registers, Remembered},
};

/// The standing of one master.
#[derive(Clone, Debug)]
pub struct MasterView {
    pub connected: bool,
    pub facts: Option<MasterFacts>,
    /// Why it has no vote although it answers.
    pub ineligible: Option<Ineligible>,
    /// The last error, while it is not connected.
    pub trouble: Option<Unknown>,
    pub latency: Duration,
    /// Why it is not asked for votes; `None` if it is.
    pub no_vote: Option<Unknown>,
}

impl Engine {
    #[must_use]
    pub fn master(&self, master: usize, now: BootInstant) -> MasterView {
        let of = &self.masters[master];
        MasterView {
            connected: of.is_connected(),
            facts: of.facts.clone(),
            ineligible: of.ineligible(self.clocks.distrusted(master, now)),
            trouble: of.trouble.clone(),
            latency: of.latency,
            no_vote: self.admitted(master, Admission::Voting, now).err(),
        }
    }

    /// Whether the master is asked for votes.
    #[must_use]
    pub fn votes(&self, master: usize, now: BootInstant) -> bool {
        self.admitted(master, Admission::Voting, now).is_ok()
    }

    /// The facts that the last poll on the present connection gave.
    #[must_use]
    pub fn facts(&self, master: usize) -> Option<&MasterFacts> {
        let of = &self.masters[master];
        of.facts.as_ref().filter(|_| of.is_connected())
    }

    /// For how long the master has left everything unanswered.
    #[must_use]
    pub fn quiet(&self, master: usize, now: BootInstant) -> Duration {
        self.masters[master].quiet(now)
    }

    /// After how long the master is to be polled again, from the end of a poll.
    #[must_use]
    pub fn poll_after(&self, master: usize) -> Duration {
        self.masters[master].poll_after()
    }

    #[must_use]
    pub const fn size(&self) -> QuorumSize {
        self.size
    }

    #[must_use]
    pub const fn clocks(&self) -> &Clocks {
        &self.clocks
    }

    /// How often the local clock stepped: what was won before the last time is lost.
    #[must_use]
    pub const fn local_steps(&self) -> u64 {
        self.local_steps
    }

    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Keeps the id that was drawn for a quorum without one; the first one stays.
    pub fn set_drawn(&mut self, id: crate::QuorumId) {
        self.identity.set_drawn(id);
    }

    #[must_use]
    pub fn stamp(&self) -> Arc<str> {
        self.identity.stamp()
    }

    #[must_use]
    pub const fn command_timeout(&self) -> Duration {
        self.command_timeout
    }

    /// The longest that any command was ever given.
    #[must_use]
    pub const fn longest_timeout(&self) -> Duration {
        self.longest_timeout
    }

    /// Takes a token into the floor of the counter after a total loss.
    pub fn remember(&mut self, token: FencingToken, unix_time: Duration) -> Remembered {
        Known::remember(&mut self.known, token, unix_time)
    }

    /// The registers that this process knows of, for that floor.
    #[must_use]
    pub fn known_registers(&self) -> Registers {
        self.known.registers()
    }
}
