//! A release by hand: a frozen or killed pod runs without a permit, at the request of an administrator.

use super::{Effect, Record, Release, State};
use crate::BootInstant;
use crate::fence::observation::{Finding, Permit};

impl Record {
    /// Releases a pod that is known and does not run: one that runs or starts by a permit needs no release (P-120).
    /// The processes of a killed pod are dying, so those that run from now on have started afresh.
    pub(super) fn on_release(&mut self, out: &mut Vec<Effect>) {
        let lineage = match self.state {
            State::Frozen {
                lineage: Some(lineage),
                ..
            } => Some(lineage),
            State::Killed { .. } => None,
            _ => return,
        };
        let release = Release {
            lineage,
            seen: self.seen,
        };
        out.extend([Effect::StoreReleased(release), Effect::Thaw]);
        self.state = State::Released(release);
    }

    /// Ends a release, since the masters guarantee the lock to the cluster again. A pod of another lineage is
    /// killed, and starts afresh (P-120).
    pub(super) fn end_release(
        &mut self,
        release: Release,
        permit: &Permit,
        now: BootInstant,
        out: &mut Vec<Effect>,
    ) {
        if release
            .lineage
            .is_some_and(|lineage| lineage.first == permit.first)
        {
            let run = permit.run();
            out.push(Effect::Store(run));
            self.state = State::Running(run);
        } else {
            self.kill(now, out);
        }
    }

    /// Remembers the token of a round before the round is judged, so that it is not new to a later release.
    pub(super) fn remember(&mut self, finding: &Finding) {
        let token = match finding {
            Finding::Permit(permit) => permit.token,
            Finding::Foreign { token, .. } => *token,
            _ => return,
        };
        self.seen = self.seen.max(token);
    }
}
