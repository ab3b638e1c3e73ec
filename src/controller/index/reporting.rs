//! Decides which replica writes the status of a quorum.

use std::time::Duration;

use super::{
    World,
    reporter::{Reporter, ReporterDuty, Turn},
};
use crate::{
    controller::sibling_answers::Witness,
    lease::{BootInstant, LockName},
};

/// The longest duration of an election of the reporter, if a reporter can be elected.
const ELECTION: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Reporting {
    /// `None` while the quorum is not open.
    reporter: Option<Reporter>,
    /// Whether this replica was the last reporter, and no other was elected since.
    caretaker: bool,
    /// Whether another replica wrote a different status although no reporter is seen: this replica is cut
    /// off.
    contradicted: bool,
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

    pub(super) const fn is_contradicted(&self) -> bool {
        self.contradicted
    }

    /// Records that another replica sees a majority of voting masters.
    pub(super) fn contradict(&mut self) {
        self.contradicted = true;
    }

    /// Observes the internal locks; the caller polls this. Returns `None` while the quorum is not open.
    pub(super) fn observe(&mut self, quorum: &str, duty: &ReporterDuty, at: &World<'_>) -> Option<Turn> {
        let reporter = self.reporter.as_mut()?;
        let lock = |lock: &LockName| at.views.lock(quorum, lock, at.now);
        let turn = reporter.observe(&lock, duty, at.now);
        if reporter.quorum_unreported(at.now).is_none() {
            (self.caretaker, self.contradicted) = (reporter.reports_quorum(), false);
        }
        Some(turn)
    }

    /// Reports whether this replica writes the status.
    pub(super) fn may_write(&self, shown: Shown, now: BootInstant) -> bool {
        let unseen = shown.witness == Some(Witness::Absent);
        let Some(reporter) = &self.reporter else {
            // The quorum is not open: every replica would write the same, unless only this replica cannot
            // open it.
            return unseen || !shown.reported;
        };
        if unseen && shown.ready && !self.contradicted {
            return true;
        }
        let Some(absent) = reporter.quorum_unreported(now) else {
            return reporter.reports_quorum();
        };
        let no_reporter = absent >= ELECTION && !shown.reported;
        !self.contradicted && (self.caretaker || no_reporter || absent >= reporter.long())
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
