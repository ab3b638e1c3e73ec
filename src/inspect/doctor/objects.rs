//! Judges a RedisQuorum object, and the LeaderLocks that name it, by the statuses that operators wrote.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::ResourceExt;
use serde::Serialize;

use super::{Check, Level};
use crate::{
    api::{LeaderLock, RedisQuorum, reporters},
    inspect::cluster::{Cluster, ClusterError, Unread},
};

/// The findings about one object.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReport {
    pub kind: &'static str,
    pub name: String,
    pub checks: Vec<Check>,
}

/// Judges a quorum, and those of its locks that have a problem or whose rollouts surge.
pub async fn examine_objects(cluster: &Cluster, quorum: &RedisQuorum) -> Vec<ObjectReport> {
    let name = quorum.name_any();
    let mut checks = of_quorum(quorum);
    let mut reports = match locks(cluster, &name).await {
        Ok((found, unread, scope)) => {
            let all = found.len() + unread.len();
            let noted = found.iter().filter_map(of_lock);
            let noted: Vec<ObjectReport> = noted.chain(unread.iter().map(of_unread)).collect();
            let unwell = noted
                .iter()
                .filter(|report| report.checks.iter().any(Check::is_bad));
            let unwell = unwell.count();
            let count = format!("{} of {all} are ready{scope}", all - unwell);
            checks.push(if unwell == 0 {
                Check::good("locks", count)
            } else {
                Check::but("locks", Level::Bad, count, "see the lines of the locks below")
            });
            noted
        }
        Err(error) => {
            let hint = "the locks were not checked";
            checks.push(Check::but("locks", Level::Warning, error.to_string(), hint));
            Vec::new()
        }
    };
    checks.extend(cluster.policies().await.map(|names| {
        Check::good(
            "admission",
            match &names[..] {
                [] => "no policy of the chart".to_owned(),
                names => names.join(", "),
            },
        )
    }));
    let report = ObjectReport {
        kind: "RedisQuorum",
        name,
        checks,
    };
    reports.insert(0, report);
    reports
}

type Found = (Vec<LeaderLock>, Vec<Unread>, String);

/// Returns the locks of all namespaces, or of that of the context if the others may not be read.
async fn locks(cluster: &Cluster, quorum: &str) -> Result<Found, ClusterError> {
    match cluster.locks(true, Some(quorum)).await {
        Err(ClusterError::Forbidden { .. }) => {
            let (found, unread) = cluster.locks(false, Some(quorum)).await?;
            let scope = format!(
                ", in namespace {}: other namespaces may not be read",
                cluster.namespace()
            );
            Ok((found, unread, scope))
        }
        listed => listed.map(|(found, unread)| (found, unread, String::new())),
    }
}

fn of_quorum(quorum: &RedisQuorum) -> Vec<Check> {
    let status = quorum.status.clone().unwrap_or_default();
    let mut checks = vec![followed(&quorum.metadata, status.observed_generation)];
    let conditions = &status.conditions;
    checks.extend(condition(conditions, "Ready", "True", Level::Bad));
    checks.extend(condition(conditions, "Degraded", "False", Level::Warning));
    checks.extend(condition(conditions, "Safe", "True", Level::Bad));
    checks.extend(condition(conditions, "ReplicasReady", "True", Level::Warning));
    checks.extend(condition(
        conditions,
        "SiblingsUnreachable",
        "False",
        Level::Warning,
    ));
    checks.extend(condition(conditions, "SingleMaster", "False", Level::Warning));
    let seen = reporters::seen(&status.reporters);
    let (alive, silent): (Vec<_>, Vec<_>) = seen.iter().partition(|reporter| reporter.alive);
    let names = |reporters: &[&reporters::Seen]| {
        let names: Vec<String> = reporters.iter().map(|seen| seen.cluster.to_string()).collect();
        names.join(", ")
    };
    checks.push(if seen.is_empty() {
        let hint = "an operator that can read a majority of the masters reports within 30 s";
        Check::but("clusters", Level::Warning, "no cluster has reported", hint)
    } else if silent.is_empty() {
        Check::good("clusters", names(&alive))
    } else {
        let found = format!("{}; no recent report from: {}", names(&alive), names(&silent));
        let hint = "no operator of these clusters reaches the masters";
        Check::but("clusters", Level::Warning, found, hint)
    });
    checks
}

