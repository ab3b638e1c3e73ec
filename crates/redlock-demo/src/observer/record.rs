//! The record of the observer.

use std::collections::BTreeMap;

use crate::claims::{Claims, Incarnation};
use crate::journal::Line;
use crate::tenure::Account;
use redlock_core::BootInstant;

/// The observed state of one master.
#[derive(Clone, Debug, Default)]
pub struct MasterView {
    pub answers: bool,
    /// Whether its seal is that of its present run.
    pub sealed: bool,
    /// Whether a candidate has begun to seal it.
    pub probed: bool,
    /// The `run_id` of the run that answered last.
    pub run_id: String,
    /// The number of leases seen on it while it had no seal; must be 0.
    pub stray_leases: u64,
    /// The number of reads of this master.
    pub reads: u64,
}

/// The observed state of one life of a replica.
#[derive(Clone, Debug)]
pub struct ReplicaView {
    pub who: Incarnation,
    pub ready: bool,
    pub answers: bool,
    /// The state of the quorum as `/locks` reports it.
    pub quorum: Option<String>,
    pub lines: Vec<Line>,
    /// The number of its answers to `/locks`.
    pub answered: u64,
}

#[derive(Debug)]
pub struct Record {
    pub locks: Vec<String>,
    pub claims: Claims,
    /// The leases of each lock.
    pub accounts: BTreeMap<String, Account>,
    pub masters: Vec<MasterView>,
    /// All lives, in the order of their start.
    pub replicas: Vec<ReplicaView>,
}

impl Record {
    pub fn new(locks: &[String], masters: usize) -> Self {
        Self {
            locks: locks.to_vec(),
            claims: Claims::default(),
            accounts: locks
                .iter()
                .map(|lock| (lock.clone(), Account::new(masters)))
                .collect(),
            masters: vec![MasterView::default(); masters],
            replicas: Vec::new(),
        }
    }

    pub fn replica(&self, who: &Incarnation) -> Option<&ReplicaView> {
        self.replicas.iter().find(|replica| replica.who == *who)
    }

    pub(super) fn replica_mut(&mut self, who: &Incarnation) -> Option<&mut ReplicaView> {
        self.replicas.iter_mut().find(|replica| replica.who == *who)
    }

    /// Returns the lock and token of every claim of a replica at `now`.
    pub fn held_by(&self, who: &Incarnation, now: BootInstant) -> Vec<(String, u64)> {
        let held = self
            .claims
            .all()
            .iter()
            .filter(|claim| claim.who == *who && claim.holds_at(now));
        held.map(|claim| (claim.lock.clone(), claim.token)).collect()
    }

    /// Reports whether every lock is held at `now`.
    pub fn all_held(&self, now: BootInstant) -> bool {
        self.locks
            .iter()
            .all(|lock| self.claims.holder(lock, now).is_some())
    }
}
