//! The record of a `coordination.k8s.io/v1` Lease as client-go's leader election reads and writes it. Pure.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp,
};
use serde_json::{Value, json};

/// The beginning of the holder identity of every operator.
pub(super) const OPERATOR: &str = "redlock.dev/";
/// The annotation with the duration of the record that the operator replaced.
pub(super) const FORMER_DURATION: &str = "redlock.dev/former-lease-duration-seconds";
/// The annotation with the holder of the record that the operator replaced.
pub(super) const FORMER_HOLDER: &str = "redlock.dev/former-holder";

/// The duration of a record of the operator, in seconds: no candidate waits that long. Since client-go 0.27,
/// a candidate honours the duration of the record; an earlier one uses its own.
const FOR_GOOD: i32 = i32::MAX;
/// The duration of a free record, as client-go writes it at a release.
const FREE: i32 = 1;

/// The parts of a Lease that matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) uid: Option<String>,
    pub(super) version: Option<String>,
    /// Empty if the record is free.
    pub(super) holder: String,
    pub(super) duration: Option<Duration>,
    pub(super) acquired: Option<Timestamp>,
    pub(super) renewed: Option<Timestamp>,
    pub(super) transitions: i32,
    /// The value in the annotation of the operator.
    pub(super) former_duration: Option<Duration>,
    pub(super) former_holder: Option<String>,
}

impl Record {
    pub(super) fn of(lease: &Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        let annotation = |name| lease.metadata.annotations.as_ref()?.get(name).cloned();
        let seconds = |seconds: i32| u64::try_from(seconds).ok().map(Duration::from_secs);
        Self {
            uid: lease.metadata.uid.clone(),
            version: lease.metadata.resource_version.clone(),
            holder: spec.holder_identity.unwrap_or_default(),
            duration: spec.lease_duration_seconds.and_then(seconds),
            acquired: spec.acquire_time.map(|time| time.0),
            renewed: spec.renew_time.map(|time| time.0),
            transitions: spec.lease_transitions.unwrap_or_default(),
            former_duration: annotation(FORMER_DURATION)
                .and_then(|text| text.parse().ok())
                .and_then(seconds),
            former_holder: annotation(FORMER_HOLDER).filter(|holder| !holder.is_empty()),
        }
    }

    /// Reports whether an operator holds the Lease, of this cluster or of another one: a backup may have been restored.
    pub(super) fn is_operators(&self) -> bool {
        self.holder.starts_with(OPERATOR)
    }

    /// Returns the duration and the holder of the last record that a candidate wrote.
    pub(super) fn last_candidate(&self) -> (Option<Duration>, Option<&str>) {
        if self.is_operators() {
            return (self.former_duration, self.former_holder.as_deref());
        }
        let holder = Some(&*self.holder).filter(|holder| !holder.is_empty());
        (self.duration.filter(|_| holder.is_some()), holder)
    }

    /// Returns the name of the pod whose container may have written this holder identity: client-go's callers use the
    /// host name, then `_` and a random part.
    pub(super) fn pod_of(holder: &str) -> Option<&str> {
        let name = holder.split('_').next()?;
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        (!name.is_empty() && name.len() <= 253 && name.chars().all(fits)).then_some(name)
    }
}

/// Returns the time after which a leader has certainly stopped once its record was replaced: `⌈11/6 × L × 1.01⌉` for a
/// record of duration L. client-go requires L > renew deadline > 1.2 × retry period, and a leader gives up at the
/// latest after a retry period and a renew deadline; 1 % is for the difference of two clocks.
pub(super) fn stop_after(duration: Duration) -> Duration {
    let seconds = duration.as_secs();
    Duration::from_secs((seconds.saturating_mul(1111)).div_ceil(600))
}

/// Returns the patch with which the operator takes the Lease, for the version that was read.
pub(super) fn taken(found: &Record, holder: &str, now: Timestamp) -> Value {
    let (duration, candidate) = found.last_candidate();
    let mut change = json!({
        "metadata": { "annotations": {
            FORMER_DURATION: duration.map(|duration| duration.as_secs().to_string()),
            FORMER_HOLDER: candidate,
        }},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": FOR_GOOD,
            "acquireTime": MicroTime(now),
            "renewTime": MicroTime(now),
            "leaseTransitions": found.transitions.saturating_add(1),
            "preferredHolder": null,
        },
    });
    at_version(&mut change, found);
    change
}

/// Returns the patch with which the operator renews its record: candidates before client-go 0.27 measure
/// their own duration from the last change.
pub(super) fn renewed(found: &Record, now: Timestamp) -> Value {
    let mut change = json!({ "spec": { "renewTime": MicroTime(now) } });
    at_version(&mut change, found);
    change
}

