//! What is written of an object. Pure: facts in, a status out.

mod condition;
mod holder;
mod lock;
mod progress;
mod quorum;
mod replicas;
mod surges;

pub(super) use holder::{HolderFacts, taken};
pub(super) use lock::{Author, LockFacts, LockStanding, author, lock_status};
pub(super) use quorum::{Health, QuorumFacts, quorum_status};
pub(super) use replicas::{OwnReadiness, has_silent, heard, replicas_status, reported};
pub(super) use surges::surge_news;

#[cfg(test)]
mod tests;
