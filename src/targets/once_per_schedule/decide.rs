//! Decides on one Job, from whether this cluster holds the lock and from the claims of its slot on the
//! masters.

use std::time::Duration;

use super::{
    OncePerSchedule, POLL_INTERVAL, SOON,
    job::{Job, Mark, Stage, When, job},
};
use crate::{
    clock,
    lease::{Claim, Fate, FencingToken, Gone, SlotView},
    targets::{Found, StartPermit, StopPermit, TargetError, slim::Job as BatchJob, write::Write},
    telemetry::SlotResult,
};

/// The time after which a slot that the masters could not decide no longer holds up the later ones, such as a
/// slot whose claims split while a master is down. The slot is lost if a later one is claimed.
const GIVES_WAY: Duration = Duration::from_secs(10);
/// The number of seconds by which the clocks of the CronJob controllers may be ahead. A slot is claimed no
/// earlier than this before its time: the register would then refuse every earlier slot.
const EARLY: u64 = 60;

/// The permit under which a turn is made.
#[derive(Clone, Copy, Debug)]
pub(super) enum TurnPermit<'a> {
    /// This cluster holds the lock.
    Starts(&'a StartPermit),
    Stops(&'a StopPermit),
}

impl<'a> TurnPermit<'a> {
    pub(super) const fn to_start(self) -> Option<&'a StartPermit> {
        match self {
            Self::Starts(permit) => Some(permit),
            Self::Stops(_) => None,
        }
    }

    /// Reports whether no replica of this cluster is known to hold the lock. Call it after the last await before the
    /// write.
    fn may_stop(self) -> bool {
        match self {
            Self::Starts(_) => false,
            Self::Stops(permit) => permit.holds(Found::Running),
        }
    }
}

/// The powers of this cluster in one turn.
pub(super) struct Power<'a> {
    pub(super) permit: TurnPermit<'a>,
    /// Whether this cluster may claim slots that are not claimed yet.
    pub(super) claims: bool,
    /// The claims on the masters; `None` if they are not needed or not known.
    pub(super) view: Option<SlotView>,
}

/// The step that follows the decision on one Job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Settled,
    Later(Duration),
    /// Like `Later`, and later slots wait for this one.
    Blocks(Duration),
}

/// The owner of a slot.
enum Verdict {
    Mine,
    Never(Never),
    NotYet(Next),
}

/// The reason why a Job never runs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Never {
    Gone(Gone),
    TooOld,
}

/// Whether the age of a slot allows a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Not yet, but after this time.
    Early(Duration),
    Now,
    /// No longer. A Job that has already claimed the slot still runs.
    TooOld,
}

/// Decides whether the slot is due. All times are in seconds since 1970.
pub(super) fn due(slot: u64, now: u64, max_age: Duration) -> Due {
    if slot.saturating_add(max_age.as_secs()) < now {
        Due::TooOld
    } else if slot > now + EARLY {
        Due::Early(Duration::from_secs(slot - now - EARLY))
    } else {
        Due::Now
    }
}

/// The owner of a slot, according to the claims on the masters and without a new claim.
#[derive(Debug, PartialEq, Eq)]
enum Shown {
    Mine,
    Never(Never),
    Unknown,
}

fn shown(view: Option<&SlotView>, slot: u64, claimant: &str, due: Due) -> Shown {
    let Some(view) = view else {
        return Shown::Unknown;
    };
    let too_old = due == Due::TooOld;
    match view.fate(slot, claimant) {
        Fate::Mine => Shown::Mine,
        Fate::Gone(Gone::Passed { .. } | Gone::Unrecorded { .. } | Gone::Lost) if too_old => {
            Shown::Never(Never::TooOld)
        }
        Fate::Gone(gone) => Shown::Never(Never::Gone(gone)),
        // A claim that some masters have not shown yet may belong to this Job.
        Fate::Open if too_old && view.is_not_of(slot, claimant) => Shown::Never(Never::TooOld),
        Fate::Open => Shown::Unknown,
    }
}

