//! Exposes the state of an engine to users, metrics and the tasks around it.

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
    /// The reason why it has no vote although it answers.
    pub ineligible: Option<Ineligible>,
    /// The last error, while it is not connected.
    pub trouble: Option<Unknown>,
    pub latency: Duration,
    /// The reason why it is not asked for votes; `None` if it is asked.
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

    /// Reports whether the master is asked for votes.
    #[must_use]
    pub fn votes(&self, master: usize, now: BootInstant) -> bool {
        self.admitted(master, Admission::Voting, now).is_ok()
    }

    /// Returns the facts of the last poll on the present connection.
    #[must_use]
    pub fn facts(&self, master: usize) -> Option<&MasterFacts> {
        let of = &self.masters[master];
        of.facts.as_ref().filter(|_| of.is_connected())
    }

    /// Returns the time for which the master has left all requests unanswered.
    #[must_use]
    pub fn quiet(&self, master: usize, now: BootInstant) -> Duration {
        self.masters[master].quiet(now)
    }

    /// Returns the time from the end of a poll of the master to the next one.
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

    /// Returns the number of steps of the local clock: a lease that was won before the last step is lost.
    #[must_use]
    pub const fn local_steps(&self) -> u64 {
        self.local_steps
    }

    /// Returns how often a majority of the masters was found sealed for another quorum: a lease that was won before is
    /// lost.
    #[must_use]
    pub const fn quorum_losses(&self) -> u64 {
        self.quorum_losses
    }

    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Stores the id that was drawn for a quorum without an id. The first such id is kept.
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

    /// Returns the longest command timeout so far.
    #[must_use]
    pub const fn longest_timeout(&self) -> Duration {
        self.longest_timeout
    }

    /// Adds a token to the floor of the counter after a total loss.
    pub fn remember(&mut self, token: FencingToken, unix_time: Duration) -> Remembered {
        Known::remember(&mut self.known, token, unix_time)
    }

    /// Returns the registers that this process knows, for that floor.
    #[must_use]
    pub fn known_registers(&self) -> Registers {
        self.known.registers()
    }
}
