//! Masters are interchangeable: states that differ only in their order are one.

use super::state::{LEASES, Lease, MASTERS, Master, State};

impl State {
    pub(super) fn rank(&mut self) {
        let mut order: [usize; MASTERS] = std::array::from_fn(|master| master);
        order.sort_by_cached_key(|master| self.rank_of(*master));
        if order.is_sorted() {
            return;
        }
        self.masters = order.map(|master| self.masters[master]);
        let moved = |mask: u8| (0..MASTERS).fold(0, |all, place| all | (mask >> order[place] & 1) << place);
        for lease in &mut self.leases {
            for mask in masks(lease) {
                *mask = moved(*mask);
            }
        }
    }

    /// Returns the subsets of these masters, but only one of those that are alike in every way.
    pub(super) fn sets(&self, of: u8) -> Vec<u8> {
        let ranks: [_; MASTERS] = std::array::from_fn(|master| self.rank_of(master));
        let in_order =
            |set: u8| (1..MASTERS).all(|m| ranks[m - 1] != ranks[m] || set >> m & 1 <= set >> (m - 1) & 1);
        (0..=of)
            .filter(|set| set & of == *set && in_order(*set))
            .collect()
    }

    fn rank_of(&self, master: usize) -> (Master, [u16; LEASES]) {
        let bits = self.leases.map(|mut lease| {
            let masks = masks(&mut lease);
            let bits = masks.into_iter().enumerate();
            bits.fold(0, |all, (place, mask)| {
                all | u16::from(*mask >> master & 1) << place
            })
        });
        (self.masters[master], bits)
    }
}

fn masks(lease: &mut Lease) -> [&mut u8; 9] {
    [
        &mut lease.acks,
        &mut lease.raise_acks,
        &mut lease.renew_acks,
        &mut lease.grant.to,
        &mut lease.renew.to,
        &mut lease.mark.to,
        &mut lease.raise.to,
        &mut lease.ends.to,
        &mut lease.again,
    ]
}
