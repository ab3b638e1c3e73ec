//! A connection that is lost at the very moment of a release, an undo or a reserve, which the master runs or not.

use redlock_core::Operation;

use super::Kind;
use crate::world::World;

/// What becomes of a call whose connection may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Kept,
    LostAndRun,
    Lost,
}

impl World {
    pub(crate) fn fate(&mut self, master: usize, operation: Operation) -> Fate {
        let (ends, storms) = (
            matches!(
                operation,
                Operation::Release | Operation::Undo | Operation::Reserve
            ),
            self.storms(),
        );
        let Some(strain) = self.strain.as_mut().filter(|_| ends) else {
            return Fate::Kept;
        };
        let lost = match storms {
            true => strain.has(Kind::ConnectionLostAtRelease) && strain.rng.u32(..4) == 0,
            false => std::mem::take(&mut strain.at_release[master]),
        };
        let fate = match (lost, strain.rng.bool()) {
            (false, _) => return Fate::Kept,
            (true, true) => Fate::LostAndRun,
            (true, false) => Fate::Lost,
        };
        self.count(match fate {
            Fate::Lost => "connection lost before a release",
            _ => "connection lost after a release",
        });
        fate
    }

    /// Lets the next release lose the connections to as many masters as may fail, in some worlds.
    pub(crate) fn lose_connections_at_release(&mut self) {
        let healthy = |master: &usize| {
            let server = &self.masters[*master];
            let votes = server.sealed && !self.is_unfit(*master) && !server.memory_is_full;
            votes && self.reachable(*master)
        };
        let healthy: Vec<usize> = (0..self.masters.len()).filter(healthy).collect();
        let spare = healthy.len().saturating_sub(self.size.majority());
        if let Some(strain) = &mut self.strain
            && strain.has(Kind::ConnectionLostAtRelease)
        {
            for master in healthy.into_iter().take(spare) {
                strain.at_release[master] = true;
            }
        }
    }

    /// Reports whether a master may not vote although it is sealed.
    pub(crate) fn is_unfit(&self, master: usize) -> bool {
        self.is_forged(master) || self.masters[master].evicted
    }
}
