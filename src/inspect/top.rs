//! `redlock top`: the locks at each moment, and the changes between two moments.
//!
//! Pure: takes observations and the time, returns text.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Write,
    time::Duration,
};

use jiff::Timestamp;

use super::{
    Reach,
    status::{ClustersStatus, LockState, LockStatus, Status},
};

/// Number of changes that are kept: more than any terminal shows.
const REMEMBERED: usize = 200;

/// The state of one lock, from either source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRow {
    state: LockState,
    holder: Option<String>,
    token: Option<u64>,
}

/// One observation of all locks.
#[derive(Clone, Debug, Default)]
pub struct Poll {
    /// The table.
    pub text: String,
    /// The locks by the names that the table shows.
    pub locks: BTreeMap<String, LockRow>,
    /// Whether a lock that is not in `locks` is absent. Otherwise its state is unknown.
    pub complete: bool,
}

/// The last table, and the changes since the start.
#[derive(Clone, Debug, Default)]
pub struct Top {
    table: String,
    last: BTreeMap<String, Option<LockRow>>,
    /// The changes, the latest first.
    changes: VecDeque<String>,
}

impl LockRow {
    #[must_use]
    pub fn of(lock: &LockStatus) -> Self {
        let cluster = lock.holder_cluster.as_deref();
        let holder = lock.holder_identity.as_ref().map(|holder| match cluster {
            Some(cluster) => format!("{holder} of cluster {cluster}"),
            None => holder.clone(),
        });
        Self {
            state: lock.state,
            holder,
            token: lock.fencing_token,
        }
    }

    fn text(&self) -> String {
        let token = self.token.map(|token| format!(", token {token}"));
        match (self.state, &self.holder) {
            (LockState::Held, Some(holder)) => format!("held by {holder}{}", token.unwrap_or_default()),
            (state, _) => state.word().to_owned(),
        }
    }
}

impl Poll {
    #[must_use]
    pub fn of_masters(status: &Status) -> Self {
        let locks = status.locks.iter();
        Self {
            text: status.locks_text(),
            locks: locks
                .map(|lock| (lock.lock_name.clone(), LockRow::of(lock)))
                .collect(),
            complete: status.complete && status.reach == Reach::Majority,
        }
    }

    #[must_use]
    pub fn of_clusters(status: &ClustersStatus) -> Self {
        let locks = status.clusters.iter().flat_map(|cluster| {
            let locks = cluster.status.iter().flat_map(|status| &status.locks);
            locks.map(|lock| {
                let name = format!("{} {}/{}", cluster.context, lock.namespace, lock.name);
                (name, LockRow::of(&lock.seen))
            })
        });
        Self {
            text: status.text(),
            locks: locks.collect(),
            complete: status.clusters.iter().all(|cluster| {
                let read = cluster.status.as_ref();
                read.is_some_and(|status| status.unread.is_empty())
            }),
        }
    }
}

impl Top {
    /// Handles an observation; `unix_now` is its time.
    pub fn take(&mut self, poll: Poll, unix_now: Duration) {
        let first = self.last.is_empty() && self.table.is_empty();
        let mut now: BTreeMap<String, Option<LockRow>> = BTreeMap::new();
        for lock in self.last.keys() {
            // A lock that is not shown has no known holder, or its state is unknown.
            let standing = (!poll.complete).then(LockRow::unknown);
            now.insert(lock.clone(), standing);
        }
        now.extend(
            poll.locks
                .into_iter()
                .map(|(lock, standing)| (lock, Some(standing))),
        );
        for (lock, standing) in &now {
            let before = self.last.get(lock).cloned().flatten();
            if before != *standing && !first {
                let text = standing
                    .as_ref()
                    .map_or_else(|| "not there".into(), LockRow::text);
                self.changes
                    .push_front(format!("{}  {lock}  {text}", time(unix_now)));
            }
        }
        self.changes.truncate(REMEMBERED);
        self.last = now;
        self.table = poll.text;
    }

    /// Returns the present table, and the changes since the start.
    #[must_use]
    pub fn text(&self, unix_now: Duration) -> String {
        let mut text = format!("{}\n{}\n", time(unix_now), self.table.trim_end());
        text += if self.changes.is_empty() {
            "\nno change was seen since the start\n"
        } else {
            "\nchanges that were seen, the latest first\n"
        };
        for change in &self.changes {
            let _ = writeln!(text, "{change}");
        }
        text
    }
}

