//! Two candidates take a real lock in turns: each holds it alone, with a larger token than the one before.
//!
//! The lock is internal to redlock, so no other lock is affected. It leaves only a larger counter.

use std::time::Duration;

use serde::Serialize;
use tokio::time;

use crate::{
    clock,
    lease::{FencingToken, HolderIdentity, LockName, Loss},
    masters::{Acquired, Lease, Masters, Renewal},
};

/// The first candidate passes the lock to the second and gets it back.
const TURNS: [(&str, &str); 3] = [("one", "two"), ("two", "one"), ("one", "two")];
/// Time limit to acquire the lock in one turn.
const PATIENCE: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(100);

/// The result of the turns.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Turns {
    /// The token of each turn, in order.
    pub tokens: Vec<u64>,
    /// The problem that ended the turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

impl Turns {
    /// Reports whether every turn was correct.
    #[must_use]
    pub fn are_good(&self) -> bool {
        self.trouble.is_none() && self.tokens.len() == TURNS.len() && self.tokens.is_sorted_by(|a, b| a < b)
    }

    pub(super) fn text(&self) -> String {
        let tokens: Vec<String> = self.tokens.iter().map(u64::to_string).collect();
        let tokens = tokens.join(", ");
        match &self.trouble {
            Some(trouble) => format!("✗ a real lock was not passed on: {trouble}"),
            None if self.are_good() => {
                format!("✓ a real lock was acquired, passed on and released; tokens {tokens}")
            }
            None => format!("✗ a real lock was passed on with tokens that do not grow: {tokens}"),
        }
    }
}

/// Takes the turns.
pub(super) async fn take(masters: &Masters, lease_duration: Duration) -> Turns {
    let mut turns = Turns::default();
    // Each check has its own lock: two checks do not wait for each other.
    let lock = LockName::internal("doctor", &format!("{:016x}", fastrand::u64(..)));
    let lock = match lock {
        Ok(lock) => lock,
        Err(error) => {
            return Turns {
                trouble: Some(error.to_string()),
                ..turns
            };
        }
    };
    for (holder, other) in TURNS {
        match turn(masters, &lock, (holder, other), lease_duration).await {
            Ok(token) => turns.tokens.push(token.0),
            Err(trouble) => {
                turns.trouble = Some(trouble);
                break;
            }
        }
    }
    turns
}

async fn turn(
    masters: &Masters,
    lock: &LockName,
    (holder, other): (&str, &str),
    lease_duration: Duration,
) -> Result<FencingToken, String> {
    let identity = |name: &str| HolderIdentity::parse(&format!("doctor-{name}")).map_err(|e| e.to_string());
    let (holder, other) = (identity(holder)?, identity(other)?);
    let mut lease = acquire(masters, lock, &holder, lease_duration).await?;
    if let Acquired::Won(_) = masters
        .acquire(lock, &other, lease_duration)
        .await
        .map_err(|e| e.to_string())?
    {
        return Err(format!("{other} acquired the lock while {holder} held it"));
    }
    match lease.renew().await.map_err(|e| e.to_string())? {
        Renewal::Renewed => {}
        other => return Err(format!("{holder} could not renew the lease: {other:?}")),
    }
    let authority = lease.authority_at(clock::now());
    let authority = authority.ok_or_else(|| format!("{holder} lost the lease at once"))?;
    if !lease.release().await.map_err(|e| e.to_string())? {
        return Err(format!("{holder} could not release the lease on a majority"));
    }
    Ok(authority.token)
}

/// Tries until the lock is won: a slow master may still have the remains of the attempt before.
async fn acquire(
    masters: &Masters,
    lock: &LockName,
    holder: &HolderIdentity,
    lease_duration: Duration,
) -> Result<Lease, String> {
    let until = clock::now() + PATIENCE;
    loop {
        match masters
            .acquire(lock, holder, lease_duration)
            .await
            .map_err(|e| e.to_string())?
        {
            Acquired::Won(lease) => return Ok(lease),
            Acquired::Lost(Loss::NoQuorum(_)) => return Err(format!("too few masters answered {holder}")),
            Acquired::Lost(Loss::Refused(_) | Loss::TooLate) if clock::now() >= until => {
                return Err(format!(
                    "{holder} did not acquire the lock within {} s",
                    PATIENCE.as_secs()
                ));
            }
            Acquired::Lost(Loss::Refused(_) | Loss::TooLate) => time::sleep(AGAIN).await,
        }
    }
}
