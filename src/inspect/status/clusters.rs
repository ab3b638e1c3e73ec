//! The locks of several clusters in one table. A cluster that cannot be read is a separate row: its locks are
//! unknown, and those of the other clusters are still shown.

use std::fmt::Write;

use serde::Serialize;

use super::{
    Failed, ObjectsStatus,
    objects::{cluster_failed, lock_row},
};
use crate::inspect::{cluster::ClusterError, text::table};

/// The findings in each cluster, in the order of the command line.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClustersStatus {
    pub clusters: Vec<ClusterShown>,
}

/// The findings in one cluster.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterShown {
    /// The context of the kubeconfig.
    pub context: String,
    /// The reason why its locks are not known, if they are not.
    pub error: Option<String>,
    pub status: Option<ObjectsStatus>,
    #[serde(skip)]
    failed: Option<Failed>,
    #[serde(skip)]
    state: &'static str,
}

/// The part of the request that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    All,
    /// Facts about some clusters are unknown; at least one cluster is shown as its masters show it.
    Part,
    /// Only the objects of each cluster are known; contains the worst reason.
    Nothing(Failed),
}

impl ClusterShown {
    #[must_use]
    pub fn of(context: String, found: Result<ObjectsStatus, ClusterError>) -> Self {
        match found {
            Ok(status) => Self {
                context,
                error: None,
                failed: status.failed(),
                status: Some(status),
                state: "",
            },
            Err(error) => Self {
                context,
                failed: Some(cluster_failed(&error)),
                // The absence of an object is a known state.
                state: match error {
                    ClusterError::NotFound(_) | ClusterError::NoNamespace(_) => "absent",
                    _ => "unknown",
                },
                error: Some(causes(&error)),
                status: None,
            },
        }
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let only = |state: &str| {
            let mut row = vec!["-".to_owned(); HEADER.len()];
            row[0].clone_from(&self.context);
            state.clone_into(&mut row[STATE]);
            row
        };
        let Some(status) = &self.status else {
            return vec![only(self.state)];
        };
        if status.locks.is_empty() {
            return vec![only("no locks")];
        }
        let row = |lock| {
            let mut row = lock_row(lock);
            row.splice(0..0, [self.context.clone(), lock.namespace.clone()]);
            row
        };
        status.locks.iter().map(row).collect()
    }

    /// Writes the state of the masters of each quorum, and the facts that are unknown.
    fn notes(&self, text: &mut String) {
        let context = &self.context;
        if let Some(error) = &self.error {
            let _ = writeln!(text, "{context}: {error}");
        }
        let Some(status) = &self.status else { return };
        for quorum in &status.quorums {
            let _ = match (&quorum.trouble, quorum.voting, quorum.majority) {
                (Some(trouble), _, _) => writeln!(
                    text,
                    "{context}: RedisQuorum {}: {trouble}; the rows are from the statuses of the objects",
                    quorum.name
                ),
                (None, Some(voting), Some(majority)) => writeln!(
                    text,
                    "{context}: RedisQuorum {}: {voting} of {} masters vote, {majority} are needed",
                    quorum.name,
                    2 * majority - 1
                ),
                (None, _, _) => Ok(()),
            };
        }
        let of_locks = status.locks.iter().filter_map(|lock| lock.trouble.as_ref());
        for trouble in of_locks {
            let _ = writeln!(text, "{context}: {trouble}");
        }
        for unread in &status.unread {
            let _ = writeln!(text, "{context}: cannot be read by this version: {unread}");
        }
    }
}

const HEADER: [&str; 12] = [
    "CLUSTER",
    "NAMESPACE",
    "NAME",
    "READY",
    "ROLE",
    "STATE",
    "HOLDER",
    "HOLDER-CLUSTER",
    "TOKEN",
    "LEFT",
    "RESERVED",
    "MASTERS",
];
const STATE: usize = 5;

