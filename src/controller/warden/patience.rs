//! Whether the pods of a target get the time that they ask for.

use super::Warden;
use crate::{
    api::plan::{TargetPlan, TooShort},
    lease::timing::TimingError,
    targets::Note,
};

impl Warden {
    /// Says once of each target when its pods may take longer than the lock has room for: near the end of the lease
    /// they are deleted with what is left. What is written down as stopSeconds was meant.
    pub(super) fn check_patience(&mut self) {
        if std::mem::replace(&mut self.patience_checked, true) {
            return;
        }
        for text in self.post.plan.targets.iter().filter_map(too_short) {
            let note = Note {
                reason: "StopTooShort",
                text,
                warning: true,
            };
            // It has the other end itself.
            let _ = self.notes.0.send(note);
        }
    }
}

fn too_short(target: &TargetPlan) -> Option<String> {
    let TooShort { wanted, why } = target.too_short?;
    let (wanted, stop) = (wanted.as_secs(), target.stop.as_secs());
    let why = match why {
        TimingError::StopBudgetTooShort { needed, longest, .. } if needed > longest => format!(
            "that would need a lease of {} s, and the quorum's longest is {} s (maxLeaseDurationSeconds): let the pods \
             end sooner, or use a quorum that allows it",
            needed.as_secs_f64(),
            longest.as_secs_f64()
        ),
        TimingError::StopBudgetTooShort { needed, .. } => format!(
            "that would need a lease of {} s: give that as leaseDurationSeconds, or leave it out",
            needed.as_secs_f64()
        ),
        other => format!(
            "with that, spec.{} {} s {}",
            other.field().wire_name(),
            other.value().as_secs_f64(),
            other.reason()
        ),
    };
    let name = &target.name;
    Some(format!(
        "target {name}: its pod template asks for a stop of {wanted} s, and it is given {stop} s: {why}"
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::api::{
        LeaderLock, RedisQuorum,
        validate::{LockNames, validate_lock, validate_quorum},
    };

    fn told(lock: &str, longest: u64, grace: u64) -> Option<String> {
        let quorum: RedisQuorum = serde_yaml::from_str(&format!(
            "{{apiVersion: redlock.dev/v1alpha1, kind: RedisQuorum, metadata: {{name: q}}, spec: {{\
             maxLeaseDurationSeconds: {longest}, masters: [{{name: a, url: 'redis://a'}}, \
             {{name: b, url: 'redis://b'}}, {{name: c, url: 'redis://c'}}]}}}}"
        ))
        .unwrap();
        let lock: LeaderLock = serde_yaml::from_str(&format!(
            "{{apiVersion: redlock.dev/v1alpha1, kind: LeaderLock, metadata: {{name: l, namespace: n}}, \
             spec: {{quorumRef: {{name: q}}{lock}, targets: [{{name: web, action: Scale, \
             ref: {{apiVersion: apps/v1, kind: Deployment, name: d}}}}]}}}}"
        ))
        .unwrap();
        let read = lock.spec.targets[0].reference.clone().unwrap();
        let graces = [(read, Duration::from_secs(grace))].into_iter().collect();
        let quorum = validate_quorum(&quorum).unwrap();
        let plan = validate_lock(&lock, &quorum, LockNames::OfTheNamespace, &graces).unwrap();
        too_short(&plan.targets[0])
    }

    #[test]
    fn it_says_which_lease_would_do_or_why_none() {
        assert_eq!(told("", 60, 5), None);
        assert_eq!(told("", 90, 60), None);
        let asks = "target web: its pod template asks for a stop of 65 s, and it is given 35 s: ";
        assert_eq!(
            told("", 60, 60).unwrap(),
            format!(
                "{asks}that would need a lease of 90 s, and the quorum's longest is 60 s (maxLeaseDurationSeconds): let \
                 the pods end sooner, or use a quorum that allows it"
            )
        );
        assert_eq!(
            told(", leaseDurationSeconds: 60", 120, 60).unwrap(),
            format!(
                "{asks}that would need a lease of 90 s: give that as leaseDurationSeconds, or leave it out"
            )
        );
        let text = told(", retryPeriodSeconds: 8", 400, 300).unwrap();
        let why = "with that, spec.retryPeriodSeconds 8 s does not fit twice into the renew deadline";
        assert!(text.contains(why), "{text}");
        assert_eq!(
            told("", 60, u64::MAX).map(|text| text.is_empty()),
            Some(false),
            "no length is too long to say"
        );
    }
}
