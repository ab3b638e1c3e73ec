//! Tests each rule of node fencing, and random rounds against a monitor that knows only the invariants.

mod clock;
mod lease;
mod mark;
mod observation;
mod presence;
mod random;
mod reading;
mod record;
mod release;
mod restored;
mod succession;
mod watch;

use std::time::Duration;

use super::*;
use crate::{
    BootInstant, ClusterId, DeclaredDelay, FencingToken, HolderIdentity, LeaseValue, Nonce, Obstacle,
    QuorumSize,
};

/// Boot time in the tests is far from 0, as it is in production.
const BOOT: u64 = 1_000_000;

/// Returns the time at this many milliseconds after the beginning of the test.
fn at(ms: u64) -> BootInstant {
    BootInstant::from_nanos((BOOT + ms) * 1_000_000)
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn here() -> ClusterId {
    ClusterId::new("here", "uid-here").unwrap()
}

fn there() -> ClusterId {
    ClusterId::new("there", "uid-there").unwrap()
}

fn three() -> QuorumSize {
    QuorumSize::new(3).unwrap()
}

/// Returns the mark of a lease. Its nonce has the same number as its token.
fn mark(token: u64, first: u64, cluster: &ClusterId) -> MarkRegister {
    let mark = FenceMark::new(
        FencingToken(token),
        FencingToken(first),
        cluster,
        Nonce(token.into()),
    );
    MarkRegister::Marked(mark.unwrap())
}

fn free() -> Reading {
    Reading {
        time: 0,
        received: at(1),
        lease: None,
        reservation: None,
        held: 0,
        mark: MarkRegister::Never,
        delay: DeclaredDelay::default(),
        closed: FencingToken(0),
    }
}

fn lease(nonce: u64, cluster: &ClusterId, left: u64) -> Option<(Obstacle, Left)> {
    let value = LeaseValue {
        cluster: cluster.clone(),
        identity: HolderIdentity::parse("holder").unwrap(),
        nonce: Nonce(nonce.into()),
        grant: nonce,
    };
    Some((Obstacle::Lease(value), Left::For(ms(left))))
}

/// Returns a reading of the lock that the own cluster holds under token 7, since lease 5, for `left` ms.
fn held(left: u64) -> Reading {
    Reading {
        lease: lease(7, &here(), left),
        held: 7,
        mark: mark(7, 5, &here()),
        ..free()
    }
}

fn observation(sent: BootInstant, readings: &[Option<Reading>]) -> Observation {
    let mut observation = Observation::new(QuorumSize::new(readings.len()).unwrap(), sent);
    for (master, reading) in readings.iter().enumerate() {
        if let Some(reading) = reading {
            observation.record(master, reading.clone());
        }
    }
    observation
}

fn finding(readings: &[Option<Reading>]) -> Finding {
    observation(at(0), readings).finding(&here())
}

/// Returns the permit of a round that began at `sent`.
fn permit(sent: u64, until: u64) -> Permit {
    Permit {
        until: at(until),
        sent: at(sent),
        first: FencingToken(5),
        token: FencingToken(7),
        closed: false,
    }
}

fn foreign(token: u64) -> Finding {
    Finding::Foreign {
        token: FencingToken(token),
        cluster_uid: "uid-there".into(),
    }
}
