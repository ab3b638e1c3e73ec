//! Claims the slot of a run on the masters (`--once-per`), and records its end.

use std::{env, ffi::OsString, process::ExitStatus, time::Duration};

use thiserror::Error;

use super::{
    Outcome, RunError, Wrapper,
    election::Election,
    launcher::{Launcher, NOT_EXECUTABLE, NOT_FOUND},
    once::{OnCrash, SlotClaim, SlotConflict, SlotState, clock_of},
    progress::no_quorum,
    schedule::{SlotSchedule, ZoneError, local_zone},
};
use crate::{
    clock,
    lease::{Authority, BootInstant, Claim},
    masters::Masters,
};

/// The pause between two rounds of a claim that is not decided.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// The longest time for which a claim that is not decided is repeated. A claim whose votes are split stays undecided
/// until a master that does not answer returns.
const LONGEST: Duration = Duration::from_secs(10);
/// The interval at which a run that waits for the lock reads whether its slot is taken.
pub(super) const READ_AGAIN: Duration = Duration::from_secs(2);
/// The number of seconds that a test adds to the wall clock of a host. Release builds ignore it.
const CLOCK_OF_A_TEST: &str = "REDLOCK_TEST_CLOCK_OFFSET";

/// The slot of a run is not known.
#[derive(Debug, Error)]
pub(crate) enum SlotError {
    #[error(transparent)]
    Zone(#[from] ZoneError),
    #[error(
        "the clock of this host shows {0} s since 1970, before the first time of the schedule: set the clock"
    )]
    NoTime(u64),
}

/// The result of a claim under a lease.
#[derive(Debug)]
pub(super) enum ClaimResult {
    /// The slot belongs to this run, under this lease as it was last renewed.
    Mine(Authority),
    /// The lease ended before the claim was decided.
    LeaseEnded,
    /// The run ends without its command.
    Over(Outcome),
}

/// Returns the slot of a run that starts now, by the clock and the time zone of this host: the timer that starts the run
/// follows them. Before the claim, the slot is compared with the clocks of the masters.
///
/// # Errors
/// Returns an error if the time zone cannot be read, or if the clock is before the first slot.
pub(crate) fn slot_now(schedule: &SlotSchedule, tz: Option<OsString>) -> Result<u64, SlotError> {
    let zone = match schedule {
        SlotSchedule::Every(_) => jiff::tz::TimeZone::UTC,
        SlotSchedule::Cron(_) => local_zone(tz)?,
    };
    let now = clock::unix_time().as_secs().saturating_add_signed(offset());
    schedule.slot_at(now, &zone).ok_or(SlotError::NoTime(now))
}

fn offset() -> i64 {
    let given = env::var(CLOCK_OF_A_TEST).ok().filter(|_| cfg!(debug_assertions));
    given.and_then(|seconds| seconds.parse().ok()).unwrap_or(0)
}

impl Wrapper {
    /// Claims the slot, if the run has one. Must be called under the lease.
    ///
    /// # Errors
    /// Returns an error if the slot is ahead of the clocks of the masters. Nothing is claimed then.
    pub(super) async fn claim(
        &mut self,
        election: &mut Election,
        launcher: &Launcher,
        authority: Authority,
    ) -> Result<ClaimResult, RunError> {
        let Some(claim) = self.claim.clone() else {
            return Ok(ClaimResult::Mine(authority));
        };
        let now = clock::now();
        let limit = election.masters.fingerprint().acquire_limit();
        let end = self.until().max(now + limit).min(now + LONGEST.max(limit));
        while election.authority(authority.token).is_some() {
            let decided = tokio::select! {
                decided = decide(election, &claim) => decided,
                signal = self.ending(launcher) => return Ok(ClaimResult::Over(Outcome::Interrupted(signal))),
            };
            match decided {
                // The claim took its time: the command begins under the lease as it is now.
                ClaimDecision::Mine => {
                    let renewed = election.authority(authority.token);
                    return Ok(renewed.map_or(ClaimResult::LeaseEnded, ClaimResult::Mine));
                }
                ClaimDecision::Taken(taken) => return Ok(ClaimResult::Over(self.slot_taken(&claim, taken))),
                ClaimDecision::Ahead(seconds) => {
                    let slot = claim.shown();
                    return Err(RunError::SlotAhead { slot, seconds });
                }
                ClaimDecision::Undecided => {}
            }
            if clock::now() >= end {
                let why = format!(
                    "{}: a majority has neither granted nor refused it: {}",
                    claim.shown(),
                    no_quorum(&election.masters.status())
                );
                return Ok(ClaimResult::Over(Outcome::NoQuorum { why, auth: false }));
            }
            let pause = clock::sleep_until(clock::now() + ASK_AGAIN);
            tokio::select! {
                () = pause => {}
                signal = self.ending(launcher) => return Ok(ClaimResult::Over(Outcome::Interrupted(signal))),
            }
        }
        Ok(ClaimResult::LeaseEnded)
    }

