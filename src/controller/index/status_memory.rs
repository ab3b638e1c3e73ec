//! Keeps the memory of this replica about the statuses of one lock.

use std::time::Duration;

use super::Settled;
use crate::{
    controller::{events::EventReason, object::ObjectKey, status::BlindStatus},
    lease::{BootInstant, FencingToken},
};

/// The time within which a replica observes a grant that another replica has reported.
const NEWER_VIEW: Duration = Duration::from_secs(10);

/// A token in the status of a lock, to be compared with the counters of a quorum.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::controller) struct WrittenToken {
    pub(in crate::controller) key: ObjectKey,
    pub(in crate::controller) quorum: String,
    pub(in crate::controller) token: i64,
}

#[derive(Debug, Default)]
pub(super) struct StatusMemory {
    /// The token of the last lease of this replica, as the status names it.
    pub(super) last_held: Option<FencingToken>,
    /// The token in a status about which the masters were asked last.
    pub(super) checked: Option<CheckedToken>,
    /// The token in the status when the lock was left for another quorum.
    pub(super) former: Option<FormerToken>,
    /// A token in the status that is larger than the one of the observed holder, and when this replica first saw it.
    pub(super) later_token: Option<(i64, BootInstant)>,
    /// Whether the last status that this replica wrote reports an unknown state.
    pub(super) unknown: bool,
    /// The last status that this replica wrote without a majority.
    pub(super) blind: Option<BlindStatus>,
    pub(super) settled: Settled,
    /// Whether this replica has given up the lock since it last contended for it.
    pub(super) has_left: bool,
    /// Whether an event reported why the lock cannot be given up.
    pub(super) departure_reported: bool,
    /// Events to emit once the status is written.
    pub(super) events: Vec<(EventReason, String)>,
}

/// A token in a status that is larger than any token that this replica saw.
#[derive(Clone, Debug)]
pub(super) struct CheckedToken {
    /// The quorum whose masters were asked.
    pub(super) quorum: String,
    pub(super) token: i64,
    /// Whether a master may have issued it.
    pub(super) plausible: bool,
}

/// A token of a quorum that the lock was left for another one: no master of the other one issued it.
#[derive(Clone, Debug)]
pub(super) struct FormerToken {
    pub(super) quorum: String,
    pub(super) token: i64,
}

impl StatusMemory {
    /// Reports whether a master of this quorum may have issued this token; `None` if no master was asked about it.
    pub(super) fn is_plausible(&self, quorum: &str, token: i64) -> Option<bool> {
        let former = self.former.as_ref();
        if former.is_some_and(|former| former.token == token && former.quorum != quorum) {
            return Some(false);
        }
        let checked = self.checked.as_ref();
        let checked = checked.filter(|checked| checked.token == token && checked.quorum == quorum)?;
        Some(checked.plausible)
    }

    /// Returns the time until which this replica leaves a status to its writer, because the status names a later grant than
    /// this replica observes. The wait has an end, since a person may have written the status.
    pub(super) fn awaits_newer_view(
        &mut self,
        written: i64,
        observed: u64,
        now: BootInstant,
    ) -> Option<BootInstant> {
        if u64::try_from(written).is_ok_and(|written| written <= observed) {
            self.later_token = None;
            return None;
        }
        let first_seen = match self.later_token {
            Some((token, since)) if token == written => since,
            _ => now,
        };
        self.later_token = Some((written, first_seen));
        let until = first_seen + NEWER_VIEW;
        (now < until).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replica_with_an_older_view_leaves_the_status_to_the_holder_for_some_time() {
        let mut memory = StatusMemory::default();
        let begin = BootInstant::default() + Duration::from_secs(100);
        let end = begin + NEWER_VIEW;
        let before_end = begin + NEWER_VIEW / 2;
        assert_eq!(memory.awaits_newer_view(7, 7, begin), None);
        assert_eq!(memory.awaits_newer_view(8, 7, begin), Some(end));
        assert_eq!(memory.awaits_newer_view(8, 7, before_end), Some(end));
        assert_eq!(
            memory.awaits_newer_view(8, 7, end),
            None,
            "no replica confirms it"
        );
        // The holder has written its token once more after this replica's status.
        assert_eq!(memory.awaits_newer_view(7, 7, end), None);
        assert_eq!(memory.awaits_newer_view(8, 7, end), Some(end + NEWER_VIEW));
    }

    #[test]
    fn verdict_about_a_token_counts_for_its_quorum_alone() {
        let memory = StatusMemory {
            checked: Some(CheckedToken {
                quorum: "default".to_owned(),
                token: 7,
                plausible: true,
            }),
            former: Some(FormerToken {
                quorum: "default".to_owned(),
                token: 8,
            }),
            ..StatusMemory::default()
        };
        assert_eq!(memory.is_plausible("default", 7), Some(true));
        assert_eq!(memory.is_plausible("second", 7), None);
        assert_eq!(memory.is_plausible("second", 8), Some(false));
        assert_eq!(memory.is_plausible("default", 8), None, "the lock came back");
        assert_eq!(memory.is_plausible("default", 9), None);
    }
}
