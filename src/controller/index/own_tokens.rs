//! Remembers the last tokens of this cluster.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The last tokens of this cluster's holders; there are several because a rollout passes the lock between replicas
/// within seconds. Clones share them.
#[derive(Clone, Debug, Default)]
pub(in crate::controller) struct OwnTokens(Arc<Mutex<BTreeSet<u64>>>);

impl OwnTokens {
    const KEPT: usize = 16;

    pub(in crate::controller) fn remember(&self, token: u64) {
        let mut tokens = self.tokens();
        tokens.insert(token);
        if tokens.len() > Self::KEPT {
            tokens.pop_first();
        }
    }

    pub(in crate::controller) fn has(&self, token: u64) -> bool {
        self.tokens().contains(&token)
    }

    fn tokens(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        // No code that panics runs under this lock, so a poisoned lock is still consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_holders_are_remembered_by_all_readers() {
        let tokens = OwnTokens::default();
        let shared = tokens.clone();
        (1..=20).for_each(|token| tokens.remember(token));
        assert!(shared.has(20) && shared.has(5) && !shared.has(4));
    }
}
