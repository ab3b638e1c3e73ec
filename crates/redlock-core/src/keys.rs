//! Names the keys on a master.

use std::sync::Arc;

use crate::LockName;

/// The keys and the channel under one prefix.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Keyspace {
    prefix: Arc<str>,
    /// The seal and all registers, in one key: no seal outlives its registers (P-12).
    pub meta: Arc<str>,
    pub probe: Arc<str>,
    /// Of a master without a seal: the process that reads the registers of the others.
    pub turn: Arc<str>,
    pub channel: Arc<str>,
}

impl Keyspace {
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        let key = |name: &str| Arc::from(format!("{prefix}:{name}"));
        Self {
            prefix: prefix.into(),
            meta: key("meta"),
            probe: key("probe"),
            turn: key("turn"),
            channel: key("released"),
        }
    }

    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns a pattern for keys under the prefix, with all special characters of the prefix escaped.
    #[must_use]
    pub fn pattern(&self, rest: &str) -> String {
        let mut pattern = String::new();
        for c in self.prefix.chars() {
            if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern + ":" + rest
    }

    /// Returns the name of the lock that a key belongs to; `None` if the key is neither a lease nor a reservation.
    #[must_use]
    pub fn lock_of<'a>(&self, key: &'a str) -> Option<&'a str> {
        let rest = key.strip_prefix(&*self.prefix)?.strip_prefix(':')?;
        rest.strip_prefix("lease:")
            .or_else(|| rest.strip_prefix("reserved:"))
    }

    /// Returns the keys below this prefix for a trial, which affects no lock. The channel stays the same, since the
    /// user has permission to publish on that one.
    #[must_use]
    pub fn scratch(&self, name: &str) -> Self {
        Self {
            channel: self.channel.clone(),
            ..Self::new(&format!("{}:doctor:{name}", self.prefix))
        }
    }

    #[must_use]
    pub fn lock(&self, name: &LockName) -> Arc<LockKeys> {
        Arc::new(LockKeys {
            name: name.clone(),
            lease: format!("{}:lease:{name}", self.prefix),
            reserved: format!("{}:reserved:{name}", self.prefix),
        })
    }
}

/// The keys of one lock, built once.
#[derive(Debug)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct LockKeys {
    pub name: LockName,
    pub lease: String,
    /// A reservation has a key of its own, which an undo of the lease does not delete (P-15).
    pub reserved: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_no_pattern() {
        assert_eq!(Keyspace::new("redlock").pattern("*"), "redlock:*");
        assert_eq!(Keyspace::new("a*[b]?\\").pattern("*"), r"a\*\[b\]\?\\:*");
    }

    #[test]
    fn scratch_keys_stand_below_the_prefix_and_keep_its_channel() {
        let keys = Keyspace::new("p");
        let scratch = keys.scratch("1");
        assert_eq!(&*scratch.meta, "p:doctor:1:meta");
        assert_eq!(&*scratch.probe, "p:doctor:1:probe");
        assert_eq!(scratch.channel, keys.channel);
        assert_eq!(
            scratch.lock(&LockName::any("l").unwrap()).lease,
            "p:doctor:1:lease:l"
        );
    }

    #[test]
    fn keys_name_their_lock() {
        let keys = Keyspace::new("p");
        assert_eq!(keys.prefix(), "p");
        assert_eq!(keys.lock_of("p:lease:a:b/c"), Some("a:b/c"));
        assert_eq!(keys.lock_of("p:reserved:a"), Some("a"));
        for other in ["p:meta", "p:doctor:1:lease:a", "pp:lease:a", "lease:a"] {
            assert_eq!(keys.lock_of(other), None, "{other}");
        }
    }
}
