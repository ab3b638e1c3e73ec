//! `firstStart: Immediate`: seals new masters at once, one time.
//!
//! That it was begun is written down before it is. In the other order there is a trace that breaks S1: the masters are
//! initialised, the API server is away and nothing is remembered, leases are granted, all masters lose their memory,
//! and a second `init` lets others in while the first holders still believe.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Effect, Index, World};
use crate::{
    api::{RedisQuorum, redis_quorum::FirstStart},
    controller::writer::Item,
    masters::{InitError, InitReport, MasterFacts, MasterStatus},
};

/// That it was begun is remembered before it is: a replica that finds it remembered must not begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Initialization {
    /// Not begun, as far as this replica knows.
    #[default]
    No,
    /// All masters are new; the status is being written.
    Remembering(Time),
    /// This replica remembered it, and may begin.
    Allowed(Time),
    Running(Time),
    /// It ended, or the masters were in use before, at this time at the latest.
    Over(Time),
}

impl Initialization {
    /// For the status.
    pub(super) fn time(&self) -> Option<&Time> {
        match self {
            Self::No => None,
            Self::Remembering(time) | Self::Allowed(time) | Self::Running(time) | Self::Over(time) => {
                Some(time)
            }
        }
    }

    fn end(&mut self) {
        *self = self.time().cloned().map_or(Self::No, Self::Over);
    }

    /// The status remembers it, by another replica, which begins.
    pub(super) fn is_remembered_elsewhere(&mut self) {
        if matches!(self, Self::Remembering(_)) {
            self.end();
        }
    }

    fn allow(&mut self) {
        if let Self::Remembering(time) = self {
            *self = Self::Allowed(time.clone());
        }
    }
}

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
        match &entry.initialization {
            Initialization::No if !remembered => {
                let used = status
                    .iter()
                    .any(|master| master.facts.as_ref().is_some_and(MasterFacts::sealed));
                let now = Time(at.stamp());
                entry.initialization = match used {
                    true => Initialization::Over(now),
                    false if status.iter().all(is_new) => Initialization::Remembering(now),
                    false => return,
                };
                self.writer.push(Item::Quorum(name.to_owned()));
            }
            Initialization::Allowed(time) => {
                entry.initialization = Initialization::Running(time.clone());
                tracing::info!(quorum = name, "first start: initialising the masters");
                self.effects.push(Effect::InitializeMasters(name.to_owned()));
            }
            _ => {}
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
        if written.is_some() {
            entry.initialization.allow();
        }
    }

    pub(super) fn on_initialized(&mut self, quorum: &str, end: Option<Result<InitReport, InitError>>) {
        if let Some(entry) = self.quorums.get_mut(quorum) {
            // It is remembered in the status, and not begun again.
            entry.initialization.end();
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
