//! Merges states that behave alike: fewer states to explore, and none is missed.

use crate::{
    attempt::{MOST, Phase},
    master::{Lease, Master, Seal},
    state::State,
};

impl<const N: usize> State<N> {
    /// Resets the fields that no later step reads, so that states that behave alike are equal.
    pub(crate) fn tidy(&mut self) {
        for attempt in &mut self.attempts.0 {
            attempt.tidy();
        }
        self.rank_attempts();
        let pending = self.attempts.pending();
        for master in &mut self.masters {
            if let Seal::Probed { waits_for, .. } = &mut master.seal {
                *waits_for &= pending;
            }
        }
        // A lease blocks a grant only until it expires, and matters only to the confirm of its own grant.
        let attempts = self.attempts.0;
        let confirms = |lease: &Lease| {
            let attempt = &attempts[usize::from(lease.of)];
            attempt.phase == Phase::Granting && !attempt.ended || attempt.confirms != 0
        };
        for master in &mut self.masters {
            master.lease = master.lease.filter(confirms);
        }
        self.rank();
    }

    /// Attempts are interchangeable, too.
    fn rank_attempts(&mut self) {
        let mut order: [usize; MOST] = std::array::from_fn(|id| id);
        order.sort_by_key(|id| {
            let attempt = self.attempts.0[*id];
            (attempt.phase == Phase::Unborn, attempt)
        });
        if order.is_sorted() {
            return;
        }
        let place = |id: u8| {
            (0..MOST as u8)
                .find(|place| order[usize::from(*place)] == usize::from(id))
                .unwrap_or(id)
        };
        self.attempts.0 = order.map(|id| self.attempts.0[id]);
        for master in &mut self.masters {
            if let Some(lease) = &mut master.lease {
                lease.of = place(lease.of);
            }
            if let Seal::Probed { waits_for, .. } = &mut master.seal {
                *waits_for = (0..MOST).fold(0, |all, place| all | (*waits_for >> order[place] & 1) << place);
            }
        }
    }

    /// Masters are interchangeable: states that differ only in their order are one.
    fn rank(&mut self) {
        let mut order: [usize; N] = std::array::from_fn(|master| master);
        order.sort_by_cached_key(|master: &usize| self.rank_of(*master));
        if order.is_sorted() {
            return;
        }
        let moved = |mask: u8| (0..N).fold(0, |all, place| all | (mask >> order[place] & 1) << place);
        self.masters = order.map(|master| self.masters[master]);
        for master in &mut self.masters {
            if let Seal::Probed { read, .. } = &mut master.seal
                && *read != u8::MAX
            {
                *read = moved(*read);
            }
        }
        for attempt in &mut self.attempts.0 {
            attempt.first = moved(attempt.first);
            attempt.confirms = moved(attempt.confirms);
            attempt.acks = moved(attempt.acks);
            attempt.granted = order.map(|master| attempt.granted[master]);
        }
    }

    fn rank_of(&self, master: usize) -> (Master, [(u8, u8); MOST]) {
        let mut found = self.masters[master];
        if let Seal::Probed { read, .. } = &mut found.seal {
            *read = if *read == u8::MAX {
                3
            } else {
                read.count_ones() as u8
            };
        }
        let bit = |mask: u8| mask >> master & 1;
        let of = self.attempts.0.map(|attempt| {
            let bits = bit(attempt.first) | bit(attempt.confirms) << 1 | bit(attempt.acks) << 2;
            (bits, attempt.granted[master])
        });
        (found, of)
    }
}