impl ClustersStatus {
    #[must_use]
    pub fn extent(&self) -> Extent {
        let failed: Vec<Failed> = self.clusters.iter().filter_map(|one| one.failed).collect();
        match failed.iter().max() {
            None => Extent::All,
            Some(worst) if failed.len() == self.clusters.len() => Extent::Nothing(*worst),
            Some(_) => Extent::Part,
        }
    }

    #[must_use]
    pub fn text(&self) -> String {
        let mut text = table(&HEADER, self.clusters.iter().flat_map(ClusterShown::rows));
        text.push('\n');
        for cluster in &self.clusters {
            cluster.notes(&mut text);
        }
        text
    }
}

fn causes(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", causes(source)),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        api::LeaderLock,
        inspect::status::{DeclaredStatus, objects::sample},
    };

    fn lock(name: &str) -> DeclaredStatus {
        let object: LeaderLock = serde_json::from_value(json!({
            "apiVersion": "redlock.dev/v1alpha1",
            "kind": "LeaderLock",
            "metadata": {"name": name, "namespace": "billing"},
            "spec": {"quorumRef": {"name": "default"}},
            "status": {
                "holderIdentity": "eu-a",
                "holderCluster": "eu-1",
                "conditions": [{
                    "type": "Held", "status": "True", "reason": "Held", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"
                }]
            }
        }))
        .unwrap();
        DeclaredStatus::of_status(object, None, None)
    }

    fn away() -> ClusterError {
        ClusterError::Unreachable {
            doing: "reading LeaderLocks of all namespaces".into(),
            reason: "connection refused".into(),
        }
    }

    fn of(clusters: Vec<(&str, Result<ObjectsStatus, ClusterError>)>) -> ClustersStatus {
        let each = clusters.into_iter();
        let each = each.map(|(context, found)| ClusterShown::of(context.to_owned(), found));
        ClustersStatus {
            clusters: each.collect(),
        }
    }

    #[test]
    fn a_cluster_that_cannot_be_asked_is_a_row_and_hides_no_other() {
        let both = of(vec![
            ("eu-1", Ok(sample(vec![lock("report")]))),
            ("us-1", Err(away())),
        ]);
        assert_eq!(both.extent(), Extent::Part);
        let text = both.text();
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines[0], HEADER);
        assert_eq!(lines[1][..3], ["eu-1", "billing", "report"]);
        assert_eq!(lines[1][STATE..STATE + 3], ["held", "eu-a", "eu-1"]);
        assert_eq!(lines[2][0], "us-1");
        assert_eq!(lines[2][STATE], "unknown", "{text}");
        let why = "us-1: reading LeaderLocks of all namespaces: the API server cannot be reached: connection refused";
        assert!(text.contains(why), "{text}");
        let json = serde_json::to_value(&both).unwrap();
        assert_eq!(json["clusters"][0]["status"]["locks"][0]["name"], "report");
        assert!(json["clusters"][1]["error"].is_string() && json["clusters"][1]["status"].is_null());
    }

    #[test]
    fn the_extent_covers_all_known_clusters() {
        let all = of(vec![("a", Ok(sample(Vec::new()))), ("b", Ok(sample(Vec::new())))]);
        assert_eq!(all.extent(), Extent::All);
        assert!(all.text().contains("no locks"), "{}", all.text());
        let forbidden = ClusterError::Forbidden {
            doing: String::new(),
            message: String::new(),
            instead: String::new(),
        };
        let none = of(vec![("a", Err(away())), ("b", Err(forbidden))]);
        assert_eq!(none.extent(), Extent::Nothing(Failed::Rights));
    }

    #[test]
    fn a_missing_object_is_known() {
        let absent = of(vec![
            ("a", Ok(sample(vec![lock("report")]))),
            (
                "b",
                Err(ClusterError::NotFound("LeaderLock billing/report".into())),
            ),
        ]);
        assert!(absent.text().contains("absent"), "{}", absent.text());
    }
}
