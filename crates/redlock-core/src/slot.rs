//! Decides from the registers of the masters which job may run a slot of a schedule.

use super::vote::QuorumSize;

/// The result of one attempt to claim a slot for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// A majority granted the slot in one round: it belongs to this job for good, even if the lease ends (P-88).
    Granted,
    /// More than N - M masters refused: the slot can never belong to this job.
    Refused,
    /// This round shows neither. Some masters may have granted the slot: only this job can find out, by
    /// claiming it again.
    Undecided,
}

/// The register of a target on one master: the last claimed slot and the job that claimed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRegister {
    /// In seconds since 1970; zero if none was ever claimed.
    pub slot: u64,
    /// `<uid>@<cluster>`, or `<uid>@<holder>` of a `redlock run`.
    pub job: String,
    /// Slots up to this one can no longer be claimed: the record of their claims was lost (P-90).
    pub floor: u64,
}

/// The registers that the masters showed in one round.
#[derive(Clone, Debug)]
pub struct SlotView {
    size: QuorumSize,
    /// The registers of the masters that may vote and answered.
    seen: Vec<SlotRegister>,
}

/// The state of a slot for one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// A majority shows that this job claimed it.
    Mine,
    /// By the observed registers, this job may still claim it.
    Open,
    Gone(Gone),
}

/// The reason why a job can never claim a slot: registers only grow, so a master that refuses it once always does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gone {
    /// A majority shows that this other job claimed it.
    To(String),
    /// The job `job` claimed the later slot `slot`. The register no longer shows which job claimed this one.
    Passed { slot: u64, job: String },
    /// No claim up to this slot is on record: the masters were new when they were sealed, or had lost their memory.
    Unrecorded { floor: u64 },
    /// No job is known to have the slot: the claims split, or masters forgot one of them.
    Lost,
}

impl SlotView {
    #[must_use]
    pub const fn new(size: QuorumSize) -> Self {
        Self {
            size,
            seen: Vec::new(),
        }
    }

    /// Records the register of one more master.
    pub fn record(&mut self, register: SlotRegister) {
        self.seen.push(register);
    }

    /// Reports whether a majority shows the same register, so that the others change nothing.
    #[must_use]
    pub fn agreed(&self) -> bool {
        let same = |register: &SlotRegister| self.count(|other| other == register);
        self.seen
            .iter()
            .any(|register| same(register) >= self.size.majority())
    }

    /// Returns the state of a slot for a job, which gives it up only if more than N - M masters refuse it (P-89).
    #[must_use]
    pub fn fate(&self, slot: u64, job: &str) -> Fate {
        let majority = self.size.majority();
        if self.count(|seen| seen.shows(slot, job)) >= majority {
            return Fate::Mine;
        }
        if self.count(|seen| seen.refuses(slot, job)) <= self.size.tolerated() {
            return Fate::Open;
        }
        let same = |by: &str| self.count(|seen| seen.slot == slot && same_job(&seen.job, by));
        let others = self.seen.iter().filter(|seen| seen.slot == slot);
        if let Some(other) = others.into_iter().find(|seen| {
            [NO_JOB, job].iter().all(|by| !same_job(&seen.job, by)) && same(&seen.job) >= majority
        }) {
            return Fate::Gone(Gone::To(other.job.clone()));
        }
        let latest = self.seen.iter().max_by_key(|seen| seen.slot);
        if let Some(latest) = latest.filter(|latest| latest.slot > slot) {
            return Fate::Gone(Gone::Passed {
                slot: latest.slot,
                job: latest.job.clone(),
            });
        }
        let floors = || self.seen.iter().map(|seen| seen.floor);
        let unrecorded = floors().filter(|floor| slot <= *floor).count() > self.size.tolerated();
        Fate::Gone(match floors().max().filter(|_| unrecorded) {
            Some(floor) => Gone::Unrecorded { floor },
            None => Gone::Lost,
        })
    }

    /// Returns the latest slot that a master shows.
    #[must_use]
    pub fn latest(&self) -> Option<u64> {
        self.seen.iter().map(|seen| seen.slot).max()
    }

    /// Reports whether a master shows this slot or a later one, whichever job claimed it; `None` if too few masters
    /// answered to exclude that.
    #[must_use]
    pub fn is_reached(&self, slot: u64) -> Option<bool> {
        if self.count(|seen| seen.slot >= slot) > 0 {
            return Some(true);
        }
        (self.seen.len() >= self.size.majority()).then_some(false)
    }

    /// Reports whether more than N - M masters show that this job has not claimed it.
    #[must_use]
    pub fn is_not_of(&self, slot: u64, job: &str) -> bool {
        self.count(|seen| !seen.shows(slot, job)) > self.size.tolerated()
    }

    fn count(&self, test: impl Fn(&SlotRegister) -> bool) -> usize {
        self.seen.iter().filter(|seen| test(seen)).count()
    }
}

/// Replaces the job if merged masters had different ones.
pub const NO_JOB: &str = "nobody";

impl SlotRegister {
    /// Reports whether the script `claim` refuses the slot for this job (P-88).
    fn refuses(&self, slot: u64, job: &str) -> bool {
        slot <= self.floor || (slot <= self.slot && !self.shows(slot, job))
    }

