//! Reads fenced locks at all masters for the agent of a node, with one call of a read-only script for each
//! master.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use redlock_core::{
    Admission, BootInstant, LockKeys, Sample, Unknown,
    fence::{Reading, readings},
    script::{FENCE, write_fence_call},
};

use super::{
    Masters,
    link::{Link, Packed},
};
use crate::clock;

/// One round over all masters.
#[derive(Debug)]
pub struct FenceRound {
    /// The time that was read before the first byte was sent.
    pub sent: BootInstant,
    /// The readings of each master, by its index.
    pub readings: Vec<Result<FenceReadings, Unknown>>,
    /// Whether the local clock stepped or stood still during the round, as the calls and polls of the
    /// connections show.
    pub local_clock_stepped: bool,
}

/// The readings of the locks at one master, in the order of the call.
#[derive(Debug)]
pub struct FenceReadings {
    pub clock: Sample,
    pub locks: Vec<Reading>,
}

impl Masters {
    /// Reads these locks, and waits for every master that may vote, up to the command timeout. Writes
    /// nothing.
    pub async fn read_fences(&self, locks: &[Arc<LockKeys>]) -> FenceRound {
        let steps = self.local_steps();
        let stamp = self.shared().read(|engine, _| engine.stamp());
        let sent = clock::now();
        let longest = self.fingerprint().longest_lease();
        let calls = self
            .links()
            .iter()
            .map(|link| read(link, (locks, longest), &stamp, sent));
        let readings = join_all(calls).await;
        FenceRound {
            sent,
            readings,
            local_clock_stepped: self.local_steps() != steps,
        }
    }

    /// Returns the number of steps of the local clock that the connections have shown, as in
    /// [`FenceRound::local_clock_stepped`].
    #[must_use]
    pub fn clock_steps(&self) -> u64 {
        self.local_steps()
    }
}

impl Link {
    /// Keeps the script of the node agents in the cache of the server, since their user cannot send it. The result is of no
    /// interest: without locks the script reads nothing.
    pub(super) async fn keep_fence_script(&self) {
        let stamp = self.quorum.read(|engine, _| engine.stamp());
        let fill = |command: &mut redis::Cmd, not_after: u64| {
            write_fence_call(&mut Packed(command), &self.keys, (not_after, &*stamp), &[]);
        };
        let _ = self
            .call(&FENCE, Admission::Connected, self.command_timeout(), fill)
            .await;
    }
}

async fn read(
    link: &Link,
    (locks, longest): (&[Arc<LockKeys>], Duration),
    stamp: &str,
    sent: BootInstant,
) -> Result<FenceReadings, Unknown> {
    let deadline = link.command_timeout();
    let exchange = link
        .call(&FENCE, Admission::Voting, deadline, |command, not_after| {
            write_fence_call(&mut Packed(command), &link.keys, (not_after, stamp), locks);
        })
        .await;
    let (reply, received) = (exchange.reply?, exchange.received);
    Ok(FenceReadings {
        clock: Sample {
            master: reply.time,
            sent,
            received,
        },
        locks: readings(&reply, (locks.len(), longest), received)?,
    })
}
