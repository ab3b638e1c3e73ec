//! The rules between the timings of a `LeaderLock`, as in [`crate::lease::timing`], in milliseconds.
//!
//! The stop time of a target that does not give it counts as zero here, since it is in a pod template. A longer stop
//! time leaves less of a given lease, so [`crate::api::validate`] refuses everything that is refused here. If the lease
//! would be derived from that stop time, these rules do not apply. CEL has no variables: `[VALUE].all(name, …)` defines
//! one.

use kube::core::Rule;

use super::rule;

/// The longest given stop time; none of a fenced lock, whose stop need not fit into the lease.
const STOP: &str = "([0] + (has(self.targets) && self.fencing != 'Node' ? self.targets.filter(t, has(t.stopSeconds)).map(t, t.stopSeconds * 1000) \
                    : [])).max()";

/// Whether the lease is given, or every stop time that it is derived from.
const LEASE_KNOWN: &str = "(has(self.leaseDurationSeconds) || !has(self.targets) || self.fencing == 'Node' || self.targets.all(t, \
                           has(t.stopSeconds) || !(t.action in ['Scale', 'Suspend', 'Lease'])))";

const LEASE: &str =
    "(has(self.leaseDurationSeconds) ? self.leaseDurationSeconds * 1000 : (stop == 0 ? 15000 : DERIVED))";

/// The lease of targets with this stop time, if no timing is given.
const DERIVED: &str =
    "(([stop + 25000, stop + 15000 + (stop + 15000 + 98) / 99].max() + 4999) / 5000 * 5000)";

/// The part of a lease that remains for the renew deadline: without 1 % for drift, the stop time, and slack.
const ROOM: &str = "(lease - lease / 100 - stop - [1000, lease / 10].min())";

/// Whether the remaining part is enough.
const FITS: &str =
    "(has(self.renewDeadlineSeconds) ? room > self.renewDeadlineSeconds * 1000 : room * 3 / 4 >= 1000)";

const DEADLINE: &str =
    "(has(self.renewDeadlineSeconds) ? self.renewDeadlineSeconds * 1000 : room - (room + 3) / 4)";

/// Returns `condition` on `stop`, `lease` and `room`.
fn between(condition: &str) -> String {
    let lease = LEASE.replace("DERIVED", DERIVED);
    format!("!{LEASE_KNOWN} || [{STOP}].all(stop, [{lease}].all(lease, [{ROOM}].all(room, {condition})))")
}

/// Requires that a holder that gives up at its renew deadline has stopped before another candidate may acquire the
/// lock.
pub(in crate::api) fn stops_in_time() -> Rule {
    rule(
        "leaseDurationSeconds",
        between(&format!("stop == 0 || {FITS}")),
        "does not leave the stopSeconds of the targets to stop the work before the lease ends: lengthen the lease or \
         remove it, shorten the renew deadline, or stop faster",
    )
}

/// Requires the same where there is nothing to stop.
pub(in crate::api) fn gives_up_in_time() -> Rule {
    rule(
        "renewDeadlineSeconds",
        between(&format!("stop != 0 || {FITS}")),
        "does not end before the lease, less 1 % for drift and a tenth (at most 1 s) of slack: shorten it or lengthen the \
         lease",
    )
}

/// Requires that a holder can miss a round and retry.
pub(in crate::api) fn retries_in_time() -> Rule {
    rule(
        "retryPeriodSeconds",
        format!(
            "!has(self.retryPeriodSeconds) || {}",
            between(&format!("{DEADLINE} > self.retryPeriodSeconds * 2000"))
        ),
        "does not fit twice into the renew deadline: shorten it or lengthen the lease",
    )
}
