//! What is to become of a lock's targets in this cluster. Pure.

use std::time::Duration;

use crate::{api::leader_lock::OnQuorumLoss, lease::Moment};

/// What is known when it is decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// End of the own authority, if held now.
    pub(super) held_until: Option<Moment>,
    /// Nothing may start before: the takeover delay after an unclean end.
    pub(super) start_after: Moment,
    /// The lease before it was seen to be another cluster's.
    pub(super) from_elsewhere: bool,
    /// Whose lease is seen, if it has not ended: of this cluster or of another.
    pub(super) other: Option<Other>,
    /// The last holder that was seen, after any of this cluster, was another cluster's.
    pub(super) passed_on: bool,
    /// This replica held the lock last, until then.
    pub(super) lost: Option<Moment>,
    /// The end of the last lease of a sibling that was seen.
    pub(super) sibling_until: Option<Moment>,
    /// Others contend, and this replica only looks at who holds the lock.
    pub(super) observes: bool,
    /// When this replica began to look at the lock.
    pub(super) began: Moment,
    /// Somebody asked for a stop by then, whoever holds the lock.
    pub(super) ordered: Option<Moment>,
    pub(super) takeover_delay: Duration,
    pub(super) stop: Duration,
    pub(super) on_quorum_loss: OnQuorumLoss,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Other {
    Sibling,
    Elsewhere,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    Run,
    /// Everything must be gone by then, where there is a bound.
    Stop(Option<Moment>),
    /// Leave things as they are; looked at again then, or when something changes.
    Keep(Option<Moment>),
}

/// After a restart: as long as one acquire round may take to show who holds the lock.
const FIRST_ROUND: Duration = Duration::from_secs(1);
/// Kept free before another cluster may begin.
const MARGIN: Duration = Duration::from_secs(1);

