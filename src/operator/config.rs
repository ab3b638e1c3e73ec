//! From a plan to what the masters and the elector are told.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    api::{
        leader_lock::{Candidates, LockState},
        plan::{LockPlan, QuorumPlan},
    },
    lease::{ClusterId, LockName, Participation, Terms, timing},
    masters::{Credentials, MasterConfig, MastersConfig, Tls},
};

/// Locks of one quorum by their name on the masters.
pub(crate) type Locks = BTreeMap<LockName, LockPlan>;

/// Unless told: a healthy master answers in a millisecond, one across a continent in 200.
pub const COMMAND_TIMEOUT: Duration = Duration::from_millis(500);

/// The masters of a quorum. `reseal` for a process that stays.
#[must_use]
pub fn masters_config(
    plan: &QuorumPlan,
    command_timeout: Duration,
    (credentials, tls): (Credentials, Tls),
    cluster: ClusterId,
    reseal: bool,
) -> MastersConfig {
    let masters = plan.masters.iter().map(|master| MasterConfig {
        name: master.name.clone(),
        url: master.url.clone(),
    });
    MastersConfig {
        masters: masters.collect(),
        key_prefix: plan.key_prefix.clone(),
        credentials,
        tls,
        cluster,
        command_timeout,
        longest_lease: plan.longest_lease,
        acquire_limit: timing::DEFAULT_ACQUIRE_LIMIT,
        reseal,
    }
}

/// What the quorum says, or else as long as its most impatient lock allows: a command that outlasts a retry period
/// holds up the retry.
pub(crate) fn command_timeout<'a>(plan: &QuorumPlan, locks: impl Iterator<Item = &'a LockPlan>) -> Duration {
    plan.command_timeout.unwrap_or_else(|| {
        locks
            .map(|lock| lock.timings.retry_period)
            .fold(COMMAND_TIMEOUT, Duration::min)
    })
}

pub(crate) fn terms(plan: &LockPlan, cluster: &ClusterId) -> Terms {
    let participation = match (plan.candidates, plan.state) {
        (Candidates::Agents, _) | (_, LockState::SteppedDown) => Participation::Observe,
        (Candidates::Operator, LockState::Frozen) => Participation::SucceedSibling,
        (Candidates::Operator, LockState::Enabled) => Participation::Contend,
    };
    Terms {
        cluster: cluster.clone(),
        timings: plan.timings,
        participation,
        ordered_delay: plan.preference_wait(cluster.name()),
        guards: plan.guards(),
        siblings_first: plan.guards(),
    }
}
