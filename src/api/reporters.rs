//! Reads the clusters that use a quorum from `status.reporters`.

use std::time::Duration;

use super::quorum_status::ReporterStatus;
use crate::lease::ClusterId;

/// One missed heartbeat, and half of the next one.
const MISSED: Duration = Duration::from_secs(45);

/// A cluster that has reported at least once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub cluster: ClusterId,
    /// Whether its last report is less than 45 s older than the newest one. Only times that the writer of the status
    /// set are compared, because the clock of the reader may differ.
    pub alive: bool,
}

/// Returns the clusters of the reports. A report without a valid cluster is ignored.
#[must_use]
pub fn seen(reporters: &[ReporterStatus]) -> Vec<Seen> {
    let at = |reporter: &ReporterStatus| reporter.last_seen_time.0.as_second();
    let Some(newest) = reporters.iter().map(at).max() else {
        return Vec::new();
    };
    let missed = i64::try_from(MISSED.as_secs()).unwrap_or(i64::MAX);
    let read = |reporter: &ReporterStatus| {
        Some(Seen {
            cluster: reporter.cluster.parse().ok()?,
            alive: newest - at(reporter) < missed,
        })
    };
    reporters.iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

    use super::*;

    #[test]
    fn a_reporter_that_missed_a_heartbeat_of_others_is_not_alive() {
        let reporter = |cluster: &str, at: i64| ReporterStatus {
            cluster: cluster.into(),
            last_seen_time: Time(Timestamp::from_second(at).unwrap()),
        };
        let all = [
            reporter("eu-1/a", 1_000),
            reporter("us-1/b", 956),
            reporter("us-2/c", 955),
            reporter("no|cluster", 1_000),
        ];
        let seen: Vec<_> = seen(&all)
            .into_iter()
            .map(|seen| (seen.cluster.to_string(), seen.alive))
            .collect();
        let wanted = [("eu-1/a", true), ("us-1/b", true), ("us-2/c", false)];
        assert_eq!(seen, wanted.map(|(name, alive)| (name.to_owned(), alive)));
        assert_eq!(super::seen(&[]), []);
    }
}
