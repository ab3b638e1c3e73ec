//! Reads and writes the Lease by which the replicas of a release elect their coordinator. Pure.
//!
//! The coordinator stops the targets of locks that no replica of its cluster holds. The other replicas leave that to it
//! while its Lease is renewed and while it sees a majority of the masters.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};

use crate::{
    api::{CLUSTER_COPY, COORDINATOR_SCOPE, UNSEEN_QUORUMS},
    lease::BootInstant,
};

/// Interval between renewals.
pub(super) const RENEWED_EVERY: Duration = Duration::from_secs(5);
/// The time after the last observed renewal from which another replica may become the coordinator. It is shorter than
/// the time from a renewal of a lock of the default duration to the deadline for stopping its targets.
pub(super) const EXPIRES: Duration = Duration::from_secs(10);

/// The time after a change in which a replica that sees more may still become the coordinator.
pub(super) const SETTLES: Duration = Duration::from_secs(5);

/// The most names in the annotation. A coordinator that misses more quorums writes [`ALL`].
const MOST_NAMES: usize = 32;
/// The longest annotation that is read, in bytes: [`MOST_NAMES`] names of 253 bytes, with separators.
const LONGEST: usize = MOST_NAMES * 254;
const ALL: &str = "*";

/// The quorums of whose masters a replica sees no majority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UnseenQuorums {
    Named(BTreeSet<String>),
    /// Too many to name, or an annotation that cannot be read.
    All,
}

impl UnseenQuorums {
    pub(super) fn new(names: impl IntoIterator<Item = String>) -> Self {
        let names: BTreeSet<String> = names.into_iter().collect();
        if names.len() > MOST_NAMES {
            Self::All
        } else {
            Self::Named(names)
        }
    }

    fn parse(text: Option<&str>) -> Self {
        let text = text.unwrap_or_default();
        if text == ALL || text.len() > LONGEST {
            return Self::All;
        }
        let names = text.split(',').filter(|name| !name.is_empty());
        Self::new(names.map(str::to_owned))
    }

    fn to_text(&self) -> String {
        match self {
            Self::Named(names) => names.iter().map(String::as_str).collect::<Vec<_>>().join(","),
            Self::All => ALL.to_owned(),
        }
    }

    pub(super) fn contains(&self, quorum: &str) -> bool {
        match self {
            Self::Named(names) => names.contains(quorum),
            Self::All => true,
        }
    }

    /// Reports whether a replica with `other` sees every quorum that one with `self` sees, and at least one more.
    pub(super) fn is_exceeded_by(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Named(own), Self::Named(other)) => other.is_subset(own) && own != other,
            (Self::All, Self::Named(_)) => true,
            (Self::Named(_) | Self::All, Self::All) => false,
        }
    }
}

/// The content of the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CoordinatorRecord {
    /// The identity of the coordinator; empty after it has resigned.
    pub(super) holder: String,
    pub(super) acquired: Option<Timestamp>,
    /// Compared with other values only: no replica compares it with its own clock.
    pub(super) renewed: Option<Timestamp>,
    pub(super) transitions: i32,
    /// The namespaces that the coordinator watches, encoded: it knows no lock of another one.
    pub(super) scope: String,
    pub(super) unseen: UnseenQuorums,
    /// Set in a cluster whose objects are a copy of those of another cluster that is alive.
    pub(super) copy: Option<ClusterCopy>,
}

/// Distinguishes a cluster from the one whose objects it has a copy of: a part of its UID on the masters. 8 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClusterCopy(String);

impl ClusterCopy {
    const DIGITS: usize = 8;

    pub(super) fn draw(random: u32) -> Self {
        Self(format!("{random:08x}"))
    }

    fn parse(text: &str) -> Option<Self> {
        let valid = text.len() == Self::DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        valid.then(|| Self(text.to_owned()))
    }

    /// Returns the mark of the Lease; `None` without one, and if it has another form.
    pub(super) fn of(lease: &Lease) -> Option<Self> {
        Self::parse(annotation(lease, CLUSTER_COPY)?)
    }

    /// Returns the UID of a copy of the cluster with this UID.
    pub(super) fn uid(&self, original: &str) -> String {
        format!("{original}{SEPARATOR}{}", self.0)
    }
}

/// Separates the UID of the kube-system namespace, which does not contain it, from the mark of a copy.
const SEPARATOR: char = '.';

/// Returns the UID of the kube-system namespace in the UID of a cluster.
pub(super) fn original_uid(uid: &str) -> &str {
    uid.split_once(SEPARATOR).map_or(uid, |(original, _)| original)
}

fn annotation<'a>(lease: &'a Lease, name: &str) -> Option<&'a str> {
    lease.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

impl CoordinatorRecord {
    pub(super) fn of(lease: &Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        Self {
            holder: spec.holder_identity.unwrap_or_default(),
            acquired: spec.acquire_time.map(|time| time.0),
            renewed: spec.renew_time.map(|time| time.0),
            transitions: spec.lease_transitions.unwrap_or_default().max(0),
            scope: annotation(lease, COORDINATOR_SCOPE)
                .unwrap_or_default()
                .to_owned(),
            unseen: UnseenQuorums::parse(annotation(lease, UNSEEN_QUORUMS)),
            copy: ClusterCopy::of(lease),
        }
    }

