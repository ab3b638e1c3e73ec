//! The order to the guardian, in memory that the guardian shares with the wrapper.
//!
//! An anonymous file that both have open, written and read in one call each: mapping it would need `unsafe`.

use std::{
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt},
};

use nix::{
    sys::memfd::{MFdFlags, memfd_create},
    unistd::Pid,
};

use crate::lease::BootInstant;

const LENGTH: usize = 24;
/// Number of attempts to read. A read during a write returns parts of both records; the next read does not.
const READS: usize = 100;

/// The process group must not outlive `kill_at`, nor the wrapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) group: Pid,
    pub(super) kill_at: BootInstant,
}

#[derive(Debug)]
pub(super) struct Record(File);

impl Record {
    /// Creates a record without an order.
    pub(super) fn new() -> io::Result<Self> {
        let file = memfd_create(c"redlock-guardian", MFdFlags::MFD_CLOEXEC)?;
        let record = Self(file.into());
        record.write(None)?;
        Ok(record)
    }

    /// Returns the record that another process created.
    pub(super) fn of(file: OwnedFd) -> Self {
        Self(file.into())
    }

    /// Returns the record for another process to inherit.
    pub(super) fn share(&self) -> io::Result<OwnedFd> {
        Ok(self.0.try_clone()?.into())
    }

    pub(super) fn write(&self, order: Option<Order>) -> io::Result<()> {
        self.0.write_all_at(&encode(order), 0)
    }

    /// Returns an error if the file cannot be read, or contains no valid record.
    pub(super) fn read(&self) -> io::Result<Option<Order>> {
        let mut bytes = [0; LENGTH];
        for _ in 0..READS {
            self.0.read_exact_at(&mut bytes, 0)?;
            if let Some(order) = decode(bytes) {
                return Ok(order);
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}

fn check(kill_at: u64, group: u64) -> u64 {
    !(kill_at ^ group.rotate_left(32))
}

fn encode(order: Option<Order>) -> [u8; LENGTH] {
    let (kill_at, group) = order.map_or((0, 0), |order| {
        let group = u64::try_from(order.group.as_raw()).unwrap_or(0);
        (order.kill_at.as_nanos(), group)
    });
    let mut bytes = [0; LENGTH];
    for (part, number) in bytes
        .chunks_exact_mut(8)
        .zip([kill_at, group, check(kill_at, group)])
    {
        part.copy_from_slice(&number.to_ne_bytes());
    }
    bytes
}

/// Returns `None` while a write is incomplete.
fn decode(bytes: [u8; LENGTH]) -> Option<Option<Order>> {
    let number = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let (kill_at, group) = (number(0)?, number(8)?);
    if number(16)? != check(kill_at, group) {
        return None;
    }
    let group = i32::try_from(group).ok()?;
    Some((group > 0).then(|| Order {
        group: Pid::from_raw(group),
        kill_at: BootInstant::from_nanos(kill_at),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(group: i32, kill_at: u64) -> Option<Order> {
        Some(Order {
            group: Pid::from_raw(group),
            kill_at: BootInstant::from_nanos(kill_at),
        })
    }

    #[test]
    fn a_written_value_is_read_by_every_clone() {
        let record = Record::new().unwrap();
        let other = Record::of(record.share().unwrap());
        assert_eq!(other.read().unwrap(), None);
        for order in [order(4_711, 99), order(i32::MAX, u64::MAX), None] {
            record.write(order).unwrap();
            assert_eq!(other.read().unwrap(), order);
        }
    }

    #[test]
    fn half_a_write_is_no_order() {
        let (old, new) = (encode(order(7, 1_000)), encode(order(7, 2_000)));
        for torn in 1..LENGTH {
            let mut bytes = new;
            bytes[torn..].copy_from_slice(&old[torn..]);
            let seen = decode(bytes);
            let whole = bytes == old || bytes == new;
            assert_eq!(seen.is_some(), whole, "{torn}");
        }
        assert_eq!(decode([0; LENGTH]), None, "memory that nobody wrote");
    }
}
