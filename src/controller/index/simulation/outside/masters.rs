//! Simulates the masters: the actual holder of each lock, and this replica's view of it.

use super::{Focus, LEASE, OpenQuorum, Outside, Owner, SIBLING};
use crate::{
    api::plan::QuorumPlan,
    controller::object::ObjectKey,
    controller::{
        index::{Input, LockSnapshot, Unready, Views},
        secrets::Found,
    },
    lease::{Authority, BootInstant, EndReason, FencingToken, Holder, LockName, Nonce},
    masters::{MasterStatus, QuorumId, Unknown},
    operator::metrics_watcher::{Change, EndedLease},
};

impl Outside {
    /// Renews or ends the leases of this replica and of the others.
    pub(super) fn renew(&mut self) -> Vec<Input> {
        let mut inputs = Vec::new();
        let now = self.now;
        for (name, quorum) in &mut self.quorums {
            let sees = quorum.voting >= 2;
            for (lock, stand) in &mut quorum.locks {
                let Some((owner, token, until)) = stand.owner else {
                    continue;
                };
                let renews = match owner {
                    Owner::Me => sees,
                    Owner::Sibling => self.sibling_sees,
                    Owner::Elsewhere => true,
                };
                if renews && until > now {
                    stand.owner = Some((owner, token, now + LEASE));
                } else if until <= now {
                    stand.owner = None;
                    let ended = (owner == Owner::Me).then_some(EndReason::QuorumLost);
                    inputs.push(change(name, lock, ended));
                }
            }
        }
        self.update_views();
        inputs
    }

    /// Updates this replica's view of the holders.
    pub(super) fn update_views(&mut self) {
        let cluster = self.cluster.clone();
        for quorum in self.quorums.values_mut().filter(|quorum| quorum.voting >= 2) {
            for stand in quorum.locks.values_mut() {
                stand.seen = stand.owner.and_then(|(owner, token, ends)| {
                    let (cluster, identity) = match owner {
                        Owner::Me => return None,
                        Owner::Sibling => (cluster.clone(), SIBLING.to_owned()),
                        Owner::Elsewhere => ("us-1/other".parse().unwrap(), "other".to_owned()),
                    };
                    Some(Holder {
                        cluster,
                        identity,
                        nonce: Nonce(token.into()),
                        token: FencingToken(token),
                        ends,
                    })
                });
                if stand.seen.is_some() {
                    stand.last.clone_from(&stand.seen);
                }
            }
        }
    }

    /// Gives free locks a holder, and occasionally releases a held one.
    pub(super) fn elect(&mut self) -> Vec<Input> {
        let mut inputs = Vec::new();
        let now = self.now;
        let coordinates = self.server.coordinator_is(self.identity.as_str());
        let clashes = if self.focus == Focus::Names { 2 } else { 20 };
        for (name, quorum) in &mut self.quorums {
            let sees = quorum.voting >= 2;
            for (lock, stand) in &mut quorum.locks {
                let internal = lock.is_internal();
                // A sibling leaves the seat of the reporter to the coordinator.
                let leaves = internal && coordinates;
                if leaves && matches!(stand.owner, Some((Owner::Sibling, ..))) {
                    stand.owner = None;
                    inputs.push(change(name, lock, None));
                }
                if let Some((owner, ..)) = stand.owner {
                    let gives_back = !self.calm && self.random.u8(..8) == 0;
                    let withdrawn = owner == Owner::Me && stand.contends != Some(true);
                    if (gives_back && (owner != Owner::Me || sees)) || withdrawn {
                        stand.owner = None;
                        let ended = (owner == Owner::Me).then_some(EndReason::Released);
                        inputs.push(change(name, lock, ended));
                    }
                    continue;
                }
                let mine = sees && stand.contends == Some(true) && !stand.abstains;
                let owner = match self.random.u8(..4) {
                    0 | 1 if mine => Owner::Me,
                    2 if self.sibling_sees && !leaves => Owner::Sibling,
                    // This cluster usually owns its name.
                    3 if !internal || (!self.calm && self.random.u8(..clashes) == 0) => Owner::Elsewhere,
                    _ if mine => Owner::Me,
                    _ => continue,
                };
                stand.token += 1;
                stand.owner = Some((owner, stand.token, now + LEASE));
                inputs.push(change(name, lock, None));
            }
        }
        self.update_views();
        inputs
    }

    /// Performs the hand-overs that were ordered since the last step.
    pub(super) fn hand_over(&mut self) {
        let until = self.now + LEASE;
        for (quorum, lock) in std::mem::take(&mut self.hand_overs) {
            let quorum = self.quorums.get_mut(&quorum);
            if let Some(stand) = quorum.and_then(|quorum| quorum.locks.get_mut(&lock)) {
                stand.token += 1;
                stand.owner = Some((Owner::Elsewhere, stand.token, until));
            }
        }
    }

    pub(super) fn put(&mut self, quorum: &str, lock: LockName, contends: bool, abstains: bool) {
        if let Some(quorum) = self.quorums.get_mut(quorum) {
            let stand = quorum.locks.entry(lock).or_default();
            (stand.contends, stand.abstains) = (Some(contends), abstains);
        }
    }
}

fn change(quorum: &str, lock: &LockName, ended: Option<EndReason>) -> Input {
    Input::Lease(Change {
        quorum: quorum.into(),
        lock: lock.clone(),
        ended: ended.map(|reason| EndedLease { reason, token: None }),
    })
}

impl Views for Outside {
    fn lock(&self, quorum: &str, lock: &LockName, now: BootInstant) -> Option<LockSnapshot> {
        let stand = self.quorums.get(quorum)?.locks.get(lock)?;
        stand.contends?;
        let own = stand
            .owner
            .filter(|(owner, _, until)| *owner == Owner::Me && *until > now);
        Some(LockSnapshot {
            authority: own.map(|(_, token, valid_until)| Authority {
                token: FencingToken(token),
                valid_until,
            }),
            holder: stand
                .seen
                .clone()
                .filter(|holder| holder.ends > now && own.is_none()),
            last_token: Some(FencingToken(stand.token)).filter(|token| token.0 > 0),
            acquired: own.map(|_| self.unix),
            last_holder: stand.last.clone(),
            ..LockSnapshot::default()
        })
    }

    fn masters(&self, quorum: &str) -> Option<Vec<MasterStatus>> {
        let OpenQuorum { voting, masters, .. } = self.quorums.get(quorum)?;
        let voting = *voting;
        let master = |(index, (name, url)): (usize, &(String, String))| MasterStatus {
            name: name.clone(),
            url: url.clone(),
            connected: index < voting,
            no_vote: (index >= voting).then_some(Unknown::Silent),
            ..MasterStatus::default()
        };
        Some(masters.iter().enumerate().map(master).collect())
    }

    fn has_majority(&self, quorum: &str) -> bool {
        self.quorums.get(quorum).is_some_and(|quorum| quorum.voting >= 2)
    }

    fn quorum_id(&self, _: &str) -> Option<QuorumId> {
        None
    }

    fn target_task_ended(&self, key: &ObjectKey) -> bool {
        self.tasks.get(key).is_some_and(|task| task.broken)
    }

    fn is_api_server_lost(&self) -> bool {
        self.cut_off
    }

    fn unready(&self) -> Option<Unready> {
        None
    }

    fn access(&self, _: &QuorumPlan) -> Found {
        Found::Here(Box::default())
    }
}
