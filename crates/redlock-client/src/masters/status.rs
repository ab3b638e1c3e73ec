//! Describes the state of a master for users and metrics.

use std::time::Duration;

use redlock_core::{Ineligible, MasterFacts, Unknown, seal::Blocked};

/// The state of a master for users and metrics.
#[derive(Clone, Debug, Default)]
pub struct MasterStatus {
    pub name: String,
    pub url: String,
    pub connected: bool,
    pub facts: Option<MasterFacts>,
    /// The reason why the master has no vote although it answers.
    pub ineligible: Option<Ineligible>,
    /// The last error, while the master is not connected.
    pub trouble: Option<Unknown>,
    /// The permission that the master refused when a script last ran there: that script gets no vote of this
    /// master.
    pub not_permitted: Option<Unknown>,
    /// The reason why the server refuses writes, such as a full memory: no lock can be acquired there.
    pub refused_write: Option<Unknown>,
    /// The reason why the master refuses the new credentials or certificates; the connection continues with
    /// the earlier ones.
    pub not_renewed: Option<Unknown>,
    /// The remaining wait, while this process is about to seal the master.
    pub sealing_left: Option<Duration>,
    /// The reason why the master cannot be sealed, however long the wait.
    pub seal_blocked: Option<Blocked>,
    pub latency: Duration,
    pub clock_offset_seconds: Option<f64>,
    /// The reason why the master is not asked for votes; `None` if it is asked.
    pub no_vote: Option<Unknown>,
}

impl MasterStatus {
    /// Reports whether the votes of the master count.
    #[must_use]
    pub const fn votes(&self) -> bool {
        self.no_vote.is_none()
    }

    /// Reports whether the master votes, permits every script that was run there, and accepts writes.
    #[must_use]
    pub const fn grants(&self) -> bool {
        self.accepts_writes() && self.not_permitted.is_none()
    }

    /// Reports whether the master votes, and refused no write since the last one that succeeded.
    #[must_use]
    pub const fn accepts_writes(&self) -> bool {
        self.votes() && self.refused_write.is_none()
    }

    /// Returns the reason why the server refuses a script or all writes.
    #[must_use]
    pub fn refusal(&self) -> Option<&Unknown> {
        self.not_permitted.as_ref().or(self.refused_write.as_ref())
    }

    /// Reports whether the master does not accept the user, the password or the permissions.
    #[must_use]
    pub fn auth(&self) -> bool {
        let troubles = [&self.trouble, &self.not_permitted, &self.not_renewed];
        troubles.into_iter().flatten().any(Unknown::is_auth)
    }

    /// Reports whether the master was polled, or failed with a known error.
    #[must_use]
    pub fn known(&self) -> bool {
        self.trouble.is_some() || self.answers()
    }

    /// Reports whether the master is connected and was polled.
    #[must_use]
    pub fn answers(&self) -> bool {
        self.connected && self.trouble.is_none() && self.facts.is_some()
    }
}
