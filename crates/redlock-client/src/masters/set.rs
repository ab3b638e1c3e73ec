//! Exposes the masters of one quorum as a library: open, acquire, renew, release, close.

mod change;
mod lease;
mod tasks;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use thiserror::Error;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

pub use lease::{AcquireError, Acquired, Lease, Renewal};
pub use tasks::{TaskEnded, Tasks};

use redlock_core::{
    ClusterId, Command, Completion, Config, Fingerprint, HolderIdentity, Keyspace, LeaseStem, LockKeys,
    LockName, Nonce, QuorumId, QuorumSize,
};

use super::{
    Call, ConfigError, MasterStatus, MastersConfig, Notice,
    access::Access,
    driver::{Driver, Ended, Meter, ReplyTo},
    link::{Dial, Link, Peers, Renewer},
    master_url::redact,
    random,
    seal::Sealer,
    shared::Shared,
};

/// The receiver of unsolicited notices about the masters.
pub type Notices = mpsc::Receiver<Notice>;

/// The task that carries calls has ended: no lease is held.
#[derive(Debug, Error)]
#[error("the connection to the masters has been closed")]
pub struct Closed;

/// A handle to the masters of one quorum; clones share them.
#[derive(Clone, Debug)]
pub struct Masters {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    links: Arc<[Arc<Link>]>,
    size: QuorumSize,
    keys: Keyspace,
    cluster: ClusterId,
    fingerprint: Fingerprint,
    shared: Arc<Shared>,
    access: Mutex<Access>,
    outdated: Arc<Notify>,
    calls: mpsc::UnboundedSender<Call>,
    closing: CancellationToken,
}

impl Masters {
    /// Starts connecting, and returns without waiting for a connection. The owner must keep, watch and close
    /// the tasks.
    ///
    /// # Errors
    /// Returns an error for a configuration that cannot work: a wrong number of masters, a bad url, two masters with
    /// one url or name, a longest lease that no quorum allows.
    pub fn open(
        config: &MastersConfig,
        meter: Option<Arc<dyn Meter>>,
    ) -> Result<(Self, Notices, Tasks), ConfigError> {
        Self::open_as(config, config.fingerprint(), meter)
    }

    /// Checks whether masters can be opened with this configuration. Connects to no master.
    ///
    /// # Errors
    /// Returns an error for too few or too many masters, for two with one name or url, and for urls or certificates
    /// that cannot be used.
    pub fn check(config: &MastersConfig) -> Result<(), ConfigError> {
        config.check_masters()?;
        config.lengths()?;
        let access = config.access();
        let mut clients = config.masters.iter().map(|master| access.client(master));
        clients.try_for_each(|client| client.map(drop))
    }

    /// Opens the masters under a fingerprint whose names may differ: the stored fingerprint of an adopted
    /// quorum.
    pub(crate) fn open_as(
        config: &MastersConfig,
        fingerprint: Fingerprint,
        meter: Option<Arc<dyn Meter>>,
    ) -> Result<(Self, Notices, Tasks), ConfigError> {
        let size = config.size()?;
        config.check_masters()?;
        config.lengths()?;
        let keys = Keyspace::new(&config.key_prefix);
        let (connections, to_carry) = mpsc::unbounded_channel();
        let of_engine = Config {
            size,
            fingerprint: fingerprint.to_string(),
            quorum: config.quorum.clone(),
            keys: keys.clone(),
            cluster: config.cluster.clone(),
            longest_lease: config.longest_lease,
            acquire_limit: config.acquire_limit,
            command_timeout: config.command_timeout,
        };
        let shared = Arc::new(Shared::new(of_engine, connections));
        let (notices, receiver) = mpsc::channel(Notice::QUEUE);
        let mut links = Vec::new();
        let access = config.access();
        for (index, master) in config.masters.iter().enumerate() {
            let client = access.client(master)?;
            links.push(Arc::new(Link::new(
                (index, master.name.clone()),
                Dial::new(redact(&master.url), client, config.transport.clone()),
                keys.clone(),
                &shared,
                notices.downgrade(),
                config.scripts,
            )));
        }
        let links: Arc<[Arc<Link>]> = links.into();
        let (calls, incoming) = mpsc::unbounded_channel();
        let closing = CancellationToken::new();
        let peers = Peers {
            links: links.clone(),
            outdated: Arc::default(),
            keeps_scripts: config.reseal,
        };
        let renewer = Renewer {
            peers: peers.clone(),
            cluster: config.cluster.clone(),
            writes: config.reseal,
        };
        let driver = Driver {
            links: links.clone(),
            shared: shared.clone(),
            calls: incoming,
            connections: to_carry,
            notices,
            meter,
            closing: closing.clone(),
        };
        let sealer = config
            .reseal
            .then(|| Sealer::new(links.clone(), size, fingerprint.clone(), shared.clone()));
        let tasks = Tasks::start(&peers, driver, sealer, renewer, closing.clone());
        let inner = Inner {
            links,
            size,
            keys,
            cluster: config.cluster.clone(),
            fingerprint,
            shared,
            access: Mutex::new(access),
            outdated: peers.outdated,
            calls,
            closing,
        };
        Ok((
            Self {
                inner: Arc::new(inner),
            },
            receiver,
            tasks,
        ))
    }

