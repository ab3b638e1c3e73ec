//! Shows the keys of the masters to an observer, without a connection.

use redlock_client::lease::{Keyspace, LockName};

use super::{
    Master, Masters,
    database::{Database, Value},
};

/// The value of a key, and the rest of its time to live in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub value: String,
    /// `None` for a key that does not expire.
    pub left: Option<u64>,
}

/// The lease and the reservation of one lock at each master, in the order of the masters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockOnMasters {
    pub leases: Vec<Option<Found>>,
    pub reservations: Vec<Option<Found>>,
}

impl LockOnMasters {
    /// Returns the lease that a majority of the masters shows.
    #[must_use]
    pub fn majority(&self) -> Option<&str> {
        let shown = || self.leases.iter().flatten().map(|found| &*found.value);
        let count = |value: &str| shown().filter(|other| *other == value).count();
        shown().find(|value| 2 * count(value) > self.leases.len())
    }
}

impl Masters {
    /// Returns what each master shows of a lock, whether or not it can be reached.
    #[must_use]
    pub fn lock(&self, key_prefix: &str, lock: &LockName) -> LockOnMasters {
        let keys = Keyspace::new(key_prefix).lock(lock);
        LockOnMasters {
            leases: self.iter().map(|master| master.text(&keys.lease)).collect(),
            reservations: self.iter().map(|master| master.text(&keys.reserved)).collect(),
        }
    }
}

impl Master {
    /// Returns the text at a key; `None` for no key, or for one of another type.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<Found> {
        self.read(|database| {
            let now = database.milliseconds();
            let entry = database.get(key.as_bytes())?;
            let Value::Text(text) = &entry.value else {
                return None;
            };
            Some(Found {
                value: String::from_utf8_lossy(text).into_owned(),
                left: entry.expires.map(|expires| expires.saturating_sub(now)),
            })
        })
    }

    /// Returns the value of a field of a hash.
    #[must_use]
    pub fn field(&self, key: &str, field: &str) -> Option<String> {
        self.read(|database| match &database.get(key.as_bytes())?.value {
            Value::Hash(fields) => {
                let value = fields.get(field.as_bytes())?;
                Some(String::from_utf8_lossy(value).into_owned())
            }
            Value::Text(_) => None,
        })
    }

    /// Returns all keys, in order.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.read(|database| {
            let keys = database.all();
            keys.map(|(key, _)| String::from_utf8_lossy(key).into_owned())
                .collect()
        })
    }

    fn read<T>(&self, read: impl FnOnce(&mut Database) -> T) -> T {
        let mut state = self.state();
        state.database.now = state.clock.microseconds();
        read(&mut state.database)
    }
}
