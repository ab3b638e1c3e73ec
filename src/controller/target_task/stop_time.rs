//! Checks whether the pods of a target get the time they need to stop. Pure.

use crate::{api::plan::TargetPlan, lease::Timings};

/// Returns the advice for a target whose pods may take longer to stop than the lock allows: near the end of
/// the lease they are deleted with the remaining grace period. An explicit stopSeconds is taken as intended.
pub(super) fn too_short(target: &TargetPlan) -> Option<String> {
    let wanted = target.too_short?;
    let (name, stop) = (&target.name, target.stop.as_secs());
    let ordered = match target.one_by_one {
        Some(pods) if pods > 1 => format!(
            ", since its {pods} pods end one after the other (podManagementPolicy: OrderedReady; with Parallel they end at \
             the same time)"
        ),
        Some(_) | None => String::new(),
    };
    Some(format!(
        "target {name}: its pod template asks for a stop of {0} s{ordered}, but its stop time is {stop} s: set stopSeconds: \
         {0} in all clusters, with a lease of {1} s or more (the default without leaseDurationSeconds)",
        wanted.as_secs(),
        Timings::derive(wanted).lease_duration.as_secs()
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::api::{plan::TargetWork, target::TargetRef};

    #[test]
    fn it_names_the_text_to_write() {
        let object = TargetRef {
            api_version: "batch/v1".into(),
            kind: "Job".into(),
            name: "web".into(),
        };
        let mut target = TargetPlan {
            name: "web".into(),
            work: TargetWork::Suspend { object },
            stop: Duration::from_secs(35),
            awaits: None,
            too_short: None,
            one_by_one: None,
            declared: std::sync::Arc::new(serde_yaml::from_str("{name: web, action: Suspend}").unwrap()),
        };
        assert_eq!(too_short(&target), None);
        target.too_short = Some(Duration::from_secs(65));
        assert_eq!(
            too_short(&target).unwrap(),
            "target web: its pod template asks for a stop of 65 s, but its stop time is 35 s: set stopSeconds: 65 in all \
             clusters, with a lease of 90 s or more (the default without leaseDurationSeconds)"
        );
        target.one_by_one = Some(3);
        let text = too_short(&target).unwrap();
        assert!(
            text.contains(
                "65 s, since its 3 pods end one after the other (podManagementPolicy: OrderedReady"
            ),
            "{text}"
        );
        target.too_short = Some(Duration::MAX);
        assert!(too_short(&target).is_some(), "no length is too long to say");
    }
}
