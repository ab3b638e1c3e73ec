//! The state of one lock, as one master shows it to a node: the reply of the read-only script.

use std::time::Duration;

use super::mark::{FenceMark, MarkRegister};
use crate::{
    BootInstant, ClusterId, DeclaredDelay, FencingToken, LeaseValue, Nonce, Obstacle, Unknown,
    reply::{self, Code, Reply, Value},
};

/// The remaining lifetime of a key, as its master shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    For(Duration),
    /// The key has no expiry: it blocks other candidates, and gives no time to rely on.
    NoExpiry,
}

impl Left {
    /// Returns the time on which a caller may rely.
    #[must_use]
    pub const fn time(self) -> Duration {
        match self {
            Self::For(time) => time,
            Self::NoExpiry => Duration::ZERO,
        }
    }
}

/// The state of one lock on one master. Only a sealed master gives a reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Microseconds since 1970, by the master's clock.
    pub time: u64,
    pub received: BootInstant,
    pub lease: Option<(Obstacle, Left)>,
    /// A cluster, or `nobody`.
    pub reservation: Option<(String, Left)>,
    /// The greater of `held` and `heldFloor`.
    pub held: u64,
    pub mark: MarkRegister,
    pub delay: DeclaredDelay,
    /// The greatest token whose holder forbade starts; zero if no holder did.
    pub closed: FencingToken,
}

impl Reading {
    /// Returns the time for which this master shows that it grants the lock to no other cluster, by the lease
    /// of the mark or a reservation for this cluster. A lease other than that of the mark never counts (P-100).
    #[must_use]
    pub fn counted(&self, cluster: &ClusterId, nonce: Option<Nonce>) -> Option<Left> {
        let lefts = [self.lease_left(nonce), self.reservation_left(cluster)];
        lefts.into_iter().flatten().max_by_key(|left| left.time())
    }

    /// Returns the part of this time that a permit by this mark may rely on. A reservation counts only where
    /// the master shows this mark.
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
/// No key lives for longer than `longest`: a permit relies on no more, whatever the master shows.
///
/// # Errors
/// Returns an error if the item has another shape.
pub fn reading(
    item: &Value,
    (time, longest): (u64, Duration),
    received: BootInstant,
) -> Result<Reading, Unknown> {
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
        lease: key(reply::text(lease)?, lease_left, longest)?.map(|(text, left)| (obstacle(text), left)),
        reservation: key(reply::text(reserved)?, reserved_left, longest)?
            .map(|(text, left)| (text.to_owned(), left)),
        held: reply::token(held)?.max(reply::token(floor)?),
        mark: MarkRegister::parse(reply::text(mark)?).map_err(|error| reply::unreadable(&error))?,
        delay: reply::declared(reply::text(delay)?).ok_or_else(|| reply::bad("delay", delay))?,
        closed: FencingToken(reply::token(closed)?),
    })
}

/// Returns the readings of `locks` locks on one master, received at `received`.
///
/// # Errors
/// Returns an error if the master is not sealed for this quorum, the call came too late, or the reply has
/// another shape (P-114).
pub fn readings(
    reply: &Reply,
    (locks, longest): (usize, Duration),
    received: BootInstant,
) -> Result<Vec<Reading>, Unknown> {
    match &reply.code {
        Code::Ok if reply.items.len() == locks => {}
        Code::Ok => return Err(Unknown::Reply("one reading for each lock expected".into())),
        Code::Unsealed => return Err(Unknown::NotSealed),
        Code::Foreign => return Err(Unknown::OtherFingerprint),
        Code::Late => return Err(Unknown::TooLate),
        Code::Other(code) => return Err(Unknown::Reply(format!("code {code:?} not expected"))),
    }
    let items = reply.items.iter();
    items
        .map(|item| reading(item, (reply.time, longest), received))
        .collect()
}

fn obstacle(text: &str) -> Obstacle {
    text.parse::<LeaseValue>()
        .map_or_else(|_| Obstacle::Foreign(text.to_owned()), Obstacle::Lease)
}

/// Returns a key that exists, and its remaining lifetime. -1 is a key without expiry, -2 one that is just
/// gone.
fn key<'a>(text: &'a str, left: &Value, longest: Duration) -> Result<Option<(&'a str, Left)>, Unknown> {
    let left = match left {
        _ if text.is_empty() => return Ok(None),
        Value::Int(-2) => return Ok(None),
        Value::Int(-1) => Left::NoExpiry,
        _ => Left::For(Duration::from_millis(reply::number(left)?).min(longest)),
    };
    Ok(Some((text, left)))
}
