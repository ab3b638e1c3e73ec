//! Reads the log lines of the replicas about their leases.

use redlock::clock;
use redlock::lease::BootInstant;
use serde_json::Value;

/// One event of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub at: BootInstant,
    pub replica: String,
    pub token: u64,
    /// `acquired`, `given up` or `lost`.
    pub kind: String,
}

impl Lease {
    pub fn is_acquired(&self) -> bool {
        self.kind == "acquired"
    }
}

/// Returns the leases of the lock in the log of a replica. The wall clock of its lines is converted to the boot-time
/// clock.
pub fn leases(replica: &str, lines: &[String]) -> Vec<Lease> {
    let (now, unix) = (clock::now(), clock::unix_time());
    let parse = |line: &String| {
        let line: Value = serde_json::from_str(line).ok()?;
        let kind = line["message"].as_str()?.strip_prefix("lease ")?;
        if !matches!(kind, "acquired" | "given up" | "lost") {
            return None;
        }
        // The lock by which the replicas elect the reporter is not a lock of a user.
        if line["lock"].as_str()?.starts_with('_') {
            return None;
        }
        let at: jiff::Timestamp = line["timestamp"].as_str()?.parse().ok()?;
        let ago = unix
            .as_nanos()
            .saturating_sub(u128::try_from(at.as_nanosecond()).ok()?);
        Some(Lease {
            at: now - std::time::Duration::from_nanos(u64::try_from(ago).ok()?),
            replica: replica.to_owned(),
            token: line["token"].as_u64()?,
            kind: kind.to_owned(),
        })
    };
    lines.iter().filter_map(parse).collect()
}
