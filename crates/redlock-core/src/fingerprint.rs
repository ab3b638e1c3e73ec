//! Defines the parameters that all candidates of a quorum must share, stored on every master as readable text.

use std::{fmt, str::FromStr, time::Duration};

use thiserror::Error;

use crate::{QuorumSize, timing, value::PROTOCOL_VERSION};

/// The sorted names of the masters, their number, the longest lease, T_acquire and the protocol version. Immutable:
/// candidates with another fingerprint do not contend (P-22). Urls are not part of it, since clusters may reach one
/// master by different names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    names: Vec<String>,
    longest_lease: Duration,
    acquire_limit: Duration,
}

#[derive(Debug, Error, PartialEq, Eq)]
#[error("fingerprint {0:?} cannot be read by this version")]
pub struct FingerprintError(String);

impl Fingerprint {
    #[must_use]
    pub fn new(mut names: Vec<String>, longest_lease: Duration, acquire_limit: Duration) -> Self {
        names.sort();
        Self {
            names,
            longest_lease,
            acquire_limit,
        }
    }

    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    #[must_use]
    pub fn size(&self) -> Option<QuorumSize> {
        QuorumSize::new(self.names.len())
    }

    #[must_use]
    pub fn longest_lease(&self) -> Duration {
        self.longest_lease
    }

    /// Returns T_acquire: no attempt lasts longer.
    #[must_use]
    pub fn acquire_limit(&self) -> Duration {
        self.acquire_limit
    }

    /// Returns the time for which a probe must have been seen before its master may vote again.
    #[must_use]
    pub fn seal_wait(&self) -> Duration {
        timing::seal_wait(self.longest_lease, self.acquire_limit)
    }

    /// Returns that wait for a quorum of which nothing is known, so its leases may have any length that is allowed.
    #[must_use]
    pub fn longest_seal_wait(&self) -> Duration {
        self.lengthened(Duration::MAX, Duration::MAX).seal_wait()
    }

    /// Returns a fingerprint for which a seal waits long enough for these values, too. What a master shows counts up to
    /// the longest values that are allowed.
    pub(crate) fn lengthened(&self, longest_lease: Duration, acquire_limit: Duration) -> Self {
        let longest_lease = longest_lease.min(timing::LONGEST_LEASE_ALLOWED);
        let acquire_limit = acquire_limit.min(timing::LONGEST_ACQUIRE_LIMIT);
        Self {
            names: self.names.clone(),
            longest_lease: self.longest_lease.max(longest_lease),
            acquire_limit: self.acquire_limit.max(acquire_limit),
        }
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "v={PROTOCOL_VERSION} n={} masters={} longestLeaseMilliseconds={} acquireMilliseconds={}",
            self.names.len(),
            self.names.join(","),
            self.longest_lease.as_millis(),
            self.acquire_limit.as_millis()
        )
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let error = || FingerprintError(text.chars().take(200).collect());
        let field = |name: &str| {
            let mut parts = text.split(' ');
            parts
                .find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
                .ok_or_else(error)
        };
        let number = |name: &str| field(name)?.parse::<u64>().map_err(|_| error());
        if number("v")? != u64::from(PROTOCOL_VERSION) {
            return Err(error());
        }
        let fingerprint = Self::new(
            field("masters")?.split(',').map(str::to_owned).collect(),
            Duration::from_millis(number("longestLeaseMilliseconds")?),
            Duration::from_millis(number("acquireMilliseconds")?),
        );
        (fingerprint.to_string() == text)
            .then_some(fingerprint)
            .ok_or_else(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_sorted_readable_and_reads_back() {
        let names = vec!["m2".to_owned(), "m0".to_owned(), "m1".to_owned()];
        let fingerprint = Fingerprint::new(names, Duration::from_secs(60), Duration::from_secs(2));
        let text = "v=1 n=3 masters=m0,m1,m2 longestLeaseMilliseconds=60000 acquireMilliseconds=2000";
        assert_eq!(fingerprint.to_string(), text);
        assert_eq!(fingerprint.acquire_limit(), Duration::from_secs(2));
        assert_eq!(text.parse(), Ok(fingerprint));
        assert!("v=2 n=3".parse::<Fingerprint>().is_err());
        assert!("".parse::<Fingerprint>().is_err());
    }
}