    /// Returns the outcome if the slot of a run that waits for the lock is known to be taken.
    pub(super) async fn taken_meanwhile(&mut self, election: &Election) -> Option<Outcome> {
        let claim = self.claim.clone()?;
        self.reads_slot_at = clock::now() + READ_AGAIN;
        let clock = masters_clock(&election.masters)?;
        match election.slot_state(&claim, clock).await {
            SlotState::Taken(taken) => Some(self.slot_taken(&claim, taken)),
            SlotState::Open | SlotState::Unknown => None,
        }
    }

    fn slot_taken(&self, claim: &SlotClaim, taken: SlotConflict) -> Outcome {
        let slot = claim.shown();
        // The caller reports a slot that no run has, also with --quiet.
        if taken.is_of_a_run() {
            self.progress
                .print(&format!("{slot}: {taken}; the command is not run here"));
        }
        Outcome::SlotTaken { slot, taken }
    }

    /// Records that the command has run to its end, where another run would repeat the slot. A command that a signal ended,
    /// that ended after a request to end, or that could not be executed, has not run to its end: many programs end with 0
    /// when they are asked to.
    pub(super) async fn record_end(&self, election: &Election, status: ExitStatus) {
        let executed = |code: i32| ![NOT_FOUND, NOT_EXECUTABLE].map(i32::from).contains(&code);
        let ended = status.code().is_some_and(executed) && self.asked_to_end.is_none();
        let Some(claim) = self
            .claim
            .as_ref()
            .filter(|claim| claim.on_crash == OnCrash::Retry)
        else {
            return;
        };
        if !ended {
            return;
        }
        let end = clock::now() + LONGEST;
        while clock::now() < end {
            match election.record_end(claim).await {
                // Refused if a later slot has ended.
                Claim::Granted | Claim::Refused => return,
                Claim::Undecided => clock::sleep_until(clock::now() + ASK_AGAIN).await,
            }
        }
        let slot = claim.shown();
        self.progress.warn(&format!(
            "{slot}: its end could not be recorded at a majority of the masters; another run may repeat it"
        ));
    }

    /// Reports whether a run that waits for the lock should read its slot again.
    pub(super) fn reads_slot(&self, now: BootInstant) -> bool {
        self.claim.is_some() && now >= self.reads_slot_at
    }
}

/// The result of one attempt.
enum ClaimDecision {
    Mine,
    Taken(SlotConflict),
    /// The slot is this number of seconds ahead of the clocks of the masters.
    Ahead(u64),
    Undecided,
}

/// Makes one attempt to claim the slot under the lease.
async fn decide(election: &Election, claim: &SlotClaim) -> ClaimDecision {
    let Some(clock) = masters_clock(&election.masters) else {
        return ClaimDecision::Undecided;
    };
    if let Some(seconds) = claim.seconds_ahead(clock) {
        return ClaimDecision::Ahead(seconds);
    }
    // The claim alone decides on a slot that is not repeated.
    let state = match claim.on_crash {
        OnCrash::Skip => SlotState::Open,
        OnCrash::Retry => election.slot_state(claim, clock).await,
    };
    match state {
        SlotState::Taken(taken) => return ClaimDecision::Taken(taken),
        SlotState::Unknown => return ClaimDecision::Undecided,
        SlotState::Open => {}
    }
    match election.claim_slot(claim).await {
        Claim::Granted => ClaimDecision::Mine,
        Claim::Undecided => ClaimDecision::Undecided,
        Claim::Refused => match election.slot_state(claim, clock).await {
            SlotState::Taken(taken) => ClaimDecision::Taken(taken),
            SlotState::Open | SlotState::Unknown => ClaimDecision::Undecided,
        },
    }
}

/// Returns the time since 1970 by the clocks of the masters; `None` if fewer than a majority have shown it.
fn masters_clock(masters: &Masters) -> Option<u64> {
    let own = clock::unix_time().as_secs_f64();
    let all = masters.status();
    let offsets = all.iter().filter_map(|master| master.clock_offset_seconds);
    let clocks = offsets.filter_map(|offset| Duration::try_from_secs_f64(own + offset).ok());
    clock_of(clocks.map(|clock| clock.as_secs()), masters.size().majority())
}
