//! Bounds the messages that a master sends without a request.

use std::time::Duration;

use redlock_core::BootInstant;

use super::frame::FrameExcess;
use crate::clock;

/// The messages within one second that have an effect. A holder of 10,000 locks that ends releases them within a second. A
/// standby finds a lock of which it got no message by its next observation.
const USED: u32 = 16_384;
/// The messages within one second after which the connection is closed. A quorum of which one process uses the whole
/// throughput releases 25,000 locks in a second.
const RECEIVED: u32 = 65_536;
const SECOND: Duration = Duration::from_secs(1);

/// The kind of a whole value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    Reply,
    /// That a subscription began or ended, in reply to a request.
    Confirmation,
    /// A message of a channel.
    Message,
    /// A message that this process never requests.
    Other,
}

impl ValueKind {
    pub(super) fn of(value: &[u8]) -> Self {
        if value.first() != Some(&b'>') {
            return Self::Reply;
        }
        let mut lines = value.split(|byte| *byte == b'\n').skip(1);
        let kind = match lines.next() {
            Some([b'+', kind @ ..]) => kind,
            Some([b'$', ..]) => lines.next().unwrap_or_default(),
            Some(_) | None => return Self::Other,
        };
        match kind {
            b"message\r" => Self::Message,
            kind if kind.ends_with(b"subscribe\r") => Self::Confirmation,
            _ => Self::Other,
        }
    }
}

/// Counts messages within one second.
#[derive(Debug, Default)]
pub(super) struct MessageCounter {
    since: BootInstant,
    count: u32,
}

impl MessageCounter {
    /// Counts a message. Returns whether it has an effect.
    pub(super) fn received(&mut self, kind: ValueKind) -> Result<bool, FrameExcess> {
        self.count += 1;
        // The clock is read only by a count that is too high for one second.
        if self.count > USED {
            let now = clock::now();
            if now.since(self.since) >= SECOND {
                (self.since, self.count) = (now, 1);
            }
        }
        if self.count >= RECEIVED {
            return Err(FrameExcess::Messages(RECEIVED));
        }
        Ok(kind == ValueKind::Message && self.count <= USED)
    }
}
