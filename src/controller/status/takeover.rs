//! Describes the wait of a new holder before the start of its targets.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::holder::called;
use crate::{
    controller::{events::timestamp_at, target_task::TakeoverWait},
    lease::{DelaySource, Holder},
};

/// Names the reason of the wait, its length, its end and the declarer of its length. `last` is the last other holder that
/// this replica has seen.
pub(in crate::controller) fn postponed(wait: &TakeoverWait, last: Option<&Holder>) -> String {
    let last = last.filter(|last| last.token == wait.after);
    let name = last.map_or_else(String::new, |last| {
        format!(" of {}", called(last.cluster.name(), &last.identity))
    });
    let source = match wait.delay.source {
        DelaySource::LastHolder => "that holder declared this time for its targets to stop",
        DelaySource::Candidate => {
            "takeoverDelaySeconds, or the stop time of the targets, of this lock demands this time"
        }
        DelaySource::Undeclared => {
            "that holder declared no time: the longest stop time that is derived from pods is assumed"
        }
    };
    format!(
        "the lease{name} with token {} did not end cleanly, so its targets may still run: the targets start after a wait of {} s, at \
         {}; {source}",
        wait.after.0,
        wait.delay.length.as_secs(),
        whole_seconds(wait.ends)
    )
}

/// Returns the time in whole seconds, not before it.
fn whole_seconds(unix: Duration) -> Timestamp {
    let rest = u64::from(unix.subsec_nanos() > 0);
    timestamp_at(Duration::from_secs(unix.as_secs().saturating_add(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{BootInstant, ClusterId, FencingToken, Nonce, TakeoverDelay};

    fn wait(source: DelaySource) -> TakeoverWait {
        TakeoverWait {
            until: BootInstant::default(),
            delay: TakeoverDelay {
                length: Duration::from_secs(15),
                source,
            },
            after: FencingToken(7),
            ends: Duration::from_millis(1_767_225_615_250),
        }
    }

    fn holder(token: u64) -> Holder {
        Holder {
            cluster: ClusterId::new("us-1", "u").unwrap(),
            identity: "redlock-0".into(),
            nonce: Nonce(1),
            token: FencingToken(token),
            ends: BootInstant::default(),
        }
    }

    #[test]
    fn wait_names_its_length_its_end_and_the_declarer() {
        let text = postponed(&wait(DelaySource::LastHolder), Some(&holder(7)));
        for part in [
            "the lease of us-1/redlock-0 with token 7 did not end cleanly",
            "after a wait of 15 s, at 2026-01-01T00:00:16Z",
            "that holder declared",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn holder_of_another_lease_is_not_named() {
        let text = postponed(&wait(DelaySource::Undeclared), Some(&holder(6)));
        assert!(
            text.contains("the lease with token 7 did not end cleanly"),
            "{text}"
        );
        assert!(text.contains("declared no time"), "{text}");
    }
}
