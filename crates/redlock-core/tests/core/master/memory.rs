//! A full memory: the server refuses each command that may need more of it, unless the script has written before.
//! Deletions, and changes of a key's end, are served.

use redlock_core::{LeaseValue, Mark};

use super::{Answer, Fenced, Master, Op, Registers, mine};
use crate::{plant::Plant, rate::Instant};

impl Master {
    /// Returns the answer of a script whose first write is refused; `None` if it is served.
    pub(super) fn refusal(&self, at: Instant, op: &Op) -> Option<Answer> {
        if !self.memory_is_full || self.plant == Plant::MemoryNeverFull {
            return None;
        }
        match op {
            Op::Grant { stem, .. } => {
                let own = self.lease(at).is_some_and(|value| mine(value, stem));
                let hold = self.foreign(at, &stem.cluster.to_string());
                let writes = !own && self.obstacle(at, hold.as_deref()).is_none();
                writes.then_some(Answer::OutOfMemory)
            }
            Op::Confirm { value, token } => {
                let raises = self.lease(at) == Some(value) && self.registers.counter < *token;
                raises.then_some(Answer::OutOfMemory)
            }
            Op::Renew {
                stem, token, fence, ..
            } => self
                .puts_back(at, stem, *token, fence.as_ref())
                .then_some(Answer::Failed),
            Op::Mark {
                stem, fence, mark, ..
            } => {
                let own = self.lease(at).is_some_and(|value| mine(value, stem));
                let by_script = fence.is_some() && *mark != Mark::Clean;
                let refusal = if by_script {
                    Answer::Failed
                } else {
                    Answer::OutOfMemory
                };
                ((own || *mark == Mark::Clean) && self.raises(op)).then_some(refusal)
            }
            Op::Claim { .. } => self.raises(op).then_some(Answer::OutOfMemory),
            Op::Break { .. } => Some(Answer::OutOfMemory),
            Op::Release { .. } | Op::Reserve { .. } | Op::Observe { .. } => None,
        }
    }

    /// Reports whether a renewal finds no lease, and would set it again.
    fn puts_back(&self, at: Instant, stem: &LeaseValue, token: u64, fence: Option<&Fenced>) -> bool {
        let blocked = self.foreign(at, &stem.cluster.to_string()).is_some();
        let marked_later = fence.is_some() && self.registers.mark.0 > token;
        self.lease(at).is_none() && !blocked && !marked_later
    }

    /// Reports whether this mark or claim changes a register.
    fn raises(&self, op: &Op) -> bool {
        let mut after = self.registers.clone();
        match op {
            Op::Mark {
                token,
                mark: mark @ Mark::Held { delay },
                fence,
                ..
            } => match fence {
                Some(fence) => after.raise(*token, fence, super::millis(*delay), self.plant),
                None => after.mark(*token, *mark, self.plant),
            },
            Op::Mark { token, mark, .. } => after.mark(*token, *mark, self.plant),
            Op::Claim { slot, job } => drop(after.claim(*slot, *job)),
            _ => {}
        }
        after != self.registers
    }

    /// Reports whether a granted renewal of a marked lease leaves the registers and the reservation as they are.
    /// `extended` states whether the script has written before.
    pub(super) fn keeps_nothing(&self, extended: bool, (token, fence): (u64, &Fenced)) -> bool {
        let mut after: Registers = self.registers.clone();
        after.raise(token, &fence.mark, fence.delay, Plant::Nothing);
        self.memory_is_full && !extended && after != self.registers
    }
}
