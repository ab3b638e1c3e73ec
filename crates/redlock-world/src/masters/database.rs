//! The keys of a master, with their times to live.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use tokio::sync::mpsc;

use super::resp::Reply;

pub(super) type Bytes = Vec<u8>;

/// The reason why a server refuses to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteRefusal {
    /// The memory is full: commands that need memory are refused.
    OutOfMemory,
    /// Snapshots cannot be stored.
    Misconfigured,
    /// Too few replicas are attached.
    NoReplicas,
    /// The server was made a replica.
    ReadOnly,
}

impl WriteRefusal {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.",
            Self::Misconfigured => {
                "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. \
                 Commands that may modify the data set are disabled, because this instance is configured to report \
                 errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check \
                 the Redis logs for details about the RDB error."
            }
            Self::NoReplicas => "NOREPLICAS Not enough good replicas to write.",
            Self::ReadOnly => "READONLY You can't write against a read only replica.",
        }
    }
}

/// The names that each process of a server draws.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) run_id: String,
    pub(super) replication_id: String,
}

impl Process {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let mut id = || format!("{:032x}{:08x}", rng.u128(..), rng.u32(..));
        Self {
            run_id: id(),
            replication_id: id(),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(Bytes),
    Hash(BTreeMap<Bytes, Bytes>),
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) value: Value,
    /// Milliseconds of the server's clock.
    pub(super) expires: Option<u64>,
}

/// The subscribers of a channel: each receives the pushes for one connection.
type Subscribers = BTreeMap<u64, mpsc::UnboundedSender<Reply>>;

#[derive(Debug)]
pub(super) struct Database {
    keys: BTreeMap<Bytes, Entry>,
    /// Microseconds since 1970, constant while a script runs.
    pub(super) now: u64,
    pub(super) process: Process,
    pub(super) refusal: Option<WriteRefusal>,
    /// Whether the script that runs has written: its later writes are then not refused.
    pub(super) written: bool,
    pub(super) scripts: BTreeSet<String>,
    subscribers: BTreeMap<Bytes, Subscribers>,
}

pub(super) const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

impl Database {
    pub(super) const fn new(process: Process) -> Self {
        Self {
            keys: BTreeMap::new(),
            now: 0,
            process,
            refusal: None,
            written: false,
            scripts: BTreeSet::new(),
            subscribers: BTreeMap::new(),
        }
    }

    pub(super) fn restart(&mut self, process: Process) {
        self.process = process;
        self.refusal = None;
        self.scripts.clear();
        self.subscribers.clear();
    }

    pub(super) fn flush(&mut self) {
        self.keys.clear();
    }

    pub(super) const fn milliseconds(&self) -> u64 {
        self.now / 1_000
    }

    pub(super) fn get(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let now = self.milliseconds();
        let over = |entry: &Entry| entry.expires.is_some_and(|expires| now > expires);
        if self.keys.get(key).is_some_and(over) {
            self.keys.remove(key);
        }
        self.keys.get_mut(key)
    }

    pub(super) fn put(&mut self, key: &[u8], entry: Entry) {
        self.keys.insert(key.to_vec(), entry);
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        self.get(key).is_some() && self.keys.remove(key).is_some()
    }

    /// Returns all keys, in order.
    pub(super) fn all(&mut self) -> impl Iterator<Item = (&Bytes, &Entry)> {
        let now = self.milliseconds();
        self.keys
            .retain(|_, entry| entry.expires.is_none_or(|expires| now <= expires));
        self.keys.iter()
    }

    pub(super) fn subscribe(
        &mut self,
        channel: &[u8],
        connection: u64,
        pushes: mpsc::UnboundedSender<Reply>,
    ) {
        let subscribers = self.subscribers.entry(channel.to_vec()).or_default();
        subscribers.insert(connection, pushes);
    }

    pub(super) fn unsubscribe(&mut self, channel: &[u8], connection: u64) {
        if let Some(subscribers) = self.subscribers.get_mut(channel) {
            subscribers.remove(&connection);
        }
    }

    /// Returns the number of receivers.
    pub(super) fn publish(&mut self, channel: &[u8], message: &[u8]) -> i64 {
        let Some(subscribers) = self.subscribers.get_mut(channel) else {
            return 0;
        };
        let words: [&[u8]; 3] = [b"message", channel, message];
        let push = Reply::Push(words.iter().map(|word| Reply::Bulk(word.to_vec())).collect());
        subscribers.retain(|_, pushes| pushes.send(push.clone()).is_ok());
        i64::try_from(subscribers.len()).unwrap()
    }
}