/// Returns the patch with which the operator frees the Lease, as client-go does at a release.
pub(super) fn freed(found: &Record, now: Timestamp) -> Value {
    let mut change = json!({
        "metadata": { "annotations": { FORMER_DURATION: null, FORMER_HOLDER: null } },
        "spec": {
            "holderIdentity": "",
            "leaseDurationSeconds": FREE,
            "acquireTime": MicroTime(now),
            "renewTime": MicroTime(now),
        },
    });
    at_version(&mut change, found);
    change
}

fn at_version(change: &mut Value, found: &Record) {
    change["metadata"]["uid"] = json!(found.uid);
    change["metadata"]["resourceVersion"] = json!(found.version);
}

/// Returns a new Lease that the operator holds, in place of a missing one.
pub(super) fn created(name: &str, holder: &str, now: Timestamp) -> Lease {
    let mut lease = Lease::default();
    lease.metadata.name = Some(name.to_owned());
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(holder.to_owned());
    spec.lease_duration_seconds = Some(FOR_GOOD);
    spec.acquire_time = Some(MicroTime(now));
    spec.renew_time = Some(MicroTime(now));
    spec.lease_transitions = Some(0);
    lease
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(spec: &Value, annotations: &Value) -> Record {
        let lease = json!({
            "metadata": {"name": "l", "uid": "u", "resourceVersion": "7", "annotations": annotations}, "spec": spec,
        });
        Record::of(&serde_json::from_value(lease).unwrap())
    }

    fn now() -> Timestamp {
        "2026-01-01T12:00:00.123456Z".parse().unwrap()
    }

    #[test]
    fn stop_time_follows_from_the_duration_of_the_record() {
        for (duration, stop) in [(15, 28), (30, 56), (60, 112), (1, 2), (0, 0)] {
            assert_eq!(
                stop_after(Duration::from_secs(duration)),
                Duration::from_secs(stop),
                "{duration} s"
            );
        }
    }

    #[test]
    fn record_of_a_candidate_is_replaced_and_remembered() {
        let found = record(
            &json!({"holderIdentity": "web-0_u", "leaseDurationSeconds": 15, "leaseTransitions": 4, "strategy": "x"}),
            &json!({}),
        );
        let change = taken(&found, "redlock.dev/eu", now());
        assert_eq!(
            change,
            json!({
                "metadata": {
                    "uid": "u", "resourceVersion": "7",
                    "annotations": {FORMER_DURATION: "15", FORMER_HOLDER: "web-0_u"},
                },
                "spec": {
                    "holderIdentity": "redlock.dev/eu", "leaseDurationSeconds": i32::MAX, "leaseTransitions": 5,
                    "acquireTime": "2026-01-01T12:00:00.123456Z", "renewTime": "2026-01-01T12:00:00.123456Z",
                    "preferredHolder": null,
                },
            }),
            "strategy stays"
        );
    }

    #[test]
    fn record_of_an_operator_keeps_the_former_candidate() {
        let of_operator = record(
            &json!({"holderIdentity": "redlock.dev/other", "leaseDurationSeconds": i32::MAX}),
            &json!({FORMER_DURATION: "30", FORMER_HOLDER: "web-1_u"}),
        );
        assert!(of_operator.is_operators());
        assert_eq!(
            of_operator.last_candidate(),
            (Some(Duration::from_secs(30)), Some("web-1_u"))
        );
        let change = taken(&of_operator, "redlock.dev/eu", now());
        assert_eq!(change["metadata"]["annotations"][FORMER_DURATION], "30");
        let free = record(
            &json!({"holderIdentity": "", "leaseDurationSeconds": 1}),
            &json!({}),
        );
        assert_eq!(
            free.last_candidate(),
            (None, None),
            "1 s is the duration of a free record"
        );
    }

    #[test]
    fn free_record_is_that_of_a_release() {
        let found = record(
            &json!({"holderIdentity": "redlock.dev/eu", "leaseTransitions": 4}),
            &json!({}),
        );
        let change = freed(&found, now());
        assert_eq!(change["spec"]["holderIdentity"], "");
        assert_eq!(change["spec"]["leaseDurationSeconds"], 1);
        assert!(change["spec"]["leaseTransitions"].is_null(), "unchanged");
        assert!(change["metadata"]["annotations"][FORMER_HOLDER].is_null());
    }

    #[test]
    fn pod_of_a_holder_is_its_name_before_the_random_part() {
        for (holder, pod) in [
            ("web-7f9-x2_0b5c", Some("web-7f9-x2")),
            ("web-0", Some("web-0")),
            ("", None),
            ("_x", None),
            ("redlock.dev/eu", None),
            ("Node A_x", None),
        ] {
            assert_eq!(Record::pod_of(holder), pod, "{holder}");
        }
    }
}
