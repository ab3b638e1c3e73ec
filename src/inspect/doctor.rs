//! `redlock doctor`: checks whether each master is fit for leases of this length and for this user.

mod checks;
mod fencing;
mod objects;
mod report;
mod turns;

use std::time::Duration;

use serde::Serialize;

pub use checks::{Check, Level};
pub use fencing::examine_fencing;
pub use objects::{ObjectReport, examine_objects};
pub use report::Detail;
pub use turns::Turns;

use self::checks::MasterEvidence;
use super::{Reach, Session};
use crate::{
    clock,
    lease::{
        Timings,
        timing::{GivenTimings, TimingError},
    },
    masters::MasterStatus,
};

/// The number of round trips to each master: enough for a median, and over before a user becomes impatient.
const ROUND_TRIPS: usize = 9;

/// The findings about one master.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MasterDiagnosis {
    pub name: String,
    pub url: String,
    pub checks: Vec<Check>,
}

/// All findings.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    pub healthy: bool,
    pub fingerprint: String,
    /// The id of the quorum; absent if no majority of the masters shows one.
    pub quorum_id: Option<String>,
    pub fingerprint_stored: bool,
    pub majority: usize,
    pub voting: usize,
    pub masters: Vec<MasterDiagnosis>,
    /// The RedisQuorum and its LeaderLocks, if a cluster declares them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectReport>,
    /// The result of passing a real lock on, if that was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<Turns>,
    /// The reason why the masters cannot be reached from here, if they cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub away: Option<String>,
    #[serde(skip)]
    pub reach: Reach,
}

impl Diagnosis {
    /// Adds the findings about the objects of a cluster.
    pub fn add(&mut self, objects: Vec<ObjectReport>, away: Option<String>) {
        self.healthy &= !objects
            .iter()
            .flat_map(|object| &object.checks)
            .any(Check::is_bad);
        self.objects = objects;
        self.away = away;
    }

    /// Lets two candidates acquire a real lock in turns.
    pub async fn take_turns(&mut self, session: &Session, lease_duration: Duration) {
        let turns = turns::take(&session.masters, lease_duration).await;
        self.healthy &= turns.are_good();
        self.turns = Some(turns);
    }
}

/// Checks all masters. Runs the real scripts, on separate keys, on each master that answers.
///
/// # Errors
/// Returns an error if this quorum does not grant the lease duration.
pub async fn examine(session: &Session, lease_duration: Duration) -> Result<Diagnosis, TimingError> {
    let masters = &session.masters;
    let longest = masters.fingerprint().longest_lease();
    let given = GivenTimings {
        lease_duration: Some(lease_duration),
        ..GivenTimings::default()
    };
    let timings = Timings::resolve(given, Duration::ZERO, None, longest)?;
    let round_trips = masters.round_trips(ROUND_TRIPS).await;
    let preflights = masters.try_scripts().await;
    let seen = masters.status();
    let now = clock::unix_time();
    let diagnosed = seen
        .iter()
        .zip(&round_trips)
        .zip(&preflights)
        .map(|((status, took), preflight)| {
            let seen = MasterEvidence {
                status,
                round_trips: took,
                preflight: preflight.as_ref(),
                seal_wait: masters.fingerprint().seal_wait(),
                unix_now: now,
                lease_duration,
                command_timeout: timings.command_timeout(None),
                is_only_one: seen.len() == 1,
            };
            MasterDiagnosis {
                name: status.name.clone(),
                url: status.url.clone(),
                checks: checks::of(&seen),
            }
        });
    let diagnosed: Vec<MasterDiagnosis> = diagnosed.collect();
    let majority = masters.size().majority();
    let bad = |diagnosed: &MasterDiagnosis| diagnosed.checks.iter().any(Check::is_bad);
    Ok(Diagnosis {
        healthy: !diagnosed.iter().any(bad),
        fingerprint: masters.fingerprint().to_string(),
        quorum_id: masters.quorum_id().map(|id| id.to_string()),
        fingerprint_stored: session.adopted.stored,
        majority,
        voting: seen.iter().filter(|status| status.votes()).count(),
        reach: Reach::of(&seen, majority, MasterStatus::votes),
        masters: diagnosed,
        objects: Vec::new(),
        turns: None,
        away: None,
    })
}
