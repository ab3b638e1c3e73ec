//! Whether the pods of a target get the time that they ask for.

use super::Warden;
use crate::{api::plan::TargetPlan, lease::Timings, targets::Note};

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
    let wanted = target.too_short?;
    let (name, stop) = (&target.name, target.stop.as_secs());
    Some(format!(
        "target {name}: its pod template asks for a stop of {0} s, and it is given {stop} s: set stopSeconds: {0}, in all \
         clusters, with a lease of {1} s or more (that is what it gets without leaseDurationSeconds)",
        wanted.as_secs(),
        Timings::derive(wanted).lease_duration.as_secs()
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

    fn told(more: &str, grace: u64) -> Option<String> {
        let quorum: RedisQuorum = serde_yaml::from_str(
            "{apiVersion: redlock.dev/v1alpha1, kind: RedisQuorum, metadata: {name: q}, spec: {masters: [\
             {name: a, url: 'redis://a'}, {name: b, url: 'redis://b'}, {name: c, url: 'redis://c'}]}}",
        )
        .unwrap();
        let lock: LeaderLock = serde_yaml::from_str(&format!(
            "{{apiVersion: redlock.dev/v1alpha1, kind: LeaderLock, metadata: {{name: l, namespace: n}}, \
             spec: {{quorumRef: {{name: q}}, targets: [{{name: web, action: Scale{more}, \
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
    fn it_says_what_to_write() {
        assert_eq!(told("", 5), None);
        assert_eq!(told("", 30), None);
        assert_eq!(told(", stopSeconds: 20", 60), None, "it was meant");
        assert_eq!(
            told("", 60).unwrap(),
            "target web: its pod template asks for a stop of 65 s, and it is given 35 s: set stopSeconds: 65, in all \
             clusters, with a lease of 90 s or more (that is what it gets without leaseDurationSeconds)"
        );
        assert!(told("", u64::MAX).is_some(), "no length is too long to say");
    }
}
