//! Names of the keys on a master.

use std::sync::Arc;

use crate::lease::LockName;

/// The keys and the channel under one prefix.
#[derive(Clone, Debug)]
pub struct Keyspace {
    prefix: Arc<str>,
    pub(crate) meta: Arc<str>,
    pub(crate) probe: Arc<str>,
    pub(crate) channel: Arc<str>,
}

impl Keyspace {
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        let key = |name: &str| Arc::from(format!("{prefix}:{name}"));
        Self {
            prefix: prefix.into(),
            meta: key("meta"),
            probe: key("probe"),
            channel: key("released"),
        }
    }

    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
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

/// The keys of one lock, made once.
#[derive(Debug)]
pub struct LockKeys {
    pub(crate) name: LockName,
    pub(crate) lease: String,
    pub(crate) reserved: String,
}