    #[must_use]
    pub fn size(&self) -> QuorumSize {
        self.inner.size
    }

    #[must_use]
    pub fn cluster(&self) -> &ClusterId {
        &self.inner.cluster
    }

    #[must_use]
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.inner.fingerprint
    }

    /// Returns the id of the quorum; `None` until a majority of the masters shows one.
    #[must_use]
    pub fn quorum_id(&self) -> Option<QuorumId> {
        self.inner
            .shared
            .read(|engine, _| engine.identity().id().cloned())
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    #[must_use]
    pub fn command_timeout(&self) -> Duration {
        self.inner.shared.command_timeout()
    }

    #[must_use]
    pub fn lock(&self, name: &LockName) -> Arc<LockKeys> {
        self.inner.keys.lock(name)
    }

    #[must_use]
    pub fn status(&self) -> Vec<MasterStatus> {
        self.inner.links.iter().map(|link| link.status()).collect()
    }

    pub(crate) fn links(&self) -> &Arc<[Arc<Link>]> {
        &self.inner.links
    }

    /// Returns the number of masters that can vote now.
    #[must_use]
    pub fn voters(&self) -> usize {
        self.inner.shared.read(|engine, now| {
            let masters = 0..engine.size().masters();
            masters.filter(|master| engine.votes(*master, now)).count()
        })
    }

    /// Returns the number of masters that can vote now, and have refused no write since the last one that succeeded.
    #[must_use]
    pub fn granting(&self) -> usize {
        self.inner.shared.read(|engine, now| {
            let links = self.inner.links.iter();
            let granting = links.filter(|link| engine.votes(link.index, now) && !link.refuses_writes(now));
            granting.count()
        })
    }

    /// Reports whether a majority of the masters votes and accepts writes.
    #[must_use]
    pub fn majority_grants(&self) -> bool {
        self.granting() >= self.size().majority()
    }

    /// Returns the number of steps of the local clock.
    pub(crate) fn local_steps(&self) -> u64 {
        self.inner.shared.local_steps()
    }

    /// Returns the number of steps of the local clock, and of times at which a majority was found sealed for another
    /// quorum: a lease that was won before the last of them is lost.
    pub(crate) fn losses(&self) -> (u64, u64) {
        let shared = &self.inner.shared;
        (
            self.local_steps(),
            shared.read(|engine, _| engine.quorum_losses()),
        )
    }

    /// Returns a receiver that changes when the local clock has stepped.
    pub(crate) fn watch_clock(&self) -> watch::Receiver<u64> {
        self.inner.shared.watch_clock()
    }

    /// Returns a stem with a fresh nonce for the next attempt (P-13).
    #[must_use]
    pub fn stem(&self, holder: &HolderIdentity) -> LeaseStem {
        LeaseStem::new(&self.inner.cluster, holder, Nonce(random::bits()))
    }

    /// Hands a call to the driver.
    ///
    /// # Errors
    /// Returns [`Closed`] after [`Tasks::close`] or the end of the driver.
    pub fn submit(&self, call: Call) -> Result<(), Closed> {
        if self.inner.closing.is_cancelled() {
            return Err(Closed);
        }
        self.inner.calls.send(call).map_err(|_| Closed)
    }

    /// Sends a command for one lock and waits for the completion. Dropping the future undoes an attempt that wins.
    ///
    /// # Errors
    /// See [`Self::submit`].
    pub async fn ask(&self, lock: &Arc<LockKeys>, command: Command) -> Result<Completion, Closed> {
        let (sender, receiver) = oneshot::channel();
        self.submit(Call {
            lock: lock.clone(),
            command,
            reply_to: ReplyTo::One(sender),
        })?;
        receiver.await.map_err(|_| Closed)
    }
}
