//! The Redis side: N independent masters, asked in parallel, whose majority decides.
//!
//! Owns the connections, the scripts and the seals. Refuses to know anything of Kubernetes, and to decide: what votes
//! mean is said by [`crate::lease`].

mod access;
mod adopt;
mod clocks;
mod config;
mod courier;
mod fingerprint;
mod first_look;
mod gate;
mod identity;
mod keys;
mod link;
mod look;
mod permission;
mod random;
mod reply;
mod reporters;
mod scripts;
mod seal;
mod set;
mod survey;
mod timeout;
mod trial;
mod unknown;

pub use adopt::{AdoptError, Adopted, Agreement, adopt, adopt_open};
pub use config::{ConfigError, Credentials, MasterConfig, MastersConfig, Secret, Tls, without_credentials};
pub use courier::{Call, Delivery, Meter, Operation, Request, Tenure};
pub use fingerprint::{Fingerprint, FingerprintError};
pub use gate::Unfit;
pub use identity::QuorumId;
pub use keys::{Keyspace, LockKeys};
pub use link::{MasterStatus, Notice};
pub use look::Facts;
pub use reply::Answer;
pub use reporters::{Reporters, reporter_lock, scope_reporter_lock};
pub use seal::{
    Blocked, InitError, InitReport, NotDone, OldServer, Progress, Registers, Remembered, ResealError,
    ResealReport, RetireOutcome, Slot, init, reseal,
};
pub use set::{Acquired, Closed, Lease, Masters, Notices, Renewal, TaskEnded, Tasks};
pub use survey::{LockAccount, LockNames};
pub use trial::TrialError;
pub use unknown::Unknown;
