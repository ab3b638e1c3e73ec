//! Implements `firstStart: Immediate`: seals new masters without delay, once.
//!
//! The status records the first start before a master is sealed. In the opposite order, this sequence breaks S1: the
//! masters are initialised, the API server is unavailable and nothing is recorded, leases are granted, all
//! masters lose their memory, and a second `init` admits others while the first holders still rely on their
//! leases. The probes of `init` come before the record: a replica that ends after the record leaves masters that any
//! process with this fingerprint seals after the full wait.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Effect, Index, MastersRequest, World};
use crate::{
    api::{RedisQuorum, redis_quorum::FirstStart},
    controller::writer::Item,
    lease::BootInstant,
    masters::{InitError, InitReport, MasterFacts, MasterStatus},
};

/// The pause before the probes are tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// The progress of the first start, which is recorded before it begins: a replica that finds the record must not begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Initialization {
    /// Not begun, as far as this replica knows.
    #[default]
    No,
    /// All masters are new; the probes of `init` are being written.
    Probing,
    /// The probes could not be written. They are tried again at this time.
    NotProbed {
        again: BootInstant,
    },
    /// All masters carry probes of `init`; the status is being written.
    Remembering(Time),
    /// This replica wrote the record, and may begin.
    Allowed(Time),
    Running(Time),
    /// The first start ended, or the masters were in use before, at this time at the latest.
    Over(Time),
}

impl Initialization {
    /// Returns the time for the status.
    pub(super) fn time(&self) -> Option<&Time> {
        match self {
            Self::No | Self::Probing | Self::NotProbed { .. } => None,
            Self::Remembering(time) | Self::Allowed(time) | Self::Running(time) | Self::Over(time) => {
                Some(time)
            }
        }
    }

    fn end(&mut self) {
        *self = self.time().cloned().map_or(Self::No, Self::Over);
    }

    /// Notes that another replica wrote the record, and begins the first start.
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
    /// Takes the next step, if there is one.
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
        match &entry.initialization {
            Initialization::NotProbed { again } if at.now < *again => {}
            Initialization::No | Initialization::NotProbed { .. } if is_remembered(&entry.object) => {}
            Initialization::No | Initialization::NotProbed { .. } => {
                let used = status
                    .iter()
                    .any(|master| master.facts.as_ref().is_some_and(MasterFacts::sealed));
                if used {
                    entry.initialization = Initialization::Over(Time(at.stamp()));
                    self.writer.push(Item::Quorum(name.to_owned()));
                } else if status.iter().all(is_new) {
                    entry.initialization = Initialization::Probing;
                    self.effects
                        .push(Effect::Masters(MastersRequest::BeginInitialization(
                            name.to_owned(),
                        )));
                }
            }
            Initialization::Allowed(time) => {
                entry.initialization = Initialization::Running(time.clone());
                tracing::info!(quorum = name, "first start: initialising the masters");
                self.effects
                    .push(Effect::Masters(MastersRequest::Initialize(name.to_owned())));
            }
            Initialization::Probing
            | Initialization::Remembering(_)
            | Initialization::Running(_)
            | Initialization::Over(_) => {}
        }
    }

    /// Handles the end of the writes of the probes; `None` if they ended unexpectedly.
    pub(super) fn on_initialization_begun(
        &mut self,
        quorum: &str,
        end: Option<Result<(), InitError>>,
        at: &World<'_>,
    ) {
        let Some(entry) = self.quorums.get_mut(quorum) else {
            return;
        };
        if entry.initialization != Initialization::Probing {
            return;
        }
        let reason = match end {
            Some(Ok(())) if is_remembered(&entry.object) => {
                entry.initialization = Initialization::No;
                return;
            }
            Some(Ok(())) => {
                entry.initialization = Initialization::Remembering(Time(at.stamp()));
                self.writer.push(Item::Quorum(quorum.to_owned()));
                return;
            }
            Some(Err(error)) => error.to_string(),
            None => "the task ended unexpectedly".to_owned(),
        };
        tracing::warn!(
            quorum,
            reason,
            "the first start could not begin: it is tried again"
        );
        entry.initialization = Initialization::NotProbed {
            again: at.now + AGAIN,
        };
    }

    /// Handles a written status of this replica. If it records the first start, the first start may begin.
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
            // The status has the record, so the first start is not repeated.
            entry.initialization.end();
        }
        match end {
            Some(Ok(report)) => {
                tracing::info!(quorum, sealed = ?report.sealed, counter = report.counter, "masters initialised");
            }
            None => tracing::warn!(
                quorum,
                "the initialisation ended unexpectedly: the masters are sealed after the full wait"
            ),
            Some(Err(error)) => {
                let error = error.to_string();
                tracing::warn!(
                    quorum,
                    error,
                    "the masters could not be initialised: they are sealed after the full wait"
                );
            }
        }
    }
}

fn is_remembered(quorum: &RedisQuorum) -> bool {
    let status = quorum.status.as_ref();
    status.is_some_and(|status| status.initialized_time.is_some())
}

fn is_new(master: &MasterStatus) -> bool {
    let facts = master.facts.as_ref();
    master.connected
        && master.ineligible.is_none()
        && facts.is_some_and(|facts| facts.seal.is_empty() && facts.counter == 0)
}
