//! Lists the locks and the state that each master shows of them, for display.
//!
//! Asks every master that answers, whether it may vote or not. Does not decide which candidate holds a lock.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;
use redlock_core::{
    Admission, BootInstant, LeaseValue, LockKeys, LockName, Obstacle, Reply, Unknown,
    reply::{self, Value},
    script::{INSPECT, SCAN},
};

use super::{Masters, link::Link};
use crate::clock;

/// Number of locks in one call, which blocks the master for a fraction of a millisecond.
const CHUNK: usize = 128;

/// Number of keys read in one step of a walk, which takes some milliseconds of a busy server.
const SCAN_COUNT: u32 = 1_000;

/// Number of names after which a walk ends: a master could return keys without an end. Ten times the locks that one
/// replica is documented to carry.
const MOST_NAMES: usize = 100_000;

/// The names of the locks that one master knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockNames {
    pub names: BTreeSet<LockName>,
    /// Whether the walk read all keys, in time and within the bound of names.
    pub complete: bool,
}

/// The state of one lock on one master.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockAccount {
    /// [`Obstacle::Lease`] or [`Obstacle::Foreign`], and its remaining time; `None` without expiry.
    pub lease: Option<(Obstacle, Option<Duration>)>,
    /// A cluster id, or `nobody`.
    pub reservation: Option<(String, Option<Duration>)>,
}

impl Masters {
    /// Returns the locks with a lease or a reservation, for each master; the walk through a master takes at most
    /// `bound`.
    pub async fn lock_names(&self, bound: Duration) -> Vec<Result<LockNames, Unknown>> {
        let until = clock::now() + bound;
        let walks = self.links().iter().map(|link| async move {
            let pattern = link.keys.pattern("*");
            lock_names(link, &pattern, until).await
        });
        join_all(walks).await
    }

    /// Returns the state of these locks on each master, in their order.
    pub async fn accounts(&self, locks: &[LockName]) -> Vec<Result<Vec<LockAccount>, Unknown>> {
        let keys: Vec<_> = locks.iter().map(|lock| self.lock(lock)).collect();
        join_all(self.links().iter().map(|link| accounts(link, &keys))).await
    }

    /// Measures `count` requests to each master, one after the other; `None` stands for a failed request.
    pub async fn round_trips(&self, count: usize) -> Vec<Vec<Option<Duration>>> {
        join_all(self.links().iter().map(|link| async move {
            let mut took = Vec::new();
            for _ in 0..count {
                let sent = clock::now();
                let answered = link.read_facts().await.is_ok();
                took.push(answered.then(|| clock::now().since(sent)));
            }
            took
        }))
        .await
    }
}

/// Returns the names in the keys that match a pattern.
pub(super) async fn lock_names(link: &Link, pattern: &str, until: BootInstant) -> Result<LockNames, Unknown> {
    let mut found = LockNames::default();
    let mut cursor = "0".to_owned();
    while clock::now() < until && found.names.len() < MOST_NAMES {
        let fill = |command: &mut redis::Cmd, _| {
            command.arg(0).arg(&cursor).arg(pattern).arg(SCAN_COUNT);
        };
        let exchange = link.call(&SCAN, Admission::Connected, link.command_timeout(), fill);
        let reply = exchange.await.reply?;
        let [next, keys @ ..] = &reply.items[..] else {
            return Err(Unknown::Reply("the scan returned no cursor".into()));
        };
        // A key that is not text, or not the name of a lock, is omitted.
        let names = keys
            .iter()
            .filter_map(|key| LockName::any(link.keys.lock_of(reply::text(key).ok()?)?).ok());
        let left = MOST_NAMES - found.names.len();
        found.names.extend(names.take(left));
        reply::text(next)?.clone_into(&mut cursor);
        if cursor == "0" && found.names.len() < MOST_NAMES {
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
                "{} locks requested, {} returned",
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
