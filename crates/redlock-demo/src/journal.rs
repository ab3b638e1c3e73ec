//! Reads the events about leases from the log of one replica.
//!
//! Each call reads the lines that were added since the call before. An event has the time that its line carries, so a
//! late read does not shift it.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::fs::File;
use tokio::io::AsyncReadExt;

use redlock_client::clock;
use redlock_core::BootInstant;

/// One line of the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The time of the line, on the boot-time clock.
    pub at: BootInstant,
    pub event: Event,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Acquired {
        lock: String,
        token: u64,
        valid: Duration,
    },
    /// The lease ended before its holder gave it up.
    Lost {
        lock: String,
        token: u64,
    },
    GivenUp {
        lock: String,
        token: u64,
    },
    /// Any other event; with the lock, if the line names one.
    Other {
        lock: Option<String>,
        message: String,
    },
}

impl Event {
    pub fn lock(&self) -> Option<&str> {
        match self {
            Self::Acquired { lock, .. } | Self::Lost { lock, .. } | Self::GivenUp { lock, .. } => Some(lock),
            Self::Other { lock, .. } => lock.as_deref(),
        }
    }
}

/// A log file that grows.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    /// The beginning of a line whose end has not been written yet.
    rest: Vec<u8>,
}

impl Journal {
    pub(super) async fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: File::open(path).await?,
            rest: Vec::new(),
        })
    }

    /// Returns the lines since the last call.
    pub(super) async fn news(&mut self) -> io::Result<Vec<Line>> {
        self.file.read_to_end(&mut self.rest).await?;
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(Vec::new());
        };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        // The lines carry wall-clock time. They are milliseconds old, too little for the two clocks to drift apart.
        let (boot, wall) = (clock::now(), clock::unix_time());
        let text = String::from_utf8_lossy(&whole);
        Ok(text
            .lines()
            .filter_map(|line| parse(line, |at| boot - wall.saturating_sub(at)))
            .collect())
    }
}

/// Returns `None` for a line that is not an event, for example the message of a panic.
fn parse(line: &str, boot_time: impl FnOnce(Duration) -> BootInstant) -> Option<Line> {
    let line: Value = serde_json::from_str(line).ok()?;
    let stamp: jiff::Timestamp = line.get("timestamp")?.as_str()?.parse().ok()?;
    let since_1970 = Duration::from_nanos(u64::try_from(stamp.as_nanosecond()).ok()?);
    let fields = line.get("fields").unwrap_or(&line);
    let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
    // Numbers of 128 bits are written as text.
    let number = |name: &str| {
        let value = fields.get(name)?;
        value.as_u64().or_else(|| value.as_str()?.parse().ok())
    };
    let message = text("message")?;
    let event = match (message.as_str(), text("lock"), number("token")) {
        ("lease acquired", Some(lock), Some(token)) => Event::Acquired {
            lock,
            token,
            valid: Duration::from_millis(number("valid_ms").unwrap_or(0)),
        },
        ("lease lost", Some(lock), Some(token)) => Event::Lost { lock, token },
        ("lease given up", Some(lock), Some(token)) => Event::GivenUp { lock, token },
        (_, lock, _) => Event::Other { lock, message },
    };
    Some(Line {
        at: boot_time(since_1970),
        event,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn event(line: &str) -> Option<Event> {
        parse(line, |_| BootInstant::default()).map(|line| line.event)
    }

    #[test]
    fn events_are_read_nested_and_flat() {
        let acquired = Event::Acquired {
            lock: "a/b".into(),
            token: 7,
            valid: Duration::from_millis(2960),
        };
        for line in [
            r#"{"timestamp":"2026-01-01T00:00:00.000001Z","fields":{"message":"lease acquired","lock":"a/b","token":7,"valid_ms":2960}}"#,
            r#"{"timestamp":"2026-01-01T00:00:00.000001Z","message":"lease acquired","lock":"a/b","token":7,"valid_ms":"2960"}"#,
        ] {
            assert_eq!(event(line), Some(acquired.clone()), "{line}");
        }
        let lost = r#"{"timestamp":"2026-01-01T00:00:00Z","fields":{"message":"lease lost","lock":"a/b","token":7}}"#;
        assert_eq!(
            event(lost),
            Some(Event::Lost {
                lock: "a/b".into(),
                token: 7
            })
        );
        assert_eq!(event("thread 'main' panicked"), None);
    }

    #[test]
    fn a_line_counts_from_when_it_was_written() {
        let line = r#"{"timestamp":"1970-01-01T00:00:02.5Z","fields":{"message":"up"}}"#;
        let at = parse(line, |at| BootInstant::default() + at).unwrap().at;
        assert_eq!(at, BootInstant::from_nanos(2_500_000_000));
    }

    #[tokio::test]
    async fn half_a_line_is_read_when_it_is_whole() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut journal = Journal::open(file.path()).await.unwrap();
        file.write_all(br#"{"timestamp":"1970-01-01T00:00:02Z","#)
            .unwrap();
        assert_eq!(journal.news().await.unwrap(), []);
        file.write_all(b"\"fields\":{\"message\":\"up\"}}\n").unwrap();
        assert_eq!(journal.news().await.unwrap().len(), 1);
        assert_eq!(journal.news().await.unwrap(), []);
    }
}