    /// Returns the Lease with this content. With a version, the write fails unless the object still has it.
    pub(super) fn to_lease(&self, name: &str, version: Option<&str>) -> Lease {
        let mut annotations = BTreeMap::from([
            (UNSEEN_QUORUMS.to_owned(), self.unseen.to_text()),
            (COORDINATOR_SCOPE.to_owned(), self.scope.clone()),
        ]);
        if let Some(copy) = &self.copy {
            annotations.insert(CLUSTER_COPY.to_owned(), copy.0.clone());
        }
        Lease {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                resource_version: version.map(str::to_owned),
                annotations: Some(annotations),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.holder.clone()),
                acquire_time: self.acquired.map(MicroTime),
                renew_time: self.renewed.map(MicroTime),
                lease_transitions: Some(self.transitions),
                lease_duration_seconds: i32::try_from(EXPIRES.as_secs()).ok(),
                ..LeaseSpec::default()
            }),
        }
    }
}

/// Another replica of this cluster that coordinates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OtherCoordinator {
    pub(super) holder: String,
    /// The time until which it counts unless it renews its Lease.
    pub(super) until: BootInstant,
    pub(super) unseen: UnseenQuorums,
}

/// The coordinator, as a replica that may not be it sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CoordinatorView {
    pub(super) other: Option<OtherCoordinator>,
    /// The time until which another replica may become the coordinator, or see more, after the last change.
    pub(super) settles_at: BootInstant,
}

impl CoordinatorView {
    /// Reports whether another replica coordinates, and sees the masters of this quorum.
    pub(super) fn is_coordinated(&self, quorum: &str, now: BootInstant) -> bool {
        let other = self.other.as_ref();
        other.is_some_and(|other| now < other.until && !other.unseen.contains(quorum))
    }

    /// Returns until when a replica that does not see the masters of this quorum leaves stops to the others.
    pub(super) fn leaves_until(&self, quorum: &str, now: BootInstant) -> Option<BootInstant> {
        let other = self.other.as_ref().filter(|_| self.is_coordinated(quorum, now));
        let until = other.map_or(self.settles_at, |other| other.until.max(self.settles_at));
        (now < until).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> UnseenQuorums {
        UnseenQuorums::new(names.iter().map(|&name| name.to_owned()))
    }

    #[test]
    fn record_is_read_as_it_was_written() {
        let record = CoordinatorRecord {
            holder: "redlock-0".to_owned(),
            acquired: Timestamp::from_second(1_700_000_000).ok(),
            renewed: Timestamp::from_second(1_700_000_005).ok(),
            transitions: 3,
            scope: "all".to_owned(),
            unseen: named(&["b", "a"]),
            copy: Some(ClusterCopy::draw(7)),
        };
        let lease = record.to_lease("redlock", Some("7"));
        assert_eq!(lease.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(CoordinatorRecord::of(&lease), record);
    }

    #[test]
    fn record_that_cannot_be_read_sees_no_quorum() {
        let mut lease = Lease::default();
        assert_eq!(CoordinatorRecord::of(&lease).unseen, named(&[]));
        for text in ["*".to_owned(), "x".repeat(LONGEST + 1)] {
            lease.metadata.annotations = Some([(UNSEEN_QUORUMS.to_owned(), text)].into());
            let record = CoordinatorRecord::of(&lease);
            assert!(record.unseen.contains("default"));
        }
        let many = UnseenQuorums::new((0..=MOST_NAMES).map(|number| number.to_string()));
        assert_eq!(many, UnseenQuorums::All);
    }

    #[test]
    fn copy_has_a_uid_of_its_own_and_a_mark_of_another_form_is_none() {
        let uid = ClusterCopy::draw(0xab).uid("2420-77");
        assert_eq!(uid, "2420-77.000000ab");
        assert_eq!(
            (original_uid(&uid), original_uid("2420-77")),
            ("2420-77", "2420-77")
        );
        for text in ["", "xyz", "0000000g", "000000001"] {
            assert_eq!(ClusterCopy::parse(text), None, "{text}");
        }
    }

    #[test]
    fn only_a_replica_that_sees_more_exceeds_another() {
        for (own, other, exceeds) in [
            (named(&["a"]), named(&[]), true),
            (named(&["a", "b"]), named(&["b"]), true),
            (UnseenQuorums::All, named(&["b"]), true),
            (named(&["a"]), named(&["a"]), false),
            (named(&["a"]), named(&["b"]), false),
            (named(&[]), named(&["a"]), false),
            (UnseenQuorums::All, UnseenQuorums::All, false),
            (named(&[]), UnseenQuorums::All, false),
        ] {
            assert_eq!(own.is_exceeded_by(&other), exceeds, "{own:?} {other:?}");
        }
    }
}