    fn shows(&self, slot: u64, job: &str) -> bool {
        self.floor < slot && self.slot == slot && same_job(&self.job, job) && !same_job(job, NO_JOB)
    }
}

fn uid(job: &str) -> &str {
    job.split_once('@').map_or(job, |(uid, _)| uid)
}

/// Reports whether two texts `<uid>@<cluster>` name the same job. The name of its cluster is for display, and may
/// change.
#[must_use]
pub fn same_job(one: &str, other: &str) -> bool {
    uid(one) == uid(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a view of five masters, of which these answered.
    fn view(seen: &[(u64, &str)]) -> SlotView {
        let mut view = SlotView::new(QuorumSize::new(5).unwrap());
        for (slot, job) in seen {
            let job = (*job).to_owned();
            view.record(SlotRegister {
                slot: *slot,
                job,
                floor: 3,
            });
        }
        view
    }

    #[test]
    fn a_slot_is_gone_only_when_so_many_refuse_that_the_others_are_no_majority() {
        let to = |job: &str| Fate::Gone(Gone::To(job.into()));
        let passed = |slot, job: &str| {
            Fate::Gone(Gone::Passed {
                slot,
                job: job.into(),
            })
        };
        let lost = Fate::Gone(Gone::Lost);
        for (seen, fate) in [
            (&[][..], Fate::Open),
            (&[(9, "a"), (9, "a"), (9, "a")], Fate::Mine),
            (&[(9, "a"), (9, "a"), (9, "b"), (9, "b")], Fate::Open),
            (&[(9, "b"), (9, "b")], Fate::Open),
            (&[(9, "b"), (9, "b"), (9, "b"), (9, "a"), (8, "a")], to("b")),
            (
                &[(9, "b"), (9, "c"), (9, "nobody"), (9, "a"), (9, "a")],
                lost.clone(),
            ),
            (&[(9, "nobody"), (9, "nobody"), (9, "nobody")], lost),
            (&[(9, "b"), (10, "c"), (9, "b")], passed(10, "c")),
            // Claimed by this job, and overtaken before it ran.
            (
                &[(10, "b"), (10, "b"), (10, "b"), (9, "a"), (9, "a")],
                passed(10, "b"),
            ),
            (&[(8, "b"), (8, "b"), (8, "b"), (8, "b"), (8, "b")], Fate::Open),
            // The cluster was renamed.
            (&[(9, "a@eu"), (9, "a@eu-1"), (9, "a")], Fate::Mine),
            (&[(9, "b@eu"), (9, "b@eu-1"), (9, "b@eu")], to("b@eu")),
        ] {
            assert_eq!(view(seen).fate(9, "a"), fate, "{seen:?}");
        }
        // No claim up to 3 is on record, as on new masters.
        let unrecorded = Fate::Gone(Gone::Unrecorded { floor: 3 });
        assert_eq!(view(&[(3, "a"), (3, "a"), (3, "a")]).fate(3, "a"), unrecorded);
        let never = (0, "nobody");
        assert_eq!(view(&[never, never, never]).fate(3, "a"), unrecorded);
        // A majority may still have the claim on record.
        let mut two_new = view(&[(9, "b")]);
        for _ in 0..2 {
            two_new.record(SlotRegister {
                slot: 0,
                job: NO_JOB.into(),
                floor: 9,
            });
        }
        assert_eq!(two_new.fate(9, "a"), Fate::Gone(Gone::Lost));
        let no_job = view(&[(9, "nobody"), (9, "nobody"), (9, "nobody")]);
        assert_ne!(no_job.fate(9, "nobody"), Fate::Open);
    }

    #[test]
    fn a_slot_is_not_of_a_job_when_the_masters_that_did_not_answer_are_no_majority() {
        for (seen, is_not) in [
            (&[][..], false),
            (&[(9, "b"), (8, "b")], false),
            (&[(9, "a"), (9, "a"), (8, "b"), (8, "b")], false),
            (&[(9, "a"), (9, "a"), (8, "b"), (8, "b"), (8, "b")], true),
            (&[(8, "b"), (10, "a"), (9, "b")], true),
        ] {
            assert_eq!(view(seen).is_not_of(9, "a@eu"), is_not, "{seen:?}");
        }
    }

    #[test]
    fn a_slot_is_reached_by_one_master_and_not_reached_by_a_majority() {
        for (seen, reached) in [
            (&[][..], None),
            (&[(8, "a"), (8, "a")], None),
            (&[(8, "a"), (8, "a"), (0, "nobody")], Some(false)),
            (&[(9, "b")], Some(true)),
            (&[(8, "a"), (8, "a"), (8, "a"), (10, "b")], Some(true)),
        ] {
            assert_eq!(view(seen).is_reached(9), reached, "{seen:?}");
            let latest = seen.iter().map(|(slot, _)| *slot).max();
            assert_eq!(view(seen).latest(), latest, "{seen:?}");
        }
    }

    #[test]
    fn the_last_masters_are_waited_for_until_a_majority_shows_the_same() {
        assert!(!view(&[(9, "a"), (9, "a"), (9, "b")]).agreed());
        assert!(view(&[(9, "a"), (9, "a"), (8, "b"), (9, "a")]).agreed());
    }
}
