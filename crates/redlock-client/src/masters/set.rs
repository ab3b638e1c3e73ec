//! The masters of one quorum as a library: open, acquire, renew, release, close.

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

pub use lease::{Acquired, Lease, Renewal};
pub use tasks::{TaskEnded, Tasks};

use super::{
    Call, ConfigError, Delivery, Fingerprint, Keyspace, LockKeys, MasterStatus, MastersConfig, Notice,
    Request,
    access::Access,
    clocks::SharedClocks,
    config::without_credentials,
    courier::{Courier, Meter, Sink},
    identity::{Identity, QuorumId},
    link::{Dial, Link, Peers, Renewer, Servers},
    random,
    seal::{Known, Sealer},
    timeout::CommandTimeout,
};
use crate::lease::{ClusterId, HolderIdentity, LeaseStem, LockName, Nonce, QuorumSize};

/// What the masters tell without being asked.
pub type Notices = mpsc::UnboundedReceiver<Notice>;

/// The task that carries calls is gone: nothing is held any more.
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
    clocks: Arc<SharedClocks>,
    size: QuorumSize,
    keys: Keyspace,
    cluster: ClusterId,
    fingerprint: Fingerprint,
    identity: Arc<Identity>,
    command_timeout: CommandTimeout,
    access: Mutex<Access>,
    known: Known,
    outdated: Arc<Notify>,
    calls: mpsc::UnboundedSender<Call>,
    closing: CancellationToken,
}

impl Masters {
    /// Starts connecting; never waits for it. The tasks must be kept, watched and closed by their owner.
    ///
    /// # Errors
    /// A configuration that cannot work: wrong number of masters, a bad url, two masters with one url or name.
    pub fn open(
        config: &MastersConfig,
        meter: Option<Arc<dyn Meter>>,
    ) -> Result<(Self, Notices, Tasks), ConfigError> {
        Self::open_as(config, config.fingerprint(), meter)
    }

    /// The same under a fingerprint that names the masters otherwise: the stored one of a quorum that was found.
    pub(crate) fn open_as(
        config: &MastersConfig,
        fingerprint: Fingerprint,
        meter: Option<Arc<dyn Meter>>,
    ) -> Result<(Self, Notices, Tasks), ConfigError> {
        let size = config.size()?;
        unique(config)?;
        let keys = Keyspace::new(&config.key_prefix);
        let command_timeout = CommandTimeout::new(config.command_timeout);
        let identity = Arc::new(Identity::new(fingerprint.to_string(), config.quorum.clone()));
        let clocks = SharedClocks::new(size, config.longest_lease);
        let mut links = Vec::new();
        let access = config.access();
        for (index, master) in config.masters.iter().enumerate() {
            let client = access.client(master)?;
            links.push(Arc::new(Link::new(
                index,
                master.name.clone(),
                Dial::new(without_credentials(&master.url), client),
                keys.clone(),
                identity.clone(),
                command_timeout.clone(),
                clocks.clone(),
            )));
        }
        let links: Arc<[Arc<Link>]> = links.into();
        let known = Known::default();
        let (calls, incoming) = mpsc::unbounded_channel();
        let (notices, heard) = mpsc::unbounded_channel();
        let closing = CancellationToken::new();
        let peers = Peers {
            links: links.clone(),
            servers: Arc::new(Servers::new(size.masters())),
            notices,
            outdated: Arc::default(),
        };
        let renewer = Renewer {
            peers: peers.clone(),
            cluster: config.cluster.clone(),
        };
        let courier = Courier {
            links: links.clone(),
            size,
            clocks: clocks.clone(),
            keys: keys.clone(),
            cluster: config.cluster.clone(),
            command_timeout: command_timeout.clone(),
            acquire_limit: config.acquire_limit,
            calls: incoming,
            meter,
            known: known.clone(),
            closing: closing.clone(),
        };
        let sealer = config.reseal.then(|| {
            Sealer::new(
                links.clone(),
                size,
                fingerprint.clone(),
                identity.clone(),
                known.clone(),
            )
        });
        let tasks = Tasks::start(&peers, courier, sealer, renewer, closing.clone());
        let inner = Inner {
            links,
            clocks,
            size,
            keys,
            cluster: config.cluster.clone(),
            fingerprint,
            identity,
            access: Mutex::new(access),
            known,
            outdated: peers.outdated,
            command_timeout,
            calls,
            closing,
        };
        Ok((
            Self {
                inner: Arc::new(inner),
            },
            heard,
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

    /// The id of the quorum; `None` until a majority of the masters shows one.
    #[must_use]
    pub fn quorum_id(&self) -> Option<&QuorumId> {
        self.inner.identity.id()
    }

    pub(crate) fn identity(&self) -> &Arc<Identity> {
        &self.inner.identity
    }

    #[must_use]
    pub fn command_timeout(&self) -> Duration {
        self.inner.command_timeout.get()
    }

    #[must_use]
    pub fn lock(&self, name: &LockName) -> Arc<LockKeys> {
        self.inner.keys.lock(name)
    }

    #[must_use]
    pub fn status(&self) -> Vec<MasterStatus> {
        self.inner.links.iter().map(|link| link.status()).collect()
    }

    pub(crate) fn known(&self) -> &Known {
        &self.inner.known
    }

    pub(crate) fn links(&self) -> &Arc<[Arc<Link>]> {
        &self.inner.links
    }

    /// How many masters can vote now.
    #[must_use]
    pub fn voters(&self) -> usize {
        self.inner.links.iter().filter(|link| link.votes()).count()
    }

    /// How often the local clock stepped: what was won before the last time is lost.
    pub(crate) fn local_steps(&self) -> u64 {
        self.inner.clocks.local_steps()
    }

    /// Changes when the local clock has stepped.
    pub(crate) fn watch_clock(&self) -> watch::Receiver<u64> {
        self.inner.clocks.watch()
    }

    /// A stem with a fresh nonce for the next attempt.
    #[must_use]
    pub fn stem(&self, holder: &HolderIdentity) -> LeaseStem {
        LeaseStem::new(&self.inner.cluster, holder, Nonce(random::bits()))
    }

    /// Hands a call to the courier.
    ///
    /// # Errors
    /// [`Closed`] after [`Tasks::close`] or the end of the courier.
    pub fn submit(&self, call: Call) -> Result<(), Closed> {
        if self.inner.closing.is_cancelled() {
            return Err(Closed);
        }
        self.inner.calls.send(call).map_err(|_| Closed)
    }

    /// Asks for one lock and waits for the delivery. Dropping the future undoes an attempt that wins.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub async fn ask(&self, lock: &Arc<LockKeys>, request: Request) -> Result<Delivery, Closed> {
        let (sender, receiver) = oneshot::channel();
        self.submit(Call {
            lock: lock.clone(),
            request,
            sink: Sink::One(sender),
        })?;
        receiver.await.map_err(|_| Closed)
    }
}

fn unique(config: &MastersConfig) -> Result<(), ConfigError> {
    for (index, second) in config.masters.iter().enumerate() {
        for first in &config.masters[..index] {
            if first.name == second.name {
                return Err(ConfigError::SameName(first.name.clone()));
            }
            if first.url.trim_end_matches('/') == second.url.trim_end_matches('/') {
                return Err(ConfigError::SameUrl {
                    first: first.name.clone(),
                    second: second.name.clone(),
                    url: without_credentials(&second.url),
                });
            }
        }
    }
    Ok(())
}
