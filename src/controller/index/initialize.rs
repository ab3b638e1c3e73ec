//! `firstStart: Immediate`: seals new masters at once, one time.
//!
//! That it was begun is written down before it is. In the other order there is a trace that breaks S1: the masters are
//! initialised, the API server is away and nothing is remembered, leases are granted, all masters lose their memory,
//! and a second `init` lets others in while the first holders still believe.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Effect, Index, World};
use crate::{
    api::{RedisQuorum, redis_quorum::FirstStart},
    controller::{index::quorum_store::Initializing, writer::Item},
    masters::{InitError, InitReport, MasterFacts, MasterStatus},
};

impl Index {
    /// Takes the next step, if there is one to take.
    pub(super) fn initialize(&mut self, name: &str, at: &World<'_>) {
        let Some(status) = self.open.get(name).and_then(|_| at.views.masters(name)) else {
            return;
        };
        let Some(entry) = self.quorums.get_mut(name) else {
            return;
        };
        if entry.object.spec.first_start != FirstStart::Immediate {
            return;
        }
        let remembered = entry
            .object
            .status
            .as_ref()
            .is_some_and(|status| status.initialized_time.is_some());
        match entry.initializing {
            Initializing::No if !remembered && entry.initialized.is_none() => {
                let used = status
                    .iter()
                    .any(|master| master.facts.as_ref().is_some_and(MasterFacts::sealed));
                if used || status.iter().all(is_new) {
                    entry.initialized = Some(Time(at.stamp()));
                    if !used {
                        entry.initializing = Initializing::Remembering;
                    }
                    self.writer.push(Item::Quorum(name.to_owned()));
                }
            }
            Initializing::Allowed => {
                entry.initializing = Initializing::Running;
                tracing::info!(quorum = name, "first start: initialising the masters");
                self.effects.push(Effect::InitializeMasters(name.to_owned()));
            }
            Initializing::No | Initializing::Remembering | Initializing::Running => {}
        }
    }

    /// A status of ours was written. If it is the one that remembers the first start, the first start may begin.
    pub(super) fn remembered(&mut self, object: &RedisQuorum) {
        let name = object.metadata.name.clone().unwrap_or_default();
        let Some(entry) = self.quorums.get_mut(&name) else {
            return;
        };
        let written = object
            .status
            .as_ref()
            .and_then(|status| status.initialized_time.clone());
        if entry.initializing == Initializing::Remembering && written.is_some() {
            entry.initializing = Initializing::Allowed;
        }
    }

    pub(super) fn on_initialized(&mut self, quorum: &str, end: Option<Result<InitReport, InitError>>) {
        if let Some(entry) = self.quorums.get_mut(quorum) {
            // It is remembered in the status, and not begun again.
            entry.initializing = Initializing::No;
        }
        match end {
            Some(Ok(report)) => {
                tracing::info!(quorum, sealed = ?report.sealed, counter = report.counter, "masters initialised");
            }
            None => tracing::warn!(
                quorum,
                "the first start broke off: masters are sealed after the ordinary wait"
            ),
            Some(Err(error)) => {
                let error = error.to_string();
                tracing::warn!(
                    quorum,
                    error,
                    "masters are sealed after the ordinary wait instead"
                );
            }
        }
    }
}

fn is_new(master: &MasterStatus) -> bool {
    let facts = master.facts.as_ref();
    master.connected
        && master.ineligible.is_none()
        && facts.is_some_and(|facts| facts.seal.is_empty() && facts.counter == 0)
}
