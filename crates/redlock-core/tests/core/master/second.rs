//! The keys of a second lock on a master.

use redlock_core::{LeaseValue, Marks};

use super::{Master, Op, Reply};
use crate::rate::Instant;

/// Lease and reservation, as those of the first lock.
#[derive(Clone, Debug, Default)]
pub(super) struct SecondKeys {
    lease: Option<(LeaseValue, u64)>,
    reserved: Option<(String, u64)>,
}

impl Master {
    /// Runs one script for the second lock, which has keys of its own and the same counter. No candidate marks it.
    pub(crate) fn run_second(&mut self, at: Instant, not_after: u64, op: &Op) -> Reply {
        self.exchange_keys();
        let reply = self.run(at, not_after, op);
        self.exchange_keys();
        let marks = Marks::default();
        Reply { marks, ..reply }
    }

    fn exchange_keys(&mut self) {
        std::mem::swap(&mut self.lease, &mut self.second.lease);
        std::mem::swap(&mut self.reserved, &mut self.second.reserved);
    }

    pub(crate) fn second_lease(&self, at: Instant) -> Option<&LeaseValue> {
        let (value, last) = self.second.lease.as_ref()?;
        (self.millis(at) <= *last).then_some(value)
    }
}
