//! Schedules the heartbeat in the status of a quorum: the only write in the steady state.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use crate::{
    api::{bounds::REPORTER_LIMIT, quorum_status::ReporterStatus},
    lease::{BootInstant, ClusterId},
};

const EVERY: Duration = Duration::from_secs(30);
/// A cluster without a heartbeat for this time, in seconds, is no longer listed.
const FORGOTTEN: i64 = 600;

#[derive(Debug, Default)]
pub(super) struct Heartbeat {
    /// The time at which the clusters are read next; the heartbeat follows.
    ask_at: Option<BootInstant>,
    due: bool,
    /// The reporting clusters, at the last read.
    clusters: BTreeSet<ClusterId>,
}

impl Heartbeat {
    /// Reports whether the reporter reads the clusters now.
    pub(super) fn asks(&mut self, now: BootInstant) -> bool {
        let asks = self.ask_at.is_none_or(|at| at <= now);
        if asks {
            self.ask_at = Some(now + EVERY);
        }
        asks
    }

    pub(super) fn answered(&mut self, clusters: BTreeSet<ClusterId>) {
        (self.clusters, self.due) = (clusters, true);
    }

    /// Repeats the heartbeat, which may have been part of a failed write.
    pub(super) fn repeat(&mut self) {
        self.due |= !self.clusters.is_empty();
    }

    pub(super) const fn is_due(&self) -> bool {
        self.due
    }

    pub(super) fn written(&mut self) {
        self.due = false;
    }

    /// Returns the clusters of the last heartbeats, with their times.
    pub(super) fn reporters(
        &self,
        before: &[ReporterStatus],
        own: &ClusterId,
        now: Timestamp,
    ) -> Vec<ReporterStatus> {
        let seen = |cluster: &ClusterId| ReporterStatus {
            cluster: cluster.to_string(),
            last_seen_time: Time(now),
        };
        let others = self.clusters.iter().filter(|cluster| *cluster != own);
        let others = others.take(REPORTER_LIMIT - 1);
        let mut reporters: Vec<ReporterStatus> = others.chain([own]).map(seen).collect();
        let rest = before
            .iter()
            .filter(|reporter| now.as_second() - reporter.last_seen_time.0.as_second() < FORGOTTEN);
        for reporter in rest {
            if reporters.len() < REPORTER_LIMIT
                && !reporters.iter().any(|new| new.cluster == reporter.cluster)
            {
                reporters.push(reporter.clone());
            }
        }
        reporters.sort_by(|a, b| a.cluster.cmp(&b.cluster));
        reporters
    }
}
