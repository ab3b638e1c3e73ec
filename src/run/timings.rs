//! The default lease duration, and the default time that the command may take to stop.

use std::time::Duration;

use super::Options;
use crate::lease::{
    Timings,
    timing::{DEFAULT_LEASE, GivenTimings, MIN_RENEW_DEADLINE, TimingError, drift},
};

/// The grace of containers. A longer grace would only lengthen the lease.
const LONGEST_GRACE: Duration = Duration::from_secs(10);

/// Returns the timings. The default lease is 15 s, or as long as the grace needs. The default grace is a
/// third of the lease, but at most 10 s and at most the part that the shortest renew deadline leaves.
pub(super) fn of(options: &Options, longest: Duration) -> Result<Timings, TimingError> {
    let (lease, stop) = match (options.lease_duration, options.stop_grace) {
        (lease, Some(stop)) => (lease, stop),
        (lease, None) => {
            let lease = lease.unwrap_or(DEFAULT_LEASE.min(longest));
            (Some(lease), grace(lease))
        }
    };
    let given = GivenTimings {
        lease_duration: lease,
        ..GivenTimings::default()
    };
    Timings::resolve(given, stop, None, longest)
}

fn grace(lease: Duration) -> Duration {
    let slack = (lease / 10).min(Duration::from_secs(1));
    // The renew deadline is three quarters of the time that the stop leaves. One of the 4 ms is for each
    // rounding.
    let room = MIN_RENEW_DEADLINE * 4 / 3 + Duration::from_millis(4);
    let fits = lease
        .saturating_sub(drift(lease))
        .saturating_sub(slack)
        .saturating_sub(room);
    LONGEST_GRACE.min(lease / 3).min(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::timing::MIN_LEASE;

    #[test]
    fn a_derived_grace_fits_every_lease() {
        let longest = Duration::from_secs(86_400);
        for milliseconds in (2_000..20_000).chain([30_000, 60_000, 86_400_000]) {
            let lease = Duration::from_millis(milliseconds);
            let given = GivenTimings {
                lease_duration: Some(lease),
                ..GivenTimings::default()
            };
            let timings = Timings::resolve(given, grace(lease), None, longest).unwrap();
            assert!(
                timings.stop >= Duration::from_millis(400),
                "{lease:?}: {timings:?}"
            );
        }
        assert_eq!(grace(DEFAULT_LEASE), Duration::from_secs(5));
        assert!(grace(MIN_LEASE / 2).is_zero());
    }
}
