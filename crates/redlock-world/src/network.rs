//! The connections between the parties of a world, and their faults.
//!
//! A party is a process or a host by its name, such as `eu/r1` or `m0`. A connection delivers bytes in order in each
//! direction, after the latency of that direction. It has no task, and no timer while nothing is in flight.

mod connection;
mod link;
mod listener;

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use redlock_client::transport::{InMemoryNetwork, InMemoryStream, Transport};
use tokio::{
    sync::{Notify, mpsc},
    time,
};

pub use connection::Connection;
use link::Link;
pub use link::{Cut, Latency};
pub use listener::Listener;

/// The number of connections that wait for their accept before further ones are refused.
const BACKLOG: usize = 128;

/// All parties and their connections; clones share them.
#[derive(Clone, Debug)]
pub struct Network(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    seed: u64,
    state: Mutex<State>,
    /// Notifies that links were healed, or listeners were added.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    latency: Latency,
    /// The links by sender and receiver.
    links: BTreeMap<(Arc<str>, Arc<str>), Arc<Link>>,
    listeners: BTreeMap<(String, u16), Entry>,
    number: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    party: Arc<str>,
    number: u64,
    accepts: mpsc::Sender<(Connection, String)>,
}

impl Network {
    /// Creates a network without parties; `latency` is that of each direction of a new pair.
    #[must_use]
    pub fn new(seed: u64, latency: Latency) -> Self {
        Self(Arc::new(Shared {
            seed,
            state: Mutex::new(State {
                latency,
                links: BTreeMap::new(),
                listeners: BTreeMap::new(),
                number: 0,
            }),
            changed: Notify::new(),
        }))
    }

    /// Returns the party with this name.
    #[must_use]
    pub fn party(&self, name: &str) -> Party {
        Party {
            network: self.clone(),
            name: name.into(),
        }
    }

    /// Cuts both directions between two parties.
    pub fn cut(&self, one: &str, other: &str, cut: Cut) {
        self.cut_one_way(one, other, cut);
        self.cut_one_way(other, one, cut);
    }

    /// Cuts the direction from one party to another: the bytes sent there are held until the direction is healed.
    pub fn cut_one_way(&self, from: &str, to: &str, cut: Cut) {
        self.link(from, to).set_cut(Some(cut));
    }

    /// Heals both directions between two parties: the held bytes arrive in order.
    pub fn heal(&self, one: &str, other: &str) {
        self.link(one, other).set_cut(None);
        self.link(other, one).set_cut(None);
        self.0.changed.notify_waiters();
    }

    /// Heals all links.
    pub fn heal_all(&self) {
        let links: Vec<Arc<Link>> = self.state().links.values().cloned().collect();
        links.iter().for_each(|link| link.set_cut(None));
        self.0.changed.notify_waiters();
    }

    /// Resets all connections between two parties: both sides get an error.
    pub fn reset(&self, one: &str, other: &str) {
        self.link(one, other).reset();
        self.link(other, one).reset();
    }

    /// Sets the latency of both directions between two parties.
    pub fn set_latency(&self, one: &str, other: &str, latency: Latency) {
        self.link(one, other).set_latency(latency);
        self.link(other, one).set_latency(latency);
    }

    /// Reports whether anything can be sent from one party to another.
    #[must_use]
    pub fn is_cut(&self, from: &str, to: &str) -> bool {
        self.link(from, to).cut().is_some()
    }

    /// Returns a hash of everything that was sent so far, with its times. Two runs of one world have the same digests.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut digest = DefaultHasher::new();
        for (names, link) in &self.state().links {
            (names, link.digest()).hash(&mut digest);
        }
        digest.finish()
    }

    /// Returns the number of open connections from one party to another.
    #[must_use]
    pub fn connections(&self, from: &str, to: &str) -> usize {
        self.link(from, to).connections()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    fn link(&self, from: &str, to: &str) -> Arc<Link> {
        let mut state = self.state();
        let latency = state.latency;
        let names = (Arc::from(from), Arc::from(to));
        let link = state.links.entry(names);
        let new = || Arc::new(Link::new(link::seed(self.0.seed, from, to), latency));
        link.or_insert_with(new).clone()
    }
}

/// One process or host in a network.
#[derive(Clone, Debug)]
pub struct Party {
    network: Network,
    name: Arc<str>,
}

impl Party {
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the transport of a client that runs at this party.
    #[must_use]
    pub fn transport(&self) -> Transport {
        Transport::in_memory(Arc::new(self.clone()))
    }

    /// Accepts connections to this host and port until the listener is dropped.
    ///
    /// # Errors
    ///
    /// Returns an error if another listener has this host and port.
    pub fn listen(&self, host: &str, port: u16) -> io::Result<Listener> {
        let (accepts, accepted) = mpsc::channel(BACKLOG);
        let mut state = self.network.state();
        let address = (host.to_owned(), port);
        if state.listeners.contains_key(&address) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        state.number += 1;
        let number = state.number;
        let entry = Entry {
            party: self.name.clone(),
            number,
            accepts,
        };
        state.listeners.insert(address.clone(), entry);
        drop(state);
        Ok(Listener::new(self.network.clone(), address, number, accepted))
    }

    /// Reports whether a listener has this host and port.
    #[must_use]
    pub fn listens(&self, host: &str, port: u16) -> bool {
        let address = (host.to_owned(), port);
        self.network.state().listeners.contains_key(&address)
    }

    /// Connects to a host and port after one round trip. Across a cut that hangs, waits until it is healed.
    ///
    /// # Errors
    ///
    /// Returns an error if nothing listens there, if it accepts too slowly, or across a cut that refuses.
    pub async fn connect(&self, host: &str, port: u16) -> io::Result<Connection> {
        let address = (host.to_owned(), port);
        loop {
            let Some(entry) = self.network.state().listeners.get(&address).cloned() else {
                return Err(io::ErrorKind::ConnectionRefused.into());
            };
            let there = self.network.link(&self.name, &entry.party);
            let back = self.network.link(&entry.party, &self.name);
            let changed = self.network.0.changed.notified();
            match there.cut().or(back.cut()) {
                Some(Cut::Refuse) => return Err(io::ErrorKind::ConnectionRefused.into()),
                Some(Cut::Hang) => changed.await,
                None => {
                    pause(there.draw() + back.draw()).await;
                    if there.cut().or(back.cut()).is_some() {
                        continue;
                    }
                    let (own, remote) = connection::pair(&there, &back);
                    // A listener that was replaced meanwhile refuses.
                    let sent = entry.accepts.try_send((remote, self.name.to_string()));
                    return match sent {
                        Ok(()) => Ok(own),
                        Err(_) => Err(io::ErrorKind::ConnectionRefused.into()),
                    };
                }
            }
        }
    }
}

impl InMemoryNetwork for Party {
    fn connect(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Box<dyn InMemoryStream>>> {
        let party = self.clone();
        async move {
            let connection = Self::connect(&party, &host, port).await?;
            Ok(Box::new(connection) as Box<dyn InMemoryStream>)
        }
        .boxed()
    }
}

/// Pauses, without a timer for no time.
async fn pause(duration: Duration) {
    if !duration.is_zero() {
        time::sleep(duration).await;
    }
}

#[cfg(test)]
mod tests;
