//! What one master shows a node of one lock: the reply of the read-only script.

use std::time::Duration;

use super::mark::{FenceMark, MarkRegister};
use crate::{
    BootInstant, ClusterId, DeclaredDelay, FencingToken, LeaseValue, Nonce, Obstacle, Unknown,
    reply::{self, Code, Reply, Value},
};

/// How long a key still lives, as its master shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    For(Duration),
    /// The key has no expiry: it blocks others, and gives no time that can be counted on.
    NoExpiry,
}

impl Left {
    /// The time that can be counted on.
    #[must_use]
    pub const fn time(self) -> Duration {
        match self {
            Self::For(time) => time,
            Self::NoExpiry => Duration::ZERO,
        }
    }
}

/// One master's account of one lock. Only a sealed master gives one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Microseconds since 1970, by the master.
    pub time: u64,
    pub received: BootInstant,
    pub lease: Option<(Obstacle, Left)>,
    /// A cluster, or `nobody`.
    pub reservation: Option<(String, Left)>,
    /// The greater one of `held` and `heldFloor`.
    pub held: u64,
    pub mark: MarkRegister,
    pub delay: DeclaredDelay,
    /// The greatest token whose holder forbade starts, zero if none did.
    pub closed: FencingToken,
}

impl Reading {
    /// How long this master grants the lock to no other cluster, as far as it shows: the lease of the mark, or a
    /// reservation for this cluster. A lease that is not the mark's never counts.
    #[must_use]
    pub fn counted(&self, cluster: &ClusterId, nonce: Option<Nonce>) -> Option<Left> {
        let lefts = [self.lease_left(nonce), self.reservation_left(cluster)];
        lefts.into_iter().flatten().max_by_key(|left| left.time())
    }

    /// The same, as a permit by this mark may rely on: a reservation counts beside the mark alone.
    pub(super) fn permitted(&self, cluster: &ClusterId, mark: &FenceMark) -> Option<Left> {
        let nonce = Some(mark.nonce);
        if self.mark.mark() == Some(mark) {
            self.counted(cluster, nonce)
        } else {
            self.lease_left(nonce)
        }
    }

    fn lease_left(&self, nonce: Option<Nonce>) -> Option<Left> {
        let (obstacle, left) = self.lease.as_ref()?;
        matches!(obstacle, Obstacle::Lease(lease) if Some(lease.nonce) == nonce).then_some(*left)
    }

    fn reservation_left(&self, cluster: &ClusterId) -> Option<Left> {
        let (text, left) = self.reservation.as_ref()?;
        let (_, uid) = text.split_once('/')?;
        (uid == cluster.uid()).then_some(*left)
    }
}

/// One lock's part of the reply: `{'fence', lease, PTTL, reservation, PTTL, held, heldFloor, mark, delay, closed}`.
///
/// # Errors
/// The item is of another shape.
pub fn reading(item: &Value, time: u64, received: BootInstant) -> Result<Reading, Unknown> {
    let Value::Array(parts) = item else {
        return Err(reply::bad("an array", item));
    };
    let [
        kind,
        lease,
        lease_left,
        reserved,
        reserved_left,
        held,
        floor,
        mark,
        delay,
        closed,
    ] = &parts[..]
    else {
        return Err(reply::bad("a reading of ten parts", item));
    };
    if reply::text(kind)? != "fence" {
        return Err(reply::bad("a reading", item));
    }
    Ok(Reading {
        time,
        received,
        lease: key(reply::text(lease)?, lease_left)?.map(|(text, left)| (obstacle(text), left)),
        reservation: key(reply::text(reserved)?, reserved_left)?.map(|(text, left)| (text.to_owned(), left)),
        held: reply::token(held)?.max(reply::token(floor)?),
        mark: MarkRegister::parse(reply::text(mark)?).map_err(|error| reply::unreadable(&error))?,
        delay: reply::declared(reply::text(delay)?).ok_or_else(|| reply::bad("delay", delay))?,
        closed: FencingToken(reply::token(closed)?),
    })
}

/// What one master shows of so many locks, received at `received`.
///
/// # Errors
/// The master is not sealed for this quorum, the call came too late, or the reply is of another shape.
pub fn readings(reply: &Reply, locks: usize, received: BootInstant) -> Result<Vec<Reading>, Unknown> {
    match &reply.code {
        Code::Ok if reply.items.len() == locks => {}
        Code::Ok => return Err(Unknown::Reply("one reading for each lock expected".into())),
        Code::Unsealed => return Err(Unknown::NotSealed),
        Code::Foreign => return Err(Unknown::OtherFingerprint),
        Code::Late => return Err(Unknown::TooLate),
        Code::Other(code) => return Err(Unknown::Reply(format!("code {code:?} not expected"))),
    }
    let items = reply.items.iter();
    items.map(|item| reading(item, reply.time, received)).collect()
}

fn obstacle(text: &str) -> Obstacle {
    text.parse::<LeaseValue>()
        .map_or_else(|_| Obstacle::Foreign(text.to_owned()), Obstacle::Lease)
}

/// A key that is there, and how long. -1 is a key without expiry, -2 one that is just gone.
fn key<'a>(text: &'a str, left: &Value) -> Result<Option<(&'a str, Left)>, Unknown> {
    let left = match left {
        _ if text.is_empty() => return Ok(None),
        Value::Int(-2) => return Ok(None),
        Value::Int(-1) => Left::NoExpiry,
        _ => Left::For(Duration::from_millis(reply::number(left)?)),
    };
    Ok(Some((text, left)))
}
