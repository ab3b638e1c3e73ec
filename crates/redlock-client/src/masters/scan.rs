//! Which locks there are and what each master shows of them, for people.
//!
//! Asks every master that answers, whether it may vote or not. Refuses to decide who holds what.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;
use redlock_core::{
    Admission, BootInstant, LeaseValue, LockKeys, LockName, Obstacle, Reply, Unknown,
    reply::{self, Value},
    script::{INSPECT, SCAN},
};

use super::{Masters, link::Link};
use crate::clock;

/// Locks in one call: they block the master for a fraction of a millisecond.
const CHUNK: usize = 128;

/// Keys looked at in one step of a walk: some milliseconds of a busy server.
const SCAN_COUNT: u32 = 1_000;

/// The names of the locks that one master knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockNames {
    pub names: BTreeSet<LockName>,
    /// False if there were more keys than could be looked at in time.
    pub complete: bool,
}

/// What one master shows of one lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockAccount {
    /// [`Obstacle::Lease`] or [`Obstacle::Foreign`], and what is left of it; without expiry, `None`.
    pub lease: Option<(Obstacle, Option<Duration>)>,
    /// A cluster id, or `nobody`.
    pub reservation: Option<(String, Option<Duration>)>,
}

impl Masters {
    /// The locks with a lease or a reservation, by each master; the walk through a master takes at most `bound`.
    pub async fn lock_names(&self, bound: Duration) -> Vec<Result<LockNames, Unknown>> {
        let until = clock::now() + bound;
        let walks = self.links().iter().map(|link| async move {
            let pattern = link.keys.pattern("*");
            lock_names(link, &pattern, until).await
        });
        join_all(walks).await
    }

    /// What each master shows of these locks, in their order.
    pub async fn accounts(&self, locks: &[LockName]) -> Vec<Result<Vec<LockAccount>, Unknown>> {
        let keys: Vec<_> = locks.iter().map(|lock| self.lock(lock)).collect();
        join_all(self.links().iter().map(|link| accounts(link, &keys))).await
    }

    /// The round trips of `count` requests to each master, one after the other; `None` for each that failed.
    pub async fn round_trips(&self, count: usize) -> Vec<Vec<Option<Duration>>> {
        join_all(self.links().iter().map(|link| async move {
            let mut took = Vec::new();
            for _ in 0..count {
                let sent = clock::now();
                let answered = link.look().await.is_ok();
                took.push(answered.then(|| clock::now().since(sent)));
            }
            took
        }))
        .await
    }
}

/// The names in the keys that fit a pattern.
pub(super) async fn lock_names(link: &Link, pattern: &str, until: BootInstant) -> Result<LockNames, Unknown> {
    let mut found = LockNames::default();
    let mut cursor = "0".to_owned();
    while clock::now() < until {
        let fill = |command: &mut redis::Cmd, _| {
            command.arg(0).arg(&cursor).arg(pattern).arg(SCAN_COUNT);
        };
        let exchange = link.call(&SCAN, Admission::Connected, link.command_timeout(), fill);
        let reply = exchange.await.reply?;
        let [next, keys @ ..] = &reply.items[..] else {
            return Err(Unknown::Reply("scan without cursor".into()));
        };
        // What is no text, or no name, was written by somebody else: no lock of ours.
        let names = keys
            .iter()
            .filter_map(|key| LockName::any(link.keys.lock_of(reply::text(key).ok()?)?).ok());
        found.names.extend(names);
        reply::text(next)?.clone_into(&mut cursor);
        if cursor == "0" {
            found.complete = true;
            break;
        }
    }
    Ok(found)
}

pub(super) async fn accounts(
    link: &Link,
    locks: &[std::sync::Arc<LockKeys>],
) -> Result<Vec<LockAccount>, Unknown> {
    let mut all = Vec::new();
    for chunk in locks.chunks(CHUNK) {
        let fill = |command: &mut redis::Cmd, _| {
            command.arg(2 * chunk.len());
            for lock in chunk {
                command.arg(&lock.lease).arg(&lock.reserved);
            }
        };
        let exchange = link.call(&INSPECT, Admission::Connected, link.command_timeout(), fill);
        let Reply { items, .. } = exchange.await.reply?;
        if items.len() != chunk.len() {
            return Err(Unknown::Reply(format!(
                "{} locks asked for, {} answered",
                chunk.len(),
                items.len()
            )));
        }
        for item in &items {
            all.push(account(item)?);
        }
    }
    Ok(all)
}

fn account(item: &Value) -> Result<LockAccount, Unknown> {
    let bad = || Unknown::Reply("the reply on a lock cannot be read".into());
    let Value::Array(parts) = item else {
        return Err(bad());
    };
    let [lease, lease_left, reserved, reserved_left] = &parts[..] else {
        return Err(bad());
    };
    let (lease, reserved) = (reply::text(lease)?, reply::text(reserved)?);
    let shown = |text: &str, most| text.chars().take(most).collect::<String>();
    let obstacle = match lease.parse::<LeaseValue>() {
        Ok(value) => Obstacle::Lease(value),
        Err(_) => Obstacle::Foreign(shown(lease, 600)),
    };
    Ok(LockAccount {
        lease: (!lease.is_empty()).then_some((obstacle, left(lease_left)?)),
        reservation: (!reserved.is_empty()).then_some((shown(reserved, 200), left(reserved_left)?)),
    })
}

fn left(value: &Value) -> Result<Option<Duration>, Unknown> {
    match value {
        Value::Int(-1) => Ok(None),
        Value::Int(-2) => Ok(Some(Duration::ZERO)),
        _ => Ok(Some(Duration::from_millis(reply::number(value)?))),
    }
}
