//! Opens redlock-client on real servers, with the configuration of a test.

use std::ops::Deref;
use std::sync::Once;
use std::time::Duration;

use crate::RedisServer;
use redlock_client::masters::{
    Acquired, InitError, InitReport, Lease, MasterStatus, Masters, MastersConfig, NotDone, Notices, Tasks,
    init,
};
use redlock_core::{ClusterId, HolderIdentity, LockName, QuorumId};

use crate::eventually;

/// Short enough for a test to wait for a seal (14.16 s), and long enough for a busy machine: a stall of two seconds loses
/// no lease and makes no call too late.
pub const LONGEST_LEASE: Duration = Duration::from_secs(8);
pub const ACQUIRE_LIMIT: Duration = Duration::from_secs(3);
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(3);
/// Generous for a busy machine; a correct run stays far below it.
const BOUND: Duration = Duration::from_secs(60);

/// Returns the configuration of masters m0, m1, … on these servers, with re-sealing on. A test changes the fields that
/// it needs.
pub fn config(servers: &[RedisServer]) -> MastersConfig {
    MastersConfig {
        cluster: ClusterId::new("test", "test").unwrap(),
        command_timeout: COMMAND_TIMEOUT,
        longest_lease: LONGEST_LEASE,
        acquire_limit: ACQUIRE_LIMIT,
        reseal: true,
        ..MastersConfig::new(servers.iter().map(RedisServer::url))
    }
}

/// Returns the configuration of a process that stored the id of the quorum outside the masters: it seals masters without
/// having seen them before.
pub fn remembered(config: MastersConfig) -> MastersConfig {
    MastersConfig {
        quorum: Some(QuorumId::from_bits(7)),
        ..config
    }
}

/// Open masters; dereferences to [`Masters`]. Drop closes the connections.
#[derive(Debug)]
pub struct Opened {
    pub masters: Masters,
    pub notices: Notices,
    pub tasks: Tasks,
}

pub fn open(config: &MastersConfig) -> Opened {
    // The output is discarded, but log lines are formatted as in the program.
    static LOGGED: Once = Once::new();
    LOGGED.call_once(|| {
        let log = tracing_subscriber::fmt().with_writer(std::io::sink);
        let _ = log.with_max_level(tracing::Level::TRACE).try_init();
    });
    let (masters, notices, tasks) = Masters::open(config, None).unwrap();
    Opened {
        masters,
        notices,
        tasks,
    }
}

impl Deref for Opened {
    type Target = Masters;

    fn deref(&self) -> &Masters {
        &self.masters
    }
}

impl Opened {
    /// Seals these servers, which were never used, and waits until all vote. On a busy machine a late answer may end an
    /// attempt. The attempt is repeated; servers of which only some were sealed restart empty first.
    pub async fn seal(&self, servers: &[RedisServer]) -> InitReport {
        let report = eventually(BOUND, "the masters are sealed", async || {
            let error = match init(&self.masters).await {
                Ok(report) => return Ok(report),
                Err(error) => error,
            };
            match &error {
                InitError::Unreachable { .. }
                | InitError::TooSlow { .. }
                | InitError::NotProbed {
                    reason: NotDone::Unknown(_),
                    ..
                } => {}
                InitError::NotAllSealed {
                    reason: NotDone::Unknown(_),
                    ..
                } => {
                    servers.iter().for_each(|server| server.restart_empty().unwrap());
                }
                _ => panic!("{error}"),
            }
            Err(error)
        })
        .await;
        self.voters(servers.len()).await;
        report
    }

    /// Waits until exactly this many masters can vote.
    pub async fn voters(&self, count: usize) {
        eventually(BOUND, &format!("{count} masters that vote"), async || {
            let seen = self.masters.voters();
            if seen == count { Ok(()) } else { Err(self.status()) }
        })
        .await;
    }

    /// Returns the number of masters that vote now.
    pub fn voters_now(&self) -> usize {
        self.masters.voters()
    }

    /// Waits until the status of this master is as wanted.
    pub async fn master(
        &self,
        index: usize,
        what: &str,
        wanted: impl Fn(&MasterStatus) -> bool,
    ) -> MasterStatus {
        eventually(BOUND, &format!("master m{index}: {what}"), async || {
            let status = self.status().swap_remove(index);
            if wanted(&status) { Ok(status) } else { Err(status) }
        })
        .await
    }

    /// Makes one attempt to get a lease of the longest length; returns `None` if the attempt was lost.
    pub async fn try_acquire(&self, lock: &str, holder: &str) -> Option<Lease> {
        let (lock, holder) = (lock_name(lock), identity(holder));
        let acquired = self.masters.acquire(&lock, &holder, LONGEST_LEASE).await;
        match acquired.unwrap() {
            Acquired::Won(lease) => Some(lease),
            Acquired::Lost(_) => None,
        }
    }

    /// Repeats attempts until one gets the lease.
    pub async fn acquire_soon(&self, lock: &str, holder: &str) -> Lease {
        acquire_soon_for(&self.masters, lock, holder, LONGEST_LEASE).await
    }
}

/// Repeats attempts until one gets a lease of this length.
pub async fn acquire_soon_for(
    masters: &Masters,
    lock: &str,
    holder: &str,
    lease_duration: Duration,
) -> Lease {
    let (name, identity) = (lock_name(lock), identity(holder));
    eventually(BOUND, &format!("{holder} acquires {lock}"), async || {
        let acquired = masters.acquire(&name, &identity, lease_duration).await;
        match acquired.unwrap() {
            Acquired::Won(lease) => Ok(lease),
            Acquired::Lost(loss) => Err(loss),
        }
    })
    .await
}

pub fn lock_name(lock: &str) -> LockName {
    LockName::parse(lock).unwrap()
}

pub fn identity(holder: &str) -> HolderIdentity {
    HolderIdentity::parse(holder).unwrap()
}
