//! Applies a round of the lock to a record.

use super::{Effect, Lineage, Origin, Record, Refusal, Run, State};
use crate::{
    BootInstant,
    fence::observation::{Finding, Permit},
    planted::Plant,
};

impl Permit {
    pub(super) const fn run(&self) -> Run {
        Run {
            lineage: Lineage {
                first: self.first,
                token: self.token,
            },
            until: self.until,
        }
    }

    /// Reports whether a pod may start by this permit: the round did not begin before `after`, and shows that
    /// the holder allows starts (P-104). Otherwise a pod could start by a cached permit, after the holder has judged
    /// that all pods are gone.
    fn starts(&self, after: BootInstant, plant: Plant) -> bool {
        (self.sent >= after || plant.is(Plant::StartOnKeptPermit))
            && (!self.closed || plant.is(Plant::ClosedIgnored))
    }
}

impl Record {
    pub(super) fn on_round(&mut self, finding: Finding, now: BootInstant, out: &mut Vec<Effect>) {
        self.remember(&finding);
        match finding {
            Finding::Permit(permit) if now < permit.freeze_at() => self.on_permit(&permit, now, out),
            Finding::Foreign { token, .. } => self.on_foreign(token.0, finding, now, out),
            Finding::Unheld | Finding::ClockStoodStill => self.on_contrary(finding, now, out),
            // The permit ends before a pod can run by it, or there is no permit. An earlier permit is valid
            // until its end.
            Finding::Permit(_) | Finding::Withheld(_) => self.refuse(Refusal::Finding(finding)),
        }
    }

    /// Applies a permit: only the same `first` thaws a frozen pod, and a later permit of another one kills it (P-103).
    fn on_permit(&mut self, permit: &Permit, now: BootInstant, out: &mut Vec<Effect>) {
        match self.state {
            State::Waiting { called, .. } if permit.starts(called, self.plant) => {
                self.confirm(permit.run(), Origin::Publish { called }, now, out);
            }
            State::Waiting { .. } if permit.closed => self.refuse(Refusal::Closed),
            State::Killed {
                since,
                populated: Some(false),
                ..
            } if permit.starts(since, self.plant) => {
                self.confirm(permit.run(), Origin::Kill { since }, now, out);
            }
            State::Released(release) => self.end_release(release, permit, now, out),
            State::Running(run) if run.lineage.first == permit.first => self.extend(run, permit, out),
            State::Frozen {
                lineage: Some(lineage),
                ..
            } if lineage.first == permit.first || self.plant.is(Plant::ThawOnOtherFirst) => {
                let run = permit.run();
                out.extend([Effect::Store(run), Effect::Thaw]);
                self.state = State::Running(run);
            }
            State::Running(Run { lineage, .. })
            | State::Frozen {
                lineage: Some(lineage),
                ..
            } if permit.token > lineage.token => self.kill(now, out),
            _ => {}
        }
    }

    fn confirm(&mut self, run: Run, origin: Origin, now: BootInstant, out: &mut Vec<Effect>) {
        if self.plant.is(Plant::StartWithoutObject) {
            return self.store(run, origin, out);
        }
        out.push(Effect::ConfirmPod);
        self.state = State::Confirming {
            run,
            origin,
            since: now,
        };
    }

    pub(super) fn store(&mut self, run: Run, origin: Origin, out: &mut Vec<Effect>) {
        out.push(match origin {
            Origin::Publish { .. } => Effect::Store(run),
            Origin::Kill { .. } => Effect::StoreKilled(Some(run)),
        });
        self.state = State::Storing { run, origin };
    }

    /// Keeps the greatest token and the latest end that any round has given.
    fn extend(&mut self, run: Run, permit: &Permit, out: &mut Vec<Effect>) {
        let longest = Run {
            lineage: Lineage {
                token: run.lineage.token.max(permit.token),
                ..run.lineage
            },
            until: run.until.max(permit.until),
        };
        if longest != run {
            out.push(Effect::Store(longest));
            self.state = State::Running(longest);
        }
    }

    /// Handles the mark of another cluster. A mark that is older than that of the record shows nothing new:
    /// it ends the permit, but does not kill the pod.
    fn on_foreign(&mut self, token: u64, finding: Finding, now: BootInstant, out: &mut Vec<Effect>) {
        let own = match self.state {
            State::Running(Run { lineage, .. }) => Some(lineage.token.0),
            State::Frozen { lineage, .. } => Some(lineage.map_or(0, |lineage| lineage.token.0)),
            // A mark that the administrator knew, or could know, does not end the release.
            State::Released(release) => Some(release.seen.0),
            _ => None,
        };
        match own {
            Some(own) if token > own => self.kill(now, out),
            _ => self.on_contrary(finding, now, out),
        }
    }

    fn on_contrary(&mut self, finding: Finding, now: BootInstant, out: &mut Vec<Effect>) {
        match self.state {
            State::Running(_) if self.plant.is(Plant::ContraryIgnored) => {}
            State::Running(run) => self.freeze(run, now, out),
            State::Confirming { origin, .. } | State::Storing { origin, .. } => {
                self.back_to(origin, Refusal::Finding(finding), now, out);
            }
            _ => self.refuse(Refusal::Finding(finding)),
        }
    }

    fn refuse(&mut self, reason: Refusal) {
        if let State::Waiting { refusal, .. } = &mut self.state {
            *refusal = reason;
        }
    }
}
