//! Owns and joins the tasks behind a set of masters.

use std::sync::Arc;

use thiserror::Error;
use tokio::{
    task::{JoinHandle, JoinSet, unconstrained},
    time,
};
use tokio_util::sync::CancellationToken;

use super::{Driver, Ended, Peers, Renewer, Sealer, Shared};
use crate::masters::link::keep;

/// A task that must run while the masters are in use has ended, and its work no longer happens.
#[derive(Debug, Error)]
#[error("the task that {task} ended: {reason}")]
pub struct TaskEnded {
    pub task: &'static str,
    pub reason: String,
}

/// The tasks behind a set of masters. Dropping this value stops them at once, without waiting for calls under
/// way.
#[derive(Debug)]
#[must_use = "dropping the tasks closes the connection to the masters"]
pub struct Tasks {
    keepers: JoinSet<&'static str>,
    driver: JoinHandle<Ended>,
    closing: CancellationToken,
    shared: Arc<Shared>,
}

impl Tasks {
    pub(super) fn start(
        peers: &Peers,
        driver: Driver,
        sealer: Option<Sealer>,
        renewer: Renewer,
        closing: CancellationToken,
    ) -> Self {
        let shared = driver.shared.clone();
        let mut keepers = JoinSet::new();
        for link in peers.links.iter() {
            let (link, peers) = (link.clone(), peers.clone());
            keepers.spawn(async move {
                keep(link, peers).await;
                "keeps a master connected"
            });
        }
        keepers.spawn(async move {
            renewer.run().await;
            "renews connections"
        });
        if let Some(sealer) = sealer {
            keepers.spawn(async move {
                sealer.run().await;
                "seals masters"
            });
        }
        Self {
            keepers,
            // The engine orders the calls of one connection. A task that runs out of its budget of polls
            // between two calls would send the first of them last.
            driver: tokio::spawn(unconstrained(driver.run())),
            closing,
            shared,
        }
    }

    /// Waits for the end of a task that must not end. Cancel safe.
    pub async fn ended(&mut self) -> TaskEnded {
        tokio::select! {
            Some(end) = self.keepers.join_next() => match end {
                Ok(task) => TaskEnded { task, reason: "it returned".into() },
                Err(e) => TaskEnded { task: "keeps a master connected or sealed", reason: e.to_string() },
            },
            end = &mut self.driver => TaskEnded {
                task: "carries calls to the masters",
                reason: end.err().map_or_else(|| "it returned".into(), |e| e.to_string()),
            },
        }
    }

    /// Takes no more calls, finishes the calls under way, then disconnects. Returns the number of undos and
    /// reserves that are left to the expiry of their keys.
    pub async fn close(mut self) -> usize {
        self.closing.cancel();
        self.shared.wake_driver();
        let drain = self.shared.read(|engine, _| engine.longest_timeout()) * 2;
        let ended = time::timeout(drain, &mut self.driver).await;
        // The keepers end before the connections, which end with the driver: otherwise the keepers would
        // report each connection as a lost master.
        self.keepers.shutdown().await;
        self.driver.abort();
        ended
            .ok()
            .and_then(Result::ok)
            .map_or(0, |ended| ended.repeats_left)
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.keepers.abort_all();
        self.driver.abort();
    }
}
