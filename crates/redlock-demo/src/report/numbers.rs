//! Counts the takeovers of one kind, and their durations.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Kind, Takeover, rounded};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Numbers {
    pub kind: Kind,
    /// `None` stands for all locks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
    pub n: usize,
    pub median_milliseconds: f64,
    pub max_milliseconds: f64,
}

impl Numbers {
    pub(super) fn by_kind(takeovers: &[Takeover]) -> Vec<Self> {
        Self::grouped(takeovers, |_| None)
    }

    pub(super) fn by_lock(takeovers: &[Takeover]) -> Vec<Self> {
        Self::grouped(takeovers, |takeover| Some(takeover.lock.clone()))
    }

    fn grouped(takeovers: &[Takeover], lock: impl Fn(&Takeover) -> Option<String>) -> Vec<Self> {
        let mut groups: BTreeMap<(Kind, Option<String>), Vec<f64>> = BTreeMap::new();
        for takeover in takeovers {
            groups
                .entry((takeover.kind, lock(takeover)))
                .or_default()
                .push(takeover.milliseconds);
        }
        let numbers = |((kind, lock), mut times): ((Kind, Option<String>), Vec<f64>)| {
            times.sort_by(f64::total_cmp);
            let (n, half) = (times.len(), times.len() / 2);
            // Never empty: a group is created with its first member.
            let median = if n % 2 == 1 {
                times[half]
            } else {
                f64::midpoint(times[half - 1], times[half])
            };
            Self {
                kind,
                lock,
                n,
                median_milliseconds: rounded(median),
                max_milliseconds: times[n - 1],
            }
        };
        groups.into_iter().map(numbers).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takeover(kind: Kind, lock: &str, milliseconds: f64) -> Takeover {
        Takeover {
            kind,
            lock: lock.to_owned(),
            from: "a".to_owned(),
            to: "b".to_owned(),
            from_token: 1,
            token: 2,
            milliseconds,
            seen_milliseconds: milliseconds,
        }
    }

    #[test]
    fn groups_have_their_median_and_maximum() {
        let all = [
            takeover(Kind::Crash, "l", 4.0),
            takeover(Kind::Crash, "m", 1.0),
            takeover(Kind::Crash, "l", 2.0),
            takeover(Kind::Pause, "l", 9.0),
        ];
        let by_kind = Numbers::by_kind(&all);
        assert_eq!(by_kind.len(), 2);
        assert_eq!(
            (
                by_kind[0].n,
                by_kind[0].median_milliseconds,
                by_kind[0].max_milliseconds
            ),
            (3, 2.0, 4.0)
        );
        let by_lock = Numbers::by_lock(&all);
        assert_eq!(by_lock.len(), 3);
        assert_eq!((by_lock[0].n, by_lock[0].median_milliseconds), (2, 3.0));
    }
}
