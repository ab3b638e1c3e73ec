//! The independent observer: looks at masters and replicas from outside and writes down what it sees.
//!
//! Owns its own connections to every master (plain MGET and PTTL) and to every replica (`/locks` and the log). Refuses to
//! use the code that it observes: nothing here comes from [`redlock_client::masters`] or [`redlock_client::elector`].

mod follow;
mod look;
mod record;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, net::SocketAddr};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::claims::Incarnation;
pub(super) use record::{MasterView, Record, ReplicaView};

type Shared = Arc<Mutex<Record>>;

/// Aborts its tasks when it is dropped.
#[derive(Debug)]
pub(super) struct Observer {
    record: Shared,
    looks: Vec<JoinHandle<()>>,
    follows: Vec<Follow>,
}

#[derive(Debug)]
struct Follow {
    who: Incarnation,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Observer {
    /// Starts to look at the masters.
    pub(super) fn start(clients: Vec<redis::Client>, locks: &[String]) -> Self {
        let record = Arc::new(Mutex::new(Record::new(locks, clients.len())));
        let look = |(master, client)| tokio::spawn(look::run(master, client, locks.to_vec(), record.clone()));
        let looks = clients.into_iter().enumerate().map(look).collect();
        Self {
            record,
            looks,
            follows: Vec::new(),
        }
    }

    /// Starts to follow one life of a replica.
    pub(super) async fn follow(
        &mut self,
        who: &Incarnation,
        address: SocketAddr,
        log: &Path,
    ) -> io::Result<()> {
        let stop = CancellationToken::new();
        let follow = follow::Follower::open(who.clone(), address, log, self.record.clone()).await?;
        self.follows.push(Follow {
            who: who.clone(),
            task: tokio::spawn(follow.run(stop.clone())),
            stop,
        });
        Ok(())
    }

    /// The process is gone: reads the rest of its log and asks no more.
    pub(super) async fn gone(&mut self, who: &Incarnation) {
        let Some(index) = self.follows.iter().position(|follow| follow.who == *who) else {
            return;
        };
        let follow = self.follows.swap_remove(index);
        follow.stop.cancel();
        // It ends by itself after at most one question; a panic in it would have been seen by the missing record.
        let _ = follow.task.await;
    }

    pub(super) fn record(&self) -> MutexGuard<'_, Record> {
        lock(&self.record)
    }

    /// Whether every task still runs: one that ended sees no overlap.
    pub(super) fn watches(&self) -> bool {
        let looks = self.looks.iter().all(|task| !task.is_finished());
        looks && self.follows.iter().all(|follow| !follow.task.is_finished())
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.looks.iter().for_each(JoinHandle::abort);
        self.follows.iter().for_each(|follow| follow.task.abort());
    }
}

/// A panic under the lock leaves a record with one line too few, and what was seen until then is still true.
fn lock(record: &Shared) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}
