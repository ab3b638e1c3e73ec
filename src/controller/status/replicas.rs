//! Maintains the list of operator replicas that are not ready because of a quorum.
//!
//! Each replica owns the entry with its name, and writes it even if another replica reports. The reporter removes the
//! entries that are no longer refreshed. `ReplicasReady` is computed from the list alone, so that every writer sets the
//! same value.

use std::time::Duration;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use super::condition::{ConditionType, Conditions, cut};
use crate::{
    api::quorum_status::{NotReadyReplica, RedisQuorumStatus},
    controller::problem::Reason,
    lease::BootInstant,
};

/// The refresh interval of an entry, equal to the heartbeat of a cluster.
const AGAIN: Duration = Duration::from_secs(30);
/// The minimum time between two writes, however often the reason changes, and even if the entry was removed.
const REST: Duration = Duration::from_secs(10);
/// The age, in seconds, at which an entry is outdated: one missed refresh, and half of the next interval.
const SILENT: i64 = 45;
/// The maximum length of the list that the CRD accepts.
const MOST: usize = 32;

/// The readiness of a replica with regard to a quorum, as the replica itself knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::controller) enum OwnReadiness {
    /// The replica has just started: the report of an earlier process of its pod may still be true.
    TooEarly,
    Ready,
    NotReady(String),
}

impl OwnReadiness {
    /// Reports whether this replica's entry has to be written, given that its last write began at `written`.
    pub(in crate::controller) fn is_due(
        &self,
        list: &[NotReadyReplica],
        own: &str,
        written: Option<BootInstant>,
        now: BootInstant,
    ) -> bool {
        let entry = list.iter().find(|replica| replica.name == own);
        match self {
            Self::TooEarly => false,
            Self::Ready => entry.is_some(),
            Self::NotReady(why) => {
                let same = entry.is_some_and(|entry| entry.message == cut(why.clone()));
                let rest = if same { AGAIN } else { REST };
                written.is_none_or(|written| now >= written + rest)
            }
        }
    }
}

/// Returns the list with the new entry of this replica.
pub(in crate::controller) fn reported(
    list: &[NotReadyReplica],
    own: &str,
    readiness: &OwnReadiness,
    now: Timestamp,
) -> Vec<NotReadyReplica> {
    let others = list.iter().filter(|replica| replica.name != own).cloned();
    let mut list: Vec<NotReadyReplica> = match readiness {
        OwnReadiness::TooEarly => return list.to_vec(),
        OwnReadiness::Ready => others.collect(),
        OwnReadiness::NotReady(why) => {
            let own = NotReadyReplica {
                name: own.to_owned(),
                message: cut(why.clone()),
                last_seen_time: Time(now),
            };
            others.chain([own]).collect()
        }
    };
    list.sort_by(|a, b| a.name.cmp(&b.name));
    list.truncate(MOST);
    list
}

/// Reports whether the list has an outdated entry: the pod of its replica may be gone.
pub(in crate::controller) fn has_silent(list: &[NotReadyReplica], now: Timestamp) -> bool {
    list.iter().any(|replica| is_silent(replica, now))
}

/// Returns the entries that the reporter keeps.
pub(in crate::controller) fn without_silent(
    list: &[NotReadyReplica],
    now: Timestamp,
) -> Vec<NotReadyReplica> {
    let current = list.iter().filter(|replica| !is_silent(replica, now));
    current.cloned().collect()
}

fn is_silent(replica: &NotReadyReplica, now: Timestamp) -> bool {
    now.as_second() - replica.last_seen_time.0.as_second() >= SILENT
}

/// Sets `ReplicasReady`.
pub(super) fn ready(list: &[NotReadyReplica], conditions: &mut Conditions<'_>) {
    const KIND: ConditionType = ConditionType::ReplicasReady;
    if list.is_empty() {
        let text = "no replica of this cluster reports that it is not ready".to_owned();
        conditions.set(KIND, true, Reason::NoneReported, text);
    } else {
        let texts: Vec<String> = list
            .iter()
            .map(|replica| format!("replica {} is not ready: {}", replica.name, replica.message))
            .collect();
        conditions.set(KIND, false, Reason::ReplicaNotReady, texts.join("; "));
    }
}

/// Sets `SiblingsUnreachable`, for a quorum that has or had it.
pub(super) fn siblings(unanswered: Option<&[String]>, conditions: &mut Conditions<'_>) {
    const KIND: ConditionType = ConditionType::SiblingsUnreachable;
    let Some(unanswered) = unanswered else {
        return conditions.keep(KIND);
    };
    if !unanswered.is_empty() {
        let text = format!(
            "no answer from the ready replicas {}: a replica that loses the masters cannot ask them. Check the NetworkPolicies \
             for the port that the pods call http",
            unanswered.join(", ")
        );
        conditions.set(KIND, true, Reason::SiblingsSilent, text);
    } else if conditions.before(KIND).is_some() {
        let text = "every ready replica answers the reporter".to_owned();
        conditions.set(KIND, false, Reason::SiblingsAnswer, text);
    }
}