impl OncePerSchedule {
    pub(super) async fn decide(&mut self, job: &Job, power: &Power<'_>) -> Result<Next, TargetError> {
        match &job.stage {
            Stage::Over | Stage::Runs | Stage::Left => Ok(Next::Settled),
            Stage::Lost => self.delete(job).await,
            Stage::Waits { emitted } => match self.verdict(job, power).await {
                Verdict::Mine => self.run(job, power).await,
                Verdict::Never(why) => self.drop_job(job, &why).await,
                Verdict::NotYet(next) => match job.slot {
                    When::Manual if power.permit.to_start().is_none() && !emitted => {
                        self.wait(job, Mark::Waits).await
                    }
                    When::Unreadable if !emitted => self.wait(job, Mark::Unreadable).await,
                    When::Scheduled(_) | When::Manual | When::Unreadable => Ok(next),
                },
            },
            Stage::ByHand(manager) => match self.verdict(job, power).await {
                // The pods of the Job already run, and may continue.
                Verdict::Mine => self.written(job, self.desk.mark(job, Mark::Claimed).await?),
                Verdict::Never(_) | Verdict::NotYet(_) => self.suspend(job, manager, power).await,
            },
        }
    }

    async fn verdict(&mut self, job: &Job, power: &Power<'_>) -> Verdict {
        let slot = match (job.slot, power.permit.to_start()) {
            (When::Scheduled(slot), _) => slot,
            // The Job exists in this cluster only, so there is no slot to claim.
            (When::Manual, Some(permit)) if permit.holds() => return Verdict::Mine,
            (When::Manual, Some(_)) => return Verdict::NotYet(Next::Later(SOON)),
            (When::Manual | When::Unreadable, _) => return Verdict::NotYet(Next::Settled),
        };
        if self.granted.contains(&job.uid) {
            return Verdict::Mine;
        }
        let due = self.due(slot);
        match (due, power.permit.to_start()) {
            (Due::Early(pause), _) => Verdict::NotYet(Next::Later(pause)),
            (Due::Now, Some(permit)) if power.claims => self.claim(job, slot, permit).await,
            (Due::Now | Due::TooOld, _) => self.recognize(job, slot, due, power).await,
        }
    }

    pub(super) fn due(&self, slot: u64) -> Due {
        due(slot, clock::unix_time().as_secs(), self.max_age)
    }

    /// Claims the slot. This cluster holds the lock.
    async fn claim(&mut self, job: &Job, slot: u64, permit: &StartPermit) -> Verdict {
        if !permit.holds() {
            return Verdict::NotYet(Next::Blocks(SOON));
        }
        match self.ask(job, slot).await {
            Claim::Granted => Verdict::Mine,
            Claim::Refused => match self.view().await.map(|view| view.fate(slot, &self.claimant(job))) {
                Some(Fate::Gone(gone)) => Verdict::Never(Never::Gone(gone)),
                Some(Fate::Mine | Fate::Open) | None => Verdict::NotYet(Next::Later(SOON)),
            },
            Claim::Undecided => {
                self.count(SlotResult::Undecided);
                self.hold_up(job)
            }
        }
    }

    /// Holds up later slots for a while: the claim of a later slot makes this one unavailable.
    fn hold_up(&mut self, job: &Job) -> Verdict {
        let now = clock::now();
        let since = *self.undecided.entry(job.uid.clone()).or_insert(now);
        Verdict::NotYet(if now.since(since) < GIVES_WAY {
            Next::Blocks(SOON)
        } else {
            Next::Later(POLL_INTERVAL)
        })
    }

    /// Decides without a new claim. Finishes an earlier claim for this Job, by any replica of this cluster,
    /// that was not followed by a start.
    async fn recognize(&mut self, job: &Job, slot: u64, due: Due, power: &Power<'_>) -> Verdict {
        match shown(power.view.as_ref(), slot, &self.claimant(job), due) {
            Shown::Mine if self.ask(job, slot).await == Claim::Granted => Verdict::Mine,
            Shown::Never(why) => Verdict::Never(why),
            Shown::Mine | Shown::Unknown if power.claims => self.hold_up(job),
            Shown::Mine | Shown::Unknown => Verdict::NotYet(Next::Later(POLL_INTERVAL)),
        }
    }

    pub(super) async fn view(&self) -> Option<SlotView> {
        let (lock, object) = (&self.context.lock, &self.reference.name);
        self.context.elector.slots(lock, object).await
    }

