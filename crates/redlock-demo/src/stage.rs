//! Owns every part of the demo, and waits for conditions of the record.
//!
//! Owns the masters, the replicas, the observer and the folder, and removes all of them on drop. The order of the
//! failures is in [`super::script`].

mod build;

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::claims::Incarnation;
use super::error::DemoError;
use super::guard::Guard;
use super::observer::{Observer, Record};
use super::replica::{Replica, log_tail};
use super::screen::Screen;
use redlock_client::clock;
use redlock_core::BootInstant;
use redlock_testkit::{RedisServer, RedisServers};

/// The interval at which a condition is checked.
const TICK: Duration = Duration::from_millis(4);

pub(super) struct Stage {
    // Dropped in this order: an observer that outlived the other parts would record their end as a failure, and every
    // part uses the folder.
    observer: Observer,
    replicas: Vec<Replica>,
    servers: RedisServers,
    guard: Guard,
    pub screen: Screen,
    pub started: BootInstant,
    /// The names of the masters.
    pub masters: Vec<String>,
    logs: Vec<(String, PathBuf)>,
    lives: u32,
    folder: TempDir,
}

impl Stage {
    pub(super) async fn build(screen: Screen) -> Result<Self, DemoError> {
        build::build(screen).await
    }

    pub(super) fn record(&self) -> std::sync::MutexGuard<'_, Record> {
        self.observer.record()
    }

    pub(super) fn server(&self, index: usize) -> Result<&RedisServer, DemoError> {
        self.servers.get(index).ok_or_else(|| DemoError::Missed {
            what: format!("master number {index} is there"),
            bound: Duration::ZERO,
        })
    }

    pub(super) fn running(&self) -> Vec<Incarnation> {
        self.replicas
            .iter()
            .map(|replica| replica.who().clone())
            .collect()
    }

    /// Returns the running replica that holds the most locks; among equals, the one that has run longest.
    pub(super) fn holds_most(&self) -> Option<(Incarnation, usize)> {
        let (record, now) = (self.record(), clock::now());
        let counted = self
            .running()
            .into_iter()
            .rev()
            .map(|who| (record.held_by(&who, now).len(), who));
        counted
            .max_by_key(|(count, _)| *count)
            .map(|(count, who)| (who, count))
    }

    pub(super) async fn start_replica(&mut self, name: &str) -> Result<Incarnation, DemoError> {
        self.lives += 1;
        let folder = self.folder.path().to_owned();
        let replica = Replica::start(name, self.lives, &manifests(&folder), &folder)?;
        let who = replica.who().clone();
        self.guard.watch(who.pid);
        let (address, log) = (replica.address(), replica.log().to_owned());
        self.logs.push((who.name.clone(), log.clone()));
        self.replicas.push(replica);
        self.observer
            .follow(&who, address, &log)
            .await
            .map_err(|source| DemoError::Follow { path: log, source })?;
        Ok(who)
    }

    pub(super) fn signal(&mut self, who: &Incarnation, signal: Signal) -> Result<(), DemoError> {
        Ok(self.replica(who)?.signal(signal)?)
    }

    /// Sends SIGKILL and returns the instant before it was sent.
    pub(super) async fn kill(&mut self, who: &Incarnation) -> Result<BootInstant, DemoError> {
        let at = clock::now();
        self.replica(who)?.kill()?;
        self.removed(who).await;
        Ok(at)
    }

    /// Sends SIGTERM; returns how long the replica took to exit, and whether it exited with code 0 within `bound`.
    pub(super) async fn stop(
        &mut self,
        who: &Incarnation,
        bound: Duration,
    ) -> Result<(Duration, bool), DemoError> {
        let at = clock::now();
        let replica = self.replica(who)?;
        replica.signal(Signal::SIGTERM)?;
        let status = replica.ends_within(bound).await?;
        let took = clock::now().since(at);
        if status.is_none() {
            replica.kill()?;
        }
        self.removed(who).await;
        Ok((took, status.is_some_and(|status| status.success())))
    }

    async fn removed(&mut self, who: &Incarnation) {
        self.guard.forget(who.pid);
        self.replicas.retain(|replica| replica.who() != who);
        self.observer.gone(who).await;
    }

    fn replica(&mut self, who: &Incarnation) -> Result<&mut Replica, DemoError> {
        let found = self.replicas.iter_mut().find(|replica| replica.who() == who);
        found.ok_or_else(|| DemoError::NoReplica(who.name.clone()))
    }

    /// Waits until `probe` finds its condition in the record, and redraws the table while it waits.
    pub(super) async fn wait<T>(
        &mut self,
        bound: Duration,
        what: &str,
        mut probe: impl FnMut(&Record, BootInstant) -> Option<T>,
    ) -> Result<T, DemoError> {
        let end = clock::now() + bound;
        loop {
            let now = clock::now();
            let seen = probe(&self.record(), now);
            if let Some(seen) = seen {
                return Ok(seen);
            }
            if now >= end {
                let what = what.to_owned();
                return Err(DemoError::Missed { what, bound });
            }
            self.check_all_run()?;
            self.draw(now);
            tokio::time::sleep(TICK).await;
        }
    }

    fn check_all_run(&mut self) -> Result<(), DemoError> {
        for replica in &mut self.replicas {
            if let Some(status) = replica.ended()? {
                let name = replica.who().name.clone();
                return Err(DemoError::ReplicaEnded { name, status });
            }
        }
        if self.observer.watches() {
            Ok(())
        } else {
            Err(DemoError::ObserverEnded)
        }
    }

    fn draw(&mut self, now: BootInstant) {
        let record = self.observer.record();
        self.screen.draw(&record, &self.masters, now);
    }

    /// Returns the ends of all logs, for the report of a failure: the folder is removed with the demo.
    pub(super) fn log_tails(&self) -> String {
        let tail = |(name, path): &(String, PathBuf)| {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            format!("--- {name}, end of {file}:\n{}\n", log_tail(path))
        };
        self.logs.iter().map(tail).collect()
    }
}

fn manifests(folder: &Path) -> PathBuf {
    folder.join("manifests")
}
