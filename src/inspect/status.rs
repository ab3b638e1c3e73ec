//! `redlock status`: the holder of each lock as each master shows it, and the state of the masters.

mod clusters;
mod declared;
mod lock;
mod master;
mod objects;
mod table;

use std::{collections::BTreeSet, time::Duration};

use serde::Serialize;

pub use clusters::{ClusterShown, ClustersStatus, Extent};
pub use declared::{DeclaredStatus, Source};
pub use lock::{LockState, LockStatus, MasterAccount};
pub use master::MasterReport;
pub use objects::{Failed, ObjectsStatus, Wanted, gather_declared};

use super::{Reach, Session};
use crate::{
    clock,
    lease::LockName,
    masters::{LockAccount, MasterStatus, Unknown},
};

/// The time for which the keys of one master are searched for lock names: enough for some million keys.
const SCAN: Duration = Duration::from_secs(5);

/// Everything that `status` shows.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    pub fingerprint: String,
    /// The id of the quorum; absent if no majority of the masters shows one.
    pub quorum_id: Option<String>,
    /// Whether the fingerprint was read from the masters; otherwise it is that of the configuration.
    pub fingerprint_stored: bool,
    pub majority: usize,
    pub answering: usize,
    pub voting: usize,
    pub masters: Vec<MasterReport>,
    pub locks: Vec<LockStatus>,
    /// Whether the keys of all masters could be searched in time; otherwise locks may be missing.
    pub complete: bool,
    #[serde(skip)]
    pub reach: Reach,
    /// Whether every master's account is written out for each lock, or only those that differ.
    #[serde(skip)]
    every_account: bool,
}

/// Gathers the status of these locks, or of all locks if none is named.
pub async fn gather(session: &Session, locks: &[LockName], registers: bool) -> Status {
    if !locks.is_empty() {
        return poll(session, locks, registers).await;
    }
    let (names, complete) = all_names(session).await;
    Status {
        complete,
        every_account: false,
        ..poll(session, &names, registers).await
    }
}

/// Gathers the status of these locks and no others.
async fn poll(session: &Session, names: &[LockName], registers: bool) -> Status {
    let masters = &session.masters;
    let majority = masters.size().majority();
    let accounts = masters.accounts(names).await;
    let registers = if registers {
        masters.registers().await.into_iter().map(Some).collect()
    } else {
        vec![None; majority * 2 - 1]
    };
    let seen = masters.status();
    let wait = masters.fingerprint().seal_wait();
    let now = clock::unix_time();
    let of_masters = seen.iter().zip(registers);
    let reports = of_masters.map(|(status, registers)| MasterReport::of(status, registers, wait, now));
    Status {
        fingerprint: masters.fingerprint().to_string(),
        quorum_id: masters.quorum_id().map(|id| id.to_string()),
        fingerprint_stored: session.adopted.stored,
        majority,
        answering: seen.iter().filter(|status| status.answers()).count(),
        voting: seen.iter().filter(|status| status.votes()).count(),
        masters: reports.collect(),
        locks: lock_statuses(names, &accounts, &seen, masters.size()),
        complete: true,
        reach: Reach::of(&seen, majority, MasterStatus::answers),
        every_account: true,
    }
}

/// Returns one lock as the masters show it now.
pub(super) async fn one(session: &Session, name: &LockName) -> LockStatus {
    let masters = &session.masters;
    let names = std::slice::from_ref(name);
    let accounts = masters.accounts(names).await;
    let mut found = lock_statuses(names, &accounts, &masters.status(), masters.size());
    found.swap_remove(0)
}

async fn all_names(session: &Session) -> (Vec<LockName>, bool) {
    let (mut names, mut complete) = (BTreeSet::new(), true);
    for found in session.masters.lock_names(SCAN).await.into_iter().flatten() {
        complete &= found.complete;
        names.extend(found.names);
    }
    (names.into_iter().collect(), complete)
}

fn lock_statuses(
    names: &[LockName],
    accounts: &[Result<Vec<LockAccount>, Unknown>],
    seen: &[MasterStatus],
    size: crate::lease::QuorumSize,
) -> Vec<LockStatus> {
    let now = clock::now();
    let one = |(index, name): (usize, &LockName)| {
        let of_lock = accounts.iter().zip(seen).map(|(account, status)| {
            let account = account.as_ref().map_err(Clone::clone);
            // An account for each lock that was asked for, or an error.
            let account = account.map(|all| all.get(index).cloned().unwrap_or_default());
            (status.name.clone(), account)
        });
        LockStatus::of(name, &of_lock.collect::<Vec<_>>(), size, now)
    };
    names.iter().enumerate().map(one).collect()
}

impl Status {
    /// Returns the status as tables.
    #[must_use]
    pub fn text(&self) -> String {
        table::write(self)
    }

    /// Returns the table of the locks, and how many masters vote.
    #[must_use]
    pub fn locks_text(&self) -> String {
        table::locks_and_votes(self)
    }
}