    async fn ask(&mut self, job: &Job, slot: u64) -> Claim {
        // The register is named after the CronJob and not after the target, whose name may be changed in one
        // cluster at a time.
        let (lock, object, by) = (&self.context.lock, &self.reference.name, self.claimant(job));
        let claim = self.context.elector.claim(lock, object, slot, &by).await;
        if claim == Claim::Granted {
            self.granted.insert(job.uid.clone());
        }
        claim
    }

    /// Returns the Job as the register names it: the UID, and the cluster for human readers.
    fn claimant(&self, job: &Job) -> String {
        format!("{}@{}", job.uid, self.context.cluster.name())
    }

    /// Starts the Job. A claimed slot needs no lease: no other Job can ever be granted it.
    async fn run(&mut self, job: &Job, power: &Power<'_>) -> Result<Next, TargetError> {
        let token = match power.permit.to_start() {
            Some(permit) => Some(permit.token()),
            // The token of the claim's lease is not known. The greatest token that was seen is used instead.
            None => self.last_token(),
        };
        let written = self.desk.start(job, token).await?;
        if matches!(written, Write::Done(_)) {
            self.count(SlotResult::Claimed);
            tracing::info!(lock = %self.context.lock, job = self.desk.called(job), slot = ?job.slot, "Job starts");
        }
        // No later slot may be claimed before this Job has started: if the process ended in between, the slot of this
        // Job would be behind the register.
        Ok(match self.written(job, written)? {
            Next::Settled => Next::Settled,
            Next::Later(pause) | Next::Blocks(pause) => Next::Blocks(pause),
        })
    }

    fn last_token(&self) -> Option<FencingToken> {
        let standing = self.context.elector.watch(&self.context.lock)?;
        standing.borrow().last_token()
    }

    async fn drop_job(&mut self, job: &Job, why: &Never) -> Result<Next, TargetError> {
        let mark = match why {
            Never::Gone(_) => Mark::Lost,
            Never::TooOld => Mark::TooOld,
        };
        let written = self.desk.mark(job, mark).await?;
        let Write::Done(found) = written else {
            return self.written(job, written);
        };
        // Of several replicas, the one that labelled the Job emits the event.
        self.emit_dropped(job, why);
        match self.read(&found) {
            Some(job) if job.stage == Stage::Lost => self.delete(&job).await,
            _ => Ok(Next::Later(SOON)),
        }
    }

    async fn delete(&self, job: &Job) -> Result<Next, TargetError> {
        if !self.desk.delete(job).await? {
            return Ok(Next::Later(SOON));
        }
        self.jobs.put(&job.name, None);
        Ok(Next::Settled)
    }

    async fn wait(&self, job: &Job, mark: Mark) -> Result<Next, TargetError> {
        let written = self.desk.mark(job, mark).await?;
        // Of several replicas, the one that labelled the Job emits the event.
        if matches!(written, Write::Done(_)) {
            self.emit_waiting(job);
        }
        self.written(job, written)
    }

    async fn suspend(&self, job: &Job, manager: &str, power: &Power<'_>) -> Result<Next, TargetError> {
        // A Job without a slot belongs to the holder of the lock, which may now be a sibling.
        if job.slot == When::Manual && !power.permit.may_stop() {
            return Ok(Next::Later(SOON));
        }
        let written = self.desk.suspend(job).await?;
        if matches!(written, Write::Done(_)) {
            self.emit_started_by_hand(job, manager);
        }
        // The Job counts as waiting only after its controller has removed the pods.
        self.written(job, written)
    }

    fn written(&self, job: &Job, written: Write<BatchJob>) -> Result<Next, TargetError> {
        Ok(match written {
            Write::Done(found) => {
                self.read(&found);
                Next::Settled
            }
            Write::Missing => {
                self.jobs.put(&job.name, None);
                Next::Settled
            }
            Write::Late => Next::Later(SOON),
        })
    }

    /// Stores the answer to a write, before the watch shows it.
    fn read(&self, found: &BatchJob) -> Option<Job> {
        let (name, read) = job(&self.reference.name, found.clone())?;
        self.jobs.put(&name, Some(found.clone()));
        Some(read)
    }
}

#[cfg(test)]
mod tests;
