//! What is written of an object. Pure: facts in, a status out.

mod condition;
mod lock;
mod quorum;

pub(super) use lock::{Author, HolderFacts, LockFacts, LockStanding, author, lock_status, taken};
pub(super) use quorum::{Health, QuorumFacts, quorum_status};
