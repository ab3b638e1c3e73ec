//! Decides which replica writes the status of a quorum.

use std::time::Duration;

use super::{
    World,
    reporter::{Reporter, ReporterDuty, Turn},
};
use crate::{
    controller::{
        planted::{WorldMistake, plants},
        sibling_answers::Witness,
    },
    lease::{BootInstant, LockName},
};

/// The longest duration of an election of the reporter, if a reporter can be elected.
const ELECTION: Duration = Duration::from_secs(1);

/// The time for which a contradiction counts: a heartbeat is due every 30 s, and its write may wait for others.
const CONTRADICTED: Duration = Duration::from_secs(60);

/// The interval between writes of a replica that no masters elected: another one, of another release or without the
/// coordination Lease, may see different masters and write as well.
const UNELECTED: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Reporting {
    /// `None` while the quorum is not open.
    reporter: Option<Reporter>,
    /// Whether this replica was the last reporter, and no other was elected since.
    caretaker: bool,
    /// The time until which another replica counts as the author, because it wrote a different status although no
    /// reporter is seen: this replica is cut off.
    contradicted_until: Option<BootInstant>,
    /// The time of the last status that this replica wrote without being elected.
    unelected_write: Option<BootInstant>,
    /// Whether the locks were notified that no replica can report.
    locks_know: bool,
}

/// The content of a quorum's status, and the answer of the siblings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    /// Whether a replica of this cluster reports.
    pub(super) reported: bool,
    /// Whether a majority votes.
    pub(super) ready: bool,
    /// The siblings' answer, if this replica sees no majority.
    pub(super) witness: Option<Witness>,
    /// Whether another replica coordinates: where no replica can be elected by the masters, only it writes. Replicas
    /// that see different masters would replace each other's status without end.
    pub(super) coordinated_elsewhere: bool,
}

impl Reporting {
    pub(super) fn reporter(&self) -> Option<&Reporter> {
        self.reporter.as_ref()
    }

    /// Sets the reporter; `None` for a quorum that could not be opened.
    pub(super) fn set_reporter(&mut self, reporter: Option<Reporter>) {
        self.reporter = reporter;
    }

    /// Reports whether this replica writes the status of the quorum.
    pub(super) fn is_mine(&self) -> bool {
        self.reporter.as_ref().is_some_and(Reporter::reports_quorum)
    }

    /// Returns the time until which another replica counts as the author.
    pub(super) fn contradicted_until(&self, now: BootInstant) -> Option<BootInstant> {
        self.contradicted_until.filter(|until| now < *until)
    }

    pub(super) fn is_contradicted(&self, now: BootInstant) -> bool {
        self.contradicted_until(now).is_some()
    }

    /// Records that another replica sees a majority of voting masters. Its heartbeats repeat that; without them, the
    /// different status is that of a restored backup.
    pub(super) fn contradict(&mut self, now: BootInstant) {
        let lasts = if plants(WorldMistake::TrustsRestoredStatus) {
            Duration::from_secs(86_400)
        } else {
            CONTRADICTED
        };
        self.contradicted_until = Some(now + lasts);
    }

    /// Observes the internal locks; the caller polls this. Returns `None` while the quorum is not open.
    pub(super) fn observe(&mut self, quorum: &str, duty: &ReporterDuty, at: &World<'_>) -> Option<Turn> {
        let reporter = self.reporter.as_mut()?;
        let lock = |lock: &LockName| at.views.lock(quorum, lock, at.now);
        let turn = reporter.observe(&lock, duty, at.now);
        if reporter.quorum_unreported(at.now).is_none() {
            (self.caretaker, self.contradicted_until) = (reporter.reports_quorum(), None);
        }
        Some(turn)
    }

    /// Reports whether this replica writes the status.
    pub(super) fn may_write(&self, shown: Shown, now: BootInstant) -> bool {
        let unseen = shown.witness == Some(Witness::Absent);
        let Some(reporter) = &self.reporter else {
            // The quorum is not open: every replica would write the same, unless only this replica cannot
            // open it.
            return !shown.coordinated_elsewhere && (unseen || !shown.reported);
        };
        let Some(absent) = reporter.quorum_unreported(now) else {
            return reporter.reports_quorum();
        };
        // A sibling that sees a majority writes, however late its heartbeat is.
        if self.is_contradicted(now) || shown.witness == Some(Witness::Responsible) {
            return false;
        }
        // The first replica that knows of the loss shows it.
        if shown.ready && (unseen || self.caretaker) {
            return true;
        }
        if self.unelected_write.is_some_and(|last| now < last + UNELECTED) {
            return false;
        }
        let no_reporter = absent >= ELECTION && !shown.reported;
        !shown.coordinated_elsewhere && (unseen || self.caretaker || no_reporter || absent >= reporter.long())
    }

    /// Records that this replica writes the status.
    pub(super) fn write_status(&mut self, now: BootInstant) {
        let is_unelected = !self.is_mine() && !plants(WorldMistake::ReportsEverywhere);
        self.unelected_write = is_unelected.then_some(now);
    }

    /// Reports, once, whether the statuses of locks must be written again because no replica can report on
    /// locks: none has reported for [`Reporter::long`].
    pub(super) fn locks_become_unknown(&mut self, now: BootInstant) -> bool {
        let Some(reporter) = &self.reporter else {
            return false;
        };
        let Some(absent) = reporter.locks_unreported(now) else {
            return false;
        };
        let due = absent >= reporter.long();
        let before = std::mem::replace(&mut self.locks_know, due);
        due && !before
    }
}