impl LockRow {
    const fn unknown() -> Self {
        Self {
            state: LockState::Unknown,
            holder: None,
            token: None,
        }
    }
}

fn time(unix: Duration) -> String {
    let seconds = i64::try_from(unix.as_secs()).ok();
    let time = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map_or_else(|| unix.as_secs().to_string(), |time| time.to_string())
}

/// Returns the text that draws over the content of the terminal: it begins at the top left, and clears the
/// rest of each line and the lines below the last one. Text that does not fit is left out, so that the
/// terminal neither wraps nor scrolls.
#[must_use]
pub fn frame(text: &str, columns: usize, rows: usize) -> String {
    let mut frame = "\x1b[H".to_owned();
    let lines: Vec<&str> = text.lines().take(rows.max(1)).collect();
    for (index, line) in lines.iter().enumerate() {
        let shown: String = line.chars().take(columns).collect();
        frame += &format!("{shown}\x1b[K");
        // A new line below the last row would scroll.
        if index + 1 < lines.len() {
            frame.push_str("\r\n");
        }
    }
    frame + "\x1b[J"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(holder: &str, token: u64) -> LockRow {
        LockRow {
            state: LockState::Held,
            holder: Some(holder.to_owned()),
            token: Some(token),
        }
    }

    fn free() -> LockRow {
        LockRow {
            state: LockState::Free,
            ..LockRow::unknown()
        }
    }

    fn poll(locks: &[(&str, LockRow)]) -> Poll {
        Poll {
            text: "TABLE\n".into(),
            locks: locks
                .iter()
                .map(|(lock, standing)| ((*lock).to_owned(), standing.clone()))
                .collect(),
            complete: true,
        }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_timeline_has_holders_and_no_renewals() {
        let mut top = Top::default();
        top.take(poll(&[("a", held("x", 1)), ("b", free())]), at(0));
        assert!(
            top.text(at(0)).contains("no change was seen"),
            "{}",
            top.text(at(0))
        );
        top.take(poll(&[("a", held("x", 1)), ("b", free())]), at(1));
        top.take(poll(&[("a", free()), ("b", held("z", 7))]), at(2));
        top.take(
            poll(&[("a", held("y of cluster us-1", 2)), ("b", held("z", 7))]),
            at(3),
        );
        assert_eq!(
            top.text(at(4)),
            "1970-01-01T00:00:04Z\nTABLE\n\nchanges that were seen, the latest first\n\
             1970-01-01T00:00:03Z  a  held by y of cluster us-1, token 2\n\
             1970-01-01T00:00:02Z  b  held by z, token 7\n\
             1970-01-01T00:00:02Z  a  free\n"
        );
    }

    #[test]
    fn an_unreachable_lock_is_unknown_and_never_free() {
        let mut top = Top::default();
        top.take(poll(&[("a", held("x", 1))]), at(0));
        for seconds in [1, 2] {
            // No majority of the masters answers.
            top.take(Poll::default(), at(seconds));
        }
        top.take(poll(&[("a", held("x", 1))]), at(3));
        let text = top.text(at(3));
        assert_eq!(text.matches("  a  unknown\n").count(), 1, "{text}");
        assert!(text.contains("00:00:03Z  a  held by x, token 1"), "{text}");
        assert!(!text.contains("free") && !text.contains("not there"), "{text}");
        top.take(poll(&[]), at(4));
        top.take(poll(&[]), at(5));
        assert_eq!(top.text(at(5)).matches("  a  not there\n").count(), 1);
    }

    #[test]
    fn a_frame_covers_the_one_before_and_never_scrolls() {
        assert_eq!(
            frame("ab\ncd\nef\n", 80, 24),
            "\x1b[Hab\x1b[K\r\ncd\x1b[K\r\nef\x1b[K\x1b[J"
        );
        assert_eq!(frame("abcd\ne\nf\n", 3, 2), "\x1b[Habc\x1b[K\r\ne\x1b[K\x1b[J");
        assert_eq!(frame("", 80, 24), "\x1b[H\x1b[J");
    }
}
