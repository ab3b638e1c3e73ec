//! Failovers to a copy and back: the process of a master stays, and its data becomes that of the copy.

use super::{What, World};
use crate::{master::Master, rate::MS, scripts::Named};

/// Reports whether masters of a world are promoted, by its seed.
pub(super) const fn promotes(seed: u64) -> bool {
    seed % 6 == 1
}

/// The data of a master at an earlier instant, which its replica has copied.
#[derive(Clone, Debug)]
pub(crate) struct Promotion {
    master: usize,
    run: u64,
    copy: Master,
    stamp: Option<Named>,
}

impl World {
    /// Copies a master, which becomes a replica of the copy and is promoted again some time later.
    pub(crate) fn copy_master(&mut self, master: usize) {
        let promotion = Promotion {
            master,
            run: self.runs[master],
            copy: self.masters[master].clone(),
            stamp: self.stamps[master],
        };
        let at = self.now + self.rng.u64(MS..1_500 * MS);
        self.at(at, What::PromotedBack(Box::new(promotion)));
    }

    pub(super) fn promote_back(&mut self, promotion: Promotion) {
        let Promotion {
            master,
            run,
            copy,
            stamp,
        } = promotion;
        if !self.storms() || self.runs[master] != run || !self.may_lose(master) {
            return;
        }
        self.count("failover to a copy and back");
        self.masters[master].return_from(copy);
        self.stamps[master] = stamp;
        self.wake_sealer();
    }
}
