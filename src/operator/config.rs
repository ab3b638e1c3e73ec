//! Translates a plan into the configuration of the masters and the terms of the elector.

use std::collections::BTreeMap;

use crate::{
    api::{
        leader_lock::{Candidates, LockState},
        plan::{LockPlan, QuorumPlan},
    },
    lease::{ClusterId, LockName, Participation, Terms, timing},
    masters::{Credentials, MasterConfig, MastersConfig, ScriptLoading, Tls},
    transport::Transport,
};

/// Locks of one quorum by their name on the masters.
pub(crate) type Locks = BTreeMap<LockName, LockPlan>;

/// Returns the configuration of a quorum's masters. `reseal` is true for a process that keeps running.
#[must_use]
pub(crate) fn masters_config(
    plan: &QuorumPlan,
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
        command_timeout: plan.command_timeout,
        longest_lease: plan.longest_lease,
        acquire_limit: timing::DEFAULT_ACQUIRE_LIMIT,
        quorum: None,
        reseal,
        scripts: ScriptLoading::default(),
        transport: Transport::tcp(),
    }
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
        fenced: plan.is_fenced(),
    }
}
