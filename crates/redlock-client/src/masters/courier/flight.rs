//! One chunk of calls of one kind: how it is written down for a master.

use std::{sync::Arc, time::Duration};

use redis::Cmd;
use tokio_util::sync::CancellationToken;

use super::{Call, Operation, Request, progress::Progress};
use crate::{
    lease::{ClusterId, Mark, Moment, QuorumSize},
    masters::{
        keys::{Keyspace, LockKeys},
        link::Admission,
        scripts::{self, Script},
    },
};

/// A call and how far it is.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) call: Call,
    pub(super) progress: Progress,
    /// How often the local clock had stepped when it began.
    pub(super) local_steps: u64,
}

impl Entry {
    /// A call that begins at `started`, when the local clock had stepped so often; no attempt lasts longer than
    /// `acquire_limit`.
    pub(super) fn new(
        call: Call,
        size: QuorumSize,
        (started, local_steps): (Moment, u64),
        acquire_limit: Duration,
    ) -> Self {
        let progress = Progress::new(&call, size, started, acquire_limit);
        Self {
            call,
            progress,
            local_steps,
        }
    }

    /// Whether the local clock stepped since it began, and what it leads to depends on when that was.
    pub(super) fn is_stale(&self, local_steps: u64) -> bool {
        self.local_steps != local_steps && self.progress.is_timed()
    }
}

/// Entries that travel together, until the last master has answered or run out of time.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) operation: Operation,
    pub(super) entries: Vec<Entry>,
    /// Exchanges that have not landed.
    pub(super) outstanding: usize,
    /// Entries whose delivery is not certain yet.
    pub(super) undecided: usize,
    pub(super) deadline: Moment,
    /// Cancelled at the deadline: the masters that have not answered by then are unknown.
    pub(super) over: CancellationToken,
}

/// What a script call to one master carries; shared by the exchanges of a flight.
#[derive(Clone, Debug)]
pub(in crate::masters) struct Cargo {
    pub(in crate::masters) operation: Operation,
    pub(in crate::masters) items: Arc<[(Arc<LockKeys>, Request)]>,
    pub(in crate::masters) keys: Keyspace,
    pub(in crate::masters) cluster: Arc<str>,
    pub(in crate::masters) floor: u64,
}

impl Cargo {
    pub(in crate::masters) fn script(&self) -> &'static Script {
        match self.operation {
            Operation::Grant => &scripts::GRANT,
            Operation::Confirm => &scripts::CONFIRM,
            Operation::Renew => &scripts::RENEW,
            Operation::Release | Operation::Undo => &scripts::RELEASE,
            Operation::Reserve => &scripts::RESERVE,
            Operation::Observe => &scripts::OBSERVE,
            Operation::Break => &scripts::BREAK,
            Operation::Mark => &scripts::MARK,
            Operation::Claim => &scripts::CLAIM,
            Operation::Slots => &scripts::SLOTS,
        }
    }

    /// Clean-up is owed also to a master that may not vote.
    pub(super) fn admission(&self) -> Admission {
        match self.operation {
            Operation::Release | Operation::Undo => Admission::Connected,
            _ => Admission::Voting,
        }
    }

    /// The items for one master, in the order of its reply.
    pub(super) fn members(&self, master: usize) -> Vec<usize> {
        (0..self.items.len())
            .filter(|i| self.items[*i].1.wants(master))
            .collect()
    }

    /// Appends keys and arguments as the script of this operation reads them.
    pub(in crate::masters) fn fill(
        &self,
        command: &mut Cmd,
        not_after: u64,
        fingerprint: &str,
        master: usize,
        members: &[usize],
    ) {
        let with_reservation = !matches!(
            self.operation,
            Operation::Confirm | Operation::Mark | Operation::Claim | Operation::Slots
        );
        let keys_each = match self.operation {
            Operation::Claim | Operation::Slots => 0,
            _ if with_reservation => 2,
            _ => 1,
        };
        command.arg(1 + keys_each * members.len()).arg(&*self.keys.meta);
        let items = || members.iter().map(|i| &self.items[*i]);
        if keys_each > 0 {
            for (lock, _) in items() {
                command.arg(&lock.lease);
                if with_reservation {
                    command.arg(&lock.reserved);
                }
            }
        }
        command.arg(not_after).arg(fingerprint);
        self.fill_head(command);
        for (lock, request) in items() {
            fill_item(command, lock, request, master);
        }
    }

    fn fill_head(&self, command: &mut Cmd) {
        match self.operation {
            Operation::Grant => command.arg(self.floor).arg(&*self.cluster),
            Operation::Renew | Operation::Observe => command.arg(&*self.cluster),
            Operation::Release => command.arg(&*self.cluster).arg(&*self.keys.channel),
            Operation::Undo => command.arg("").arg(&*self.keys.channel),
            Operation::Reserve => command.arg(&*self.keys.channel).arg(&*self.cluster),
            Operation::Break => {
                let longest = self.items.iter().find_map(|(_, request)| match request {
                    Request::Break { longest_lease } => Some(longest_lease.as_millis()),
                    _ => None,
                });
                command.arg(u64::try_from(longest.unwrap_or_default()).unwrap_or(u64::MAX))
            }
            Operation::Confirm | Operation::Mark | Operation::Claim | Operation::Slots => command,
        };
    }
}

fn fill_item(command: &mut Cmd, lock: &LockKeys, request: &Request, master: usize) {
    let name = lock.name.as_str();
    let milliseconds =
        |duration: &std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    match request {
        Request::Acquire {
            tenure,
            lease_duration,
        } => {
            command
                .arg(tenure.stem.as_str())
                .arg(milliseconds(lease_duration))
                .arg(name);
        }
        Request::Confirm {
            tenure,
            token,
            granted,
        } => {
            let number = granted
                .iter()
                .find(|(m, _)| *m == master)
                .map_or(0, |(_, number)| *number);
            command
                .arg(format!("{}{number}", tenure.stem.as_str()))
                .arg(token.0);
        }
        Request::Renew {
            tenure,
            token,
            lease_duration,
        } => {
            command
                .arg(tenure.stem.as_str())
                .arg(token.0)
                .arg(milliseconds(lease_duration));
        }
        Request::Release { tenure } => {
            command.arg(tenure.stem.as_str()).arg(name);
        }
        Request::Undo { tenure, publish, .. } => {
            let published = if *publish { name } else { "" };
            command.arg(tenure.stem.as_str()).arg(published);
        }
        Request::Reserve { tenure, cluster } | Request::ReserveAgain { tenure, cluster, .. } => {
            command
                .arg(tenure.stem.as_str())
                .arg(name)
                .arg(cluster_text(cluster));
        }
        Request::Mark { tenure, token, mark } => {
            command.arg(tenure.stem.as_str()).arg(name).arg(token.0);
            match mark {
                Mark::Held { delay } => command.arg(milliseconds(delay)),
                Mark::Clean => command.arg(""),
            };
        }
        Request::Claim { object, slot, job } => {
            command
                .arg(format!("slot:{name}/{object}"))
                .arg(*slot)
                .arg(&**job);
        }
        Request::Slots { object } => {
            command.arg(format!("slot:{name}/{object}"));
        }
        Request::Observe | Request::Inspect | Request::Break { .. } => {}
    }
}

/// How a cluster is written into a reservation.
pub(super) fn cluster_text(cluster: &ClusterId) -> String {
    cluster.to_string()
}