fn of_lock(lock: &LeaderLock) -> Option<ObjectReport> {
    let status = lock.status.clone().unwrap_or_default();
    let mut checks = vec![followed(&lock.metadata, status.observed_generation)];
    checks.extend(condition(&status.conditions, "Ready", "True", Level::Bad));
    let surges = condition(&status.conditions, "SurgesOnRollout", "False", Level::Warning)
        .filter(|check| check.level == Level::Warning);
    let noted = checks.iter().any(Check::is_bad) || surges.is_some();
    checks.extend(surges);
    noted.then(|| ObjectReport {
        kind: "LeaderLock",
        name: format!("{}/{}", lock.namespace().unwrap_or_default(), lock.name_any()),
        checks,
    })
}

fn of_unread(unread: &Unread) -> ObjectReport {
    let hint = "a field has a value that this version does not know: correct it with kubectl edit";
    ObjectReport {
        kind: "LeaderLock",
        name: format!("{}/{}", unread.namespace, unread.name),
        checks: vec![Check::but("readable", Level::Bad, unread.reason.clone(), hint)],
    }
}

fn followed(metadata: &ObjectMeta, observed: Option<i64>) -> Check {
    let name = "followed";
    let hint = "check that an operator runs in this cluster and may read the object; see its log";
    match (observed.filter(|observed| *observed >= 0), metadata.generation) {
        (None, _) => Check::but(name, Level::Bad, "no operator has reconciled the object", hint),
        (Some(observed), Some(now)) if observed < now => {
            let found = format!("generation {now} is not reconciled; the status is of generation {observed}");
            Check::but(name, Level::Bad, found, hint)
        }
        (Some(_), _) => Check::good(name, "an operator has reconciled the present generation"),
    }
}

/// Judges a condition. `followed` reports a missing condition.
fn condition(conditions: &[Condition], kind: &'static str, wanted: &str, level: Level) -> Option<Check> {
    let found = conditions.iter().find(|condition| condition.type_ == kind)?;
    let text = format!("{}: {}", found.status, found.message);
    Some(match found.status.as_str() {
        status if status == wanted => Check::good(kind, text),
        "Unknown" => Check::but(kind, Level::Warning, text, "not known yet"),
        _ => Check::but(
            kind,
            level,
            format!("{}: {}: {}", found.status, found.reason, found.message),
            "reported by an operator of this cluster",
        ),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lock(ready: &str, surges: Option<&str>) -> LeaderLock {
        let condition = |kind: &str, status: &str| {
            json!({"type": kind, "status": status, "reason": "R", "message": "m",
                   "lastTransitionTime": "2026-01-01T12:00:00Z"})
        };
        let conditions = surges.map(|status| condition("SurgesOnRollout", status));
        let conditions: Vec<_> = conditions
            .into_iter()
            .chain([condition("Ready", ready)])
            .collect();
        let lock = json!({
            "apiVersion": "redlock.dev/v1alpha1", "kind": "LeaderLock",
            "metadata": {"name": "l", "namespace": "n", "generation": 1},
            "spec": {"quorumRef": {"name": "q"}},
            "status": {"observedGeneration": 1, "conditions": conditions},
        });
        serde_json::from_value(lock).unwrap()
    }

    #[test]
    fn a_lock_whose_rollouts_surge_is_shown_and_not_bad() {
        assert_eq!(of_lock(&lock("True", None)).map(|report| report.name), None);
        assert!(of_lock(&lock("True", Some("False"))).is_none(), "put right");
        let report = of_lock(&lock("True", Some("True"))).unwrap();
        assert!(!report.checks.iter().any(Check::is_bad));
        let check = report.checks.last().unwrap();
        assert_eq!((check.name, check.level), ("SurgesOnRollout", Level::Warning));
        let both = of_lock(&lock("False", Some("True"))).unwrap();
        assert!(both.checks.iter().any(Check::is_bad));
        assert_eq!(both.checks.len(), 3);
    }
}
