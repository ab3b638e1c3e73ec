//! Records that a cluster leaves a lock to the other clusters because its targets did not get ready here.
//!
//! The record is an annotation of the object, because the object is all that the replicas of a cluster share.

use std::time::Duration;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use serde::{Deserialize, Serialize};

/// The annotation. Deleting it lets the cluster contend again.
pub const ABSTAIN: &str = "redlock.dev/abstain";

const SHORTEST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(1_800);
/// Seconds after the end of an abstention. A later failure counts as a first one, so its abstention does not double.
const GOOD_TIME: i64 = 1_800;

/// The value of the annotation [`ABSTAIN`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Abstention {
    pub until: Time,
    /// The length without the stop, which doubles at the next failure.
    pub seconds: u64,
}

impl Abstention {
    /// Returns the abstention that follows `before`. It counts from the time by which the targets must have stopped,
    /// which is `stop` after `now`.
    #[must_use]
    pub fn next(before: Option<&Self>, takeover_delay: Duration, now: Timestamp, stop: Duration) -> Self {
        let first = SHORTEST.max(takeover_delay * 2).min(LONGEST);
        let again = before.filter(|before| now.as_second() < before.until.0.as_second() + GOOD_TIME);
        let seconds = again.map_or(first, |before| {
            (Duration::from_secs(before.seconds).saturating_mul(2)).clamp(first, LONGEST)
        });
        let until = now.as_second() + i64::try_from((seconds + stop).as_secs()).unwrap_or(0);
        Self {
            until: Time(Timestamp::from_second(until).unwrap_or(now)),
            seconds: seconds.as_secs(),
        }
    }

    #[must_use]
    pub fn holds(&self, now: Timestamp) -> bool {
        now < self.until.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_half_an_hour_and_begins_anew_after_a_good_time() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let delay = Duration::from_secs(40);
        let stop = Duration::from_secs(5);
        let mut now = 1_000;
        let mut last: Option<Abstention> = None;
        for seconds in [80, 160, 320, 640, 1_280, 1_800, 1_800] {
            let next = Abstention::next(last.as_ref(), delay, at(now), stop);
            assert_eq!(next.seconds, seconds);
            let end = now + i64::try_from(seconds).unwrap() + 5;
            assert!(next.holds(at(end - 1)) && !next.holds(at(end)));
            now = end + GOOD_TIME - 1;
            last = Some(next);
        }
        let anew = Abstention::next(last.as_ref(), delay, at(now + 2), stop);
        assert_eq!(anew.seconds, 80);
        let short = Abstention::next(None, Duration::ZERO, at(0), stop);
        assert_eq!(short.seconds, 60);
        let text = serde_json::to_string(&short).unwrap();
        assert_eq!(text, r#"{"until":"1970-01-01T00:01:05Z","seconds":60}"#);
        assert_eq!(serde_json::from_str::<Abstention>(&text).unwrap(), short);
    }
}