pub(super) fn goal(facts: &Facts, now: Moment) -> Goal {
    if let Some(by) = facts.ordered {
        return Goal::Stop(Some(facts.lost.map_or(by, |lost| lost.min(by))));
    }
    if facts.observes {
        return match facts.other {
            Some(Other::Sibling) => Goal::Run,
            None if facts.sibling_until.is_none() && now < facts.began + FIRST_ROUND => {
                Goal::Keep(Some(facts.began + FIRST_ROUND))
            }
            // Nobody here can lengthen what was seen, nor adopt what the holder has.
            Some(Other::Elsewhere) | None => Goal::Stop(None),
        };
    }
    let keeps = facts.on_quorum_loss == OnQuorumLoss::KeepRunning;
    if facts.held_until.is_some() {
        return if now >= facts.start_after {
            Goal::Run
        } else if keeps || !facts.from_elsewhere {
            // What runs here may be this cluster's own.
            Goal::Keep(Some(facts.start_after))
        } else {
            // Another cluster's targets may run still: whatever runs here is not this cluster's turn.
            Goal::Stop(None)
        };
    }
    match facts.other {
        // It adopts what runs, and starts the rest. That its lease ends is not always told: not without a majority.
        Some(Other::Sibling) => return Goal::Keep(facts.sibling_until),
        Some(Other::Elsewhere) if !keeps => return Goal::Stop(facts.lost),
        // The lease ran out long ago: there is no end to keep, and two run already.
        Some(Other::Elsewhere) => return Goal::Stop(None),
        None => {}
    }
    if keeps {
        // Also when nobody can be seen any more: whoever had the lock keeps it running, too.
        return if facts.passed_on {
            Goal::Stop(None)
        } else {
            Goal::Keep(None)
        };
    }
    if facts.lost.is_some() {
        return Goal::Stop(facts.lost);
    }
    // Another cluster may begin after the takeover delay; a sibling may adopt until shortly before.
    let (at, others) = match facts.sibling_until {
        Some(ended) => (
            ended + facts.takeover_delay.saturating_sub(facts.stop + MARGIN),
            Some(ended + facts.takeover_delay),
        ),
        None => (facts.began + FIRST_ROUND, None),
    };
    if now < at {
        Goal::Keep(Some(at))
    } else {
        Goal::Stop(others.filter(|others| now < *others))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    fn facts() -> Facts {
        Facts {
            held_until: None,
            start_after: at(0),
            from_elsewhere: true,
            other: None,
            passed_on: false,
            lost: None,
            sibling_until: None,
            observes: false,
            began: at(100),
            ordered: None,
            takeover_delay: Duration::from_secs(40),
            stop: Duration::from_secs(35),
            on_quorum_loss: OnQuorumLoss::Stop,
        }
    }

    #[test]
    fn what_the_holder_may_start_runs() {
        let held = Facts {
            held_until: Some(at(130)),
            ..facts()
        };
        assert_eq!(goal(&held, at(110)), Goal::Run);
        let delayed = Facts {
            start_after: at(140),
            ..held
        };
        assert_eq!(goal(&delayed, at(139)), Goal::Stop(None), "by hand, say");
        assert_eq!(goal(&delayed, at(140)), Goal::Run);
        let unknown = Facts {
            from_elsewhere: false,
            ..delayed
        };
        assert_eq!(
            goal(&unknown, at(139)),
            Goal::Keep(Some(at(140))),
            "perhaps its own"
        );
        // The lease is renewed meanwhile: its end is no bound.
        let ordered = Facts {
            ordered: Some(at(150)),
            ..held
        };
        assert_eq!(goal(&ordered, at(110)), Goal::Stop(Some(at(150))));
    }

    #[test]
    fn a_lost_lock_is_stopped_before_its_lease_ends() {
        let lost = Facts {
            lost: Some(at(125)),
            ..facts()
        };
        assert_eq!(goal(&lost, at(101)), Goal::Stop(Some(at(125))));
        let elsewhere = Facts {
            other: Some(Other::Elsewhere),
            ..lost
        };
        assert_eq!(goal(&elsewhere, at(120)), Goal::Stop(Some(at(125))));
        // It adopts what runs.
        let sibling = Facts {
            other: Some(Other::Sibling),
            ..lost
        };
        assert_eq!(goal(&sibling, at(120)), Goal::Keep(None));
    }

    #[test]
    fn what_is_kept_running_runs_until_another_cluster_is_seen_to_hold() {
        let kept = Facts {
            on_quorum_loss: OnQuorumLoss::KeepRunning,
            ..facts()
        };
        let lost = Some(at(125));
        let (sibling, elsewhere) = (Some(Other::Sibling), Some(Other::Elsewhere));
        for (lost, other, passed_on, wanted) in [
            (None, None, false, Goal::Keep(None)),
            (lost, None, false, Goal::Keep(None)),
            (lost, sibling, false, Goal::Keep(None)),
            (lost, elsewhere, true, Goal::Stop(None)),
            (None, elsewhere, true, Goal::Stop(None)),
            (lost, None, true, Goal::Stop(None)),
            (None, None, true, Goal::Stop(None)),
            (None, sibling, true, Goal::Keep(None)),
        ] {
            let facts = Facts {
                lost,
                other,
                passed_on,
                ..kept
            };
            assert_eq!(goal(&facts, at(500)), wanted, "{lost:?} {other:?} {passed_on}");
        }
        let ordered = Facts {
            ordered: Some(at(510)),
            ..kept
        };
        assert_eq!(goal(&ordered, at(500)), Goal::Stop(Some(at(510))));
    }

    #[test]
    fn what_a_sibling_runs_is_left_to_siblings_until_another_cluster_might_begin() {
        let sibling = Facts {
            other: Some(Other::Sibling),
            ..facts()
        };
        assert_eq!(goal(&sibling, at(101)), Goal::Keep(None));
        let seen = Facts {
            sibling_until: Some(at(120)),
            ..sibling
        };
        assert_eq!(goal(&seen, at(101)), Goal::Keep(Some(at(120))), "nobody may tell");
        let ended = Facts {
            sibling_until: Some(at(120)),
            ..facts()
        };
        assert_eq!(
            goal(&ended, at(121)),
            Goal::Keep(Some(at(124))),
            "120 + 40 - 35 - 1"
        );
        assert_eq!(goal(&ended, at(124)), Goal::Stop(Some(at(160))), "120 + 40");
        assert_eq!(goal(&ended, at(160)), Goal::Stop(None), "by hand, hours later");
    }

    #[test]
    fn what_is_quick_to_undo_is_undone_before_another_cluster_begins() {
        // LabelPods: no stop time, 5 s of delay.
        let ended = Facts {
            sibling_until: Some(at(120)),
            stop: Duration::ZERO,
            takeover_delay: Duration::from_secs(5),
            ..facts()
        };
        assert_eq!(goal(&ended, at(120)), Goal::Keep(Some(at(124))));
        assert_eq!(goal(&ended, at(124)), Goal::Stop(Some(at(125))));
        // Told that another cluster does not wait, this one does not either.
        let at_once = Facts {
            takeover_delay: Duration::ZERO,
            ..ended
        };
        assert_eq!(goal(&at_once, at(120)), Goal::Stop(None));
    }

    #[test]
    fn who_observes_follows_what_is_seen_and_no_longer() {
        let seen = |other, sibling_until| Facts {
            observes: true,
            other,
            sibling_until,
            on_quorum_loss: OnQuorumLoss::KeepRunning,
            ..facts()
        };
        for (other, until, now, expected) in [
            (Some(Other::Sibling), Some(at(120)), 100, Goal::Run),
            (Some(Other::Elsewhere), None, 100, Goal::Stop(None)),
            // Ended, or not seen any more: without any delay.
            (None, Some(at(120)), 120, Goal::Stop(None)),
            // Not looked yet.
            (None, None, 100, Goal::Keep(Some(at(101)))),
            (None, None, 101, Goal::Stop(None)),
        ] {
            assert_eq!(goal(&seen(other, until), at(now)), expected);
        }
        let ordered = Facts {
            ordered: Some(at(150)),
            ..seen(Some(Other::Sibling), None)
        };
        assert_eq!(goal(&ordered, at(110)), Goal::Stop(Some(at(150))));
    }

    #[test]
    fn a_restarted_operator_stops_what_nobody_holds_after_one_round() {
        assert_eq!(goal(&facts(), at(100)), Goal::Keep(Some(at(101))));
        assert_eq!(goal(&facts(), at(101)), Goal::Stop(None));
    }
}
