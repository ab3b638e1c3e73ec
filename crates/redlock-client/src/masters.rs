//! Communicates with N independent masters in parallel; a majority of them decides.
//!
//! Owns the connections, the scripts and the seals. Knows nothing of Kubernetes, and decides nothing:
//! [`crate::lease`] interprets the votes.

mod access;
mod adopt;
mod config;
mod driver;
mod fence;
mod first_poll;
mod link;
mod master_url;
mod permission;
mod preflight;
mod random;
#[cfg(test)]
mod reply_fuzz;
mod reporters;
mod scan;
mod scripts;
mod seal;
mod set;
mod shared;
mod status;
mod turns;

pub use adopt::{AdoptError, Adopted, Agreement, adopt, adopt_open};
pub use config::{
    ConfigError, Credentials, DEFAULT_KEY_PREFIX, MasterConfig, MasterLogin, MastersConfig, ScriptLoading,
    Secret, Tls,
};
pub use driver::{Call, Meter};
pub use fence::{FenceReadings, FenceRound};
pub use link::Notice;
pub use master_url::{MasterUrl, MasterUrlError, URL_SHAPE, redact};
pub use preflight::PreflightError;
pub use redlock_core::{
    Answer, Command, Completion, Fingerprint, FingerprintError, Ineligible, Keyspace, LeaseAttempt, LockKeys,
    MasterFacts, Operation, QuorumId, Refusal, Server, Unknown, server,
};
pub use reporters::{
    Reporters, TakesPart, abstaining_lock, declining_lock, reporter_lock, scope_reporter_lock, willing_lock,
};
pub use scan::{LockAccount, LockNames};
pub use seal::{
    Blocked, InitError, InitReport, NotDone, NotForgotten, OldServer, Progress, Registers, Remembered,
    ResealError, ResealReport, RetireOutcome, Slot, begin_init, init, reseal,
};
pub use set::{AcquireError, Acquired, Closed, Lease, Masters, Notices, Renewal, TaskEnded, Tasks};
pub use status::MasterStatus;
