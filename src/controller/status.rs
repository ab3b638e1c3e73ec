//! Computes the statuses of objects. Pure: facts in, a status out.

mod author;
mod blind;
mod condition;
mod ended;
mod enforced;
mod guarded;
mod holder;
mod lock;
mod progress;
mod quorum;
mod replicas;
mod surges;
mod takeover;

pub(super) use author::{Author, AuthorFacts, Visibility, author};
pub(super) use blind::{BlindStatus, adds, claims, rests_until};
pub(super) use ended::{
    EndedFacts, EndedReporter, HeldUntilEnd, ended_quorum, ended_status, stopping_status,
};
pub(super) use enforced::LockFacts;
pub(super) use holder::{HolderFacts, taken};
pub(super) use lock::lock_status;
pub(super) use quorum::{Health, QuorumFacts, quorum_status};
pub(super) use replicas::{OwnReadiness, has_silent, replicas_status, reported, without_silent};
pub(super) use surges::surge_news;
pub(super) use takeover::postponed;

#[cfg(test)]
mod tests;
