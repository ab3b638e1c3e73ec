//! How long things take: lease duration, renew deadline, retry period, drift.
