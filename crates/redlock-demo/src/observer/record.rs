//! What the observer has written down.

use std::collections::BTreeMap;

use crate::claims::{Claims, Incarnation};
use crate::journal::Line;
use crate::tenure::Account;
use redlock_core::BootInstant;

/// One master, as it shows itself.
#[derive(Clone, Debug, Default)]
pub struct MasterView {
    pub answers: bool,
    /// Its seal is that of its present run.
    pub sealed: bool,
    /// A candidate has begun to seal it.
    pub probed: bool,
    /// Of the run that answered last.
    pub run_id: String,
    /// Leases seen on it while it had no seal. There must be none.
    pub stray_leases: u64,
    /// How often it was looked at.
    pub looks: u64,
}

/// One life of a replica, as it shows itself.
#[derive(Clone, Debug)]
pub struct ReplicaView {
    pub who: Incarnation,
    pub ready: bool,
    pub answers: bool,
    /// As it says in `/locks`.
    pub quorum: Option<String>,
    pub lines: Vec<Line>,
    /// How often it answered what it holds.
    pub answered: u64,
}

#[derive(Debug)]
pub struct Record {
    pub locks: Vec<String>,
    pub claims: Claims,
    /// By lock.
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

    /// Lock and token of all that a replica holds at `now`.
    pub fn held_by(&self, who: &Incarnation, now: BootInstant) -> Vec<(String, u64)> {
        let held = self
            .claims
            .all()
            .iter()
            .filter(|claim| claim.who == *who && claim.holds_at(now));
        held.map(|claim| (claim.lock.clone(), claim.token)).collect()
    }

    /// Whether every lock is held at `now`.
    pub fn all_held(&self, now: BootInstant) -> bool {
        self.locks
            .iter()
            .all(|lock| self.claims.holder(lock, now).is_some())
    }
}
