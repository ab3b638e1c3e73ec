//! Observes masters and replicas from outside and records their states.
//!
//! Owns its own connections to every master (plain GET and PTTL) and to every replica (`/locks` and the log).
//! Independent of the observed code: nothing here comes from [`redlock_client::masters`] or
//! [`redlock_client::elector`].

mod follow;
mod masters;
mod record;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, net::SocketAddr};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::claims::Incarnation;
use super::error::DemoError;
pub(super) use record::{MasterView, Record, ReplicaView};
use redlock_testkit::observer::Poller;

/// The time between two reads: short enough to see a lease that lasted ten milliseconds. The end of a lease
/// is known more precisely, because PTTL shows it in advance. A shorter interval would slow down the observed
/// processes on a machine with two cores.
const EVERY: Duration = Duration::from_millis(8);

type Shared = Arc<Mutex<Record>>;

/// The observer; aborts its tasks on drop.
#[derive(Debug)]
pub(super) struct Observer {
    record: Shared,
    poller: Poller,
    follows: Vec<Follow>,
}

#[derive(Debug)]
struct Follow {
    who: Incarnation,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Observer {
    /// Starts to read the masters.
    ///
    /// # Errors
    /// Returns an error for a url that cannot be used.
    pub(super) fn start(urls: &[String], locks: &[String]) -> Result<Self, DemoError> {
        let record = Arc::new(Mutex::new(Record::new(locks, urls.len())));
        let (shared, names) = (record.clone(), locks.to_vec());
        let report = move |master, shown| masters::record(master, &names, shown, &shared);
        Ok(Self {
            poller: Poller::start(urls, locks, EVERY, report).map_err(DemoError::Observe)?,
            record,
            follows: Vec::new(),
        })
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

    /// Reads the rest of the log of a replica that ended, and stops following it.
    pub(super) async fn gone(&mut self, who: &Incarnation) {
        let Some(index) = self.follows.iter().position(|follow| follow.who == *who) else {
            return;
        };
        let follow = self.follows.swap_remove(index);
        follow.stop.cancel();
        // The task ends after at most one more question. The missing record would show a panic in it.
        let _ = follow.task.await;
    }

    pub(super) fn record(&self) -> MutexGuard<'_, Record> {
        lock(&self.record)
    }

    /// Reports whether every task still runs. An observer with an ended task would miss an overlap.
    pub(super) fn watches(&self) -> bool {
        self.poller.all_run() && self.follows.iter().all(|follow| !follow.task.is_finished())
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.follows.iter().for_each(|follow| follow.task.abort());
    }
}

/// A panic under the lock may lose one entry of the record; the other entries remain true.
fn lock(record: &Shared) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}