/// Returns the status in which a replica other than the reporter writes its entry: all other fields stay.
pub(in crate::controller) fn replicas_status(
    before: &RedisQuorumStatus,
    list: Vec<NotReadyReplica>,
    generation: i64,
    now: Timestamp,
) -> RedisQuorumStatus {
    let mut conditions = Conditions::new(&before.conditions, generation, now);
    ready(&list, &mut conditions);
    RedisQuorumStatus {
        conditions: conditions.into_list_before(),
        not_ready_replicas: list,
        ..before.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(second: i64) -> Timestamp {
        Timestamp::from_second(1_763_719_300 + second).unwrap()
    }

    fn not_ready(name: &str, second: i64) -> NotReadyReplica {
        NotReadyReplica {
            name: name.into(),
            message: "WRONGPASS".into(),
            last_seen_time: Time(stamp(second)),
        }
    }

    fn blind(why: &str) -> OwnReadiness {
        OwnReadiness::NotReady(why.into())
    }

    fn condition(status: &RedisQuorumStatus) -> (&str, &str, &str) {
        let mut found = status.conditions.iter();
        let found = found
            .find(|condition| condition.type_ == "ReplicasReady")
            .unwrap();
        (&found.status, &found.reason, &found.message)
    }

    #[test]
    fn an_entry_is_written_again_before_it_is_silent_and_never_in_a_hurry() {
        let at = |second: u64| BootInstant::from_nanos(second * 1_000_000_000);
        let list = [not_ready("own", 0)];
        let due = |own: OwnReadiness, list: &[NotReadyReplica], written: Option<u64>, now: u64| {
            own.is_due(list, "own", written.map(at), at(now))
        };
        assert!(due(blind("WRONGPASS"), &[], None, 100));
        assert!(!due(blind("WRONGPASS"), &list, Some(100), 129));
        assert!(due(blind("WRONGPASS"), &list, Some(100), 130));
        assert!(AGAIN.as_secs() < SILENT.unsigned_abs());
        // Another reason, and a definition that drops the field.
        assert!(!due(blind("refused"), &list, Some(100), 109));
        assert!(due(blind("refused"), &list, Some(100), 110));
        assert!(!due(blind("WRONGPASS"), &[], Some(100), 109));
        // A ready replica writes at once. A replica that has just started keeps the entry.
        assert!(due(OwnReadiness::Ready, &list, Some(100), 100));
        assert!(!due(OwnReadiness::Ready, &[not_ready("other", 0)], None, 100));
        assert!(!due(OwnReadiness::TooEarly, &list, None, 100));
    }

    #[test]
    fn a_replica_writes_its_own_entry_and_nothing_else() {
        let before = vec![not_ready("a", 0), not_ready("own", 0)];
        let list = reported(&before, "own", &blind("refused"), stamp(100));
        assert_eq!(
            list[0], before[0],
            "however old: to remove it is for the reporter"
        );
        assert_eq!(
            (list[1].message.as_str(), &list[1].last_seen_time),
            ("refused", &Time(stamp(100)))
        );
        assert_eq!(
            reported(&before, "own", &OwnReadiness::Ready, stamp(100)),
            before[..1]
        );
        assert_eq!(
            reported(&before, "own", &OwnReadiness::TooEarly, stamp(100)),
            before
        );
        let many: Vec<NotReadyReplica> = (0..MOST).map(|n| not_ready(&format!("a-{n}"), 0)).collect();
        assert_eq!(reported(&many, "own", &blind("refused"), stamp(0)).len(), MOST);

        let conditions = |kind: ConditionType| {
            let mut conditions = Conditions::new(&[], 4, stamp(0));
            conditions.set(kind, true, Reason::Fit, "as the reporter reports".into());
            conditions.into_list()
        };
        let before = RedisQuorumStatus {
            observed_generation: Some(3),
            votes: Some("3/3".into()),
            conditions: [
                conditions(ConditionType::Ready),
                conditions(ConditionType::ReplicasReady),
                conditions(ConditionType::Safe),
            ]
            .concat(),
            ..RedisQuorumStatus::default()
        };
        let after = replicas_status(&before, list, 4, stamp(100));
        assert_eq!(
            condition(&after),
            (
                "False",
                "ReplicaNotReady",
                "replica a is not ready: WRONGPASS; replica own is not ready: refused"
            )
        );
        assert_eq!(after.conditions[0], before.conditions[0]);
        assert_eq!(after.conditions[2], before.conditions[2]);
        let rest = RedisQuorumStatus {
            conditions: before.conditions.clone(),
            not_ready_replicas: Vec::new(),
            ..after.clone()
        };
        assert_eq!(rest, before);
        let again = replicas_status(&after, Vec::new(), 4, stamp(200));
        assert_eq!(condition(&again).0, "True");
    }

    #[test]
    fn the_reporter_removes_the_entry_of_a_replica_that_is_gone() {
        let list = [not_ready("gone", 0), not_ready("here", 1)];
        assert!(!has_silent(&list, stamp(44)));
        assert_eq!(without_silent(&list, stamp(44)), list);
        assert!(has_silent(&list, stamp(45)));
        assert_eq!(without_silent(&list, stamp(45)), list[1..]);
    }
}
