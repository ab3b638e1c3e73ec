//! One lock: what each master shows, and what a majority of them shows.

use std::time::Duration;

use serde::Serialize;

use crate::{
    lease::{BootInstant, LockName, Nonce, Obstacle, QuorumSize, Sighting, View},
    masters::{LockAccount, Unknown},
};

/// One master's own account of a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MasterAccount {
    pub master: String,
    pub holder: Option<String>,
    pub cluster: Option<String>,
    /// The grant number of this master; the token is the greatest of a majority.
    pub grant: Option<u64>,
    /// The text of a lease that this version cannot read.
    pub unreadable: Option<String>,
    pub remaining_milliseconds: Option<u64>,
    /// The cluster that has the reservation, or `nobody`.
    pub reserved: Option<String>,
    pub reserved_milliseconds: Option<u64>,
    pub error: Option<String>,
}

/// The state that a majority shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum LockState {
    Held,
    Reserved,
    Free,
    /// No majority shows the same: candidates clash, or old leases remain.
    Split,
    /// Too few masters answer.
    Unknown,
}

impl LockState {
    pub(in crate::inspect) const fn word(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Reserved => "reserved",
            Self::Free => "free",
            Self::Split => "split",
            Self::Unknown => "unknown",
        }
    }
}

/// One lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LockStatus {
    pub lock_name: String,
    pub state: LockState,
    pub holder_identity: Option<String>,
    pub holder_cluster: Option<String>,
    pub fencing_token: Option<u64>,
    pub remaining_milliseconds: Option<u64>,
    pub reserved: Option<String>,
    pub reserved_milliseconds: Option<u64>,
    /// Distinguishes one lease from the next lease of the same holder: the token that is shown may be greater
    /// than the holder's own while not every master shows the lease.
    #[serde(skip)]
    pub(in crate::inspect) nonce: Option<Nonce>,
    /// Number of masters that show exactly this.
    pub agreeing: usize,
    pub accounts: Vec<MasterAccount>,
}

fn milliseconds(left: Duration) -> u64 {
    u64::try_from(left.as_millis()).unwrap_or(u64::MAX)
}

impl MasterAccount {
    fn of(master: String, account: &Result<LockAccount, Unknown>) -> Self {
        let mut own = Self {
            master,
            ..Self::default()
        };
        match account {
            Err(unknown) => own.error = Some(unknown.to_string()),
            Ok(account) => {
                if let Some((obstacle, left)) = &account.lease {
                    own.remaining_milliseconds = left.map(milliseconds);
                    match obstacle {
                        Obstacle::Lease(lease) => {
                            own.holder = Some(lease.identity.to_string());
                            own.cluster = Some(lease.cluster.to_string());
                            own.grant = Some(lease.grant);
                        }
                        Obstacle::Foreign(text) | Obstacle::Reserved(text) => {
                            own.unreadable = Some(text.clone());
                        }
                    }
                }
                if let Some((cluster, left)) = &account.reservation {
                    own.reserved = Some(cluster.clone());
                    own.reserved_milliseconds = left.map(milliseconds);
                }
            }
        }
        own
    }
}

impl LockStatus {
    pub(super) fn of(
        name: &LockName,
        accounts: &[(String, Result<LockAccount, Unknown>)],
        size: QuorumSize,
        now: BootInstant,
    ) -> Self {
        let (leases, reservations) = views(accounts, size, now);
        let holder = leases.holder();
        let reserved = reservations
            .blocked()
            .then(|| longest_reservation(accounts))
            .flatten();
        let state = if holder.is_some() {
            LockState::Held
        } else if reserved.is_some() {
            LockState::Reserved
        } else if !leases.decided() {
            LockState::Unknown
        } else if leases.free() && reservations.free() {
            LockState::Free
        } else {
            LockState::Split
        };
        let identity = holder.as_ref().map(|holder| holder.identity.clone());
        let accounts: Vec<MasterAccount> = accounts
            .iter()
            .map(|(master, account)| MasterAccount::of(master.clone(), account))
            .collect();
        let reserved_for = reserved.as_ref().map(|(cluster, _)| cluster.clone());
        let agreeing = accounts.iter().filter(|account| {
            account.error.is_none()
                && account.unreadable.is_none()
                && account.holder == identity
                && account.reserved == reserved_for
        });
        let agreeing = agreeing.count();
        Self {
            lock_name: name.to_string(),
            state,
            holder_cluster: holder.as_ref().map(|holder| holder.cluster.to_string()),
            fencing_token: holder.as_ref().map(|holder| holder.token.0),
            nonce: holder.as_ref().map(|holder| holder.nonce),
            remaining_milliseconds: holder
                .filter(|holder| holder.ends != BootInstant::NEVER)
                .map(|holder| milliseconds(holder.ends.left(now))),
            holder_identity: identity,
            reserved: reserved_for,
            reserved_milliseconds: reserved.and_then(|(_, left)| left.map(milliseconds)),
            agreeing,
            accounts,
        }
    }
}

/// Returns the leases and the reservations that the masters showed in their answers.
fn views(
    accounts: &[(String, Result<LockAccount, Unknown>)],
    size: QuorumSize,
    now: BootInstant,
) -> (View, View) {
    let (mut leases, mut reservations) = (View::new(size), View::new(size));
    let ends = |left: Option<Duration>| left.map_or(BootInstant::NEVER, |left| now + left);
    for (index, (_, account)) in accounts.iter().enumerate() {
        let Ok(account) = account else { continue };
        let lease = account.lease.clone();
        let lease = lease.map_or(Sighting::FREE, |(what, left)| Sighting::blocked(what, ends(left)));
        leases.record(index, lease);
        let reservation = account.reservation.clone();
        let reservation = reservation.map_or(Sighting::FREE, |(cluster, left)| {
            Sighting::blocked(Obstacle::Reserved(cluster), ends(left))
        });
        reservations.record(index, reservation);
    }
    (leases, reservations)
}

/// Returns the reservation that most masters show, with the longest time that any of them shows for it.
fn longest_reservation(
    accounts: &[(String, Result<LockAccount, Unknown>)],
) -> Option<(String, Option<Duration>)> {
    let all = || {
        let known = accounts.iter().filter_map(|(_, account)| account.as_ref().ok());
        known.filter_map(|account| account.reservation.as_ref())
    };
    let (most, _) = all().max_by_key(|(cluster, _)| all().filter(|(other, _)| other == cluster).count())?;
    let lefts = all()
        .filter(|(cluster, _)| cluster == most)
        .map(|(_, left)| *left);
    let longest = lefts.reduce(|a, b| Some(a?.max(b?))).flatten();
    Some((most.clone(), longest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{ClusterId, HolderIdentity, LeaseValue, Nonce};

    fn held(holder: &str, nonce: u128, grant: u64, left: u64) -> Result<LockAccount, Unknown> {
        let lease = LeaseValue {
            cluster: ClusterId::new("eu", "1").unwrap(),
            identity: HolderIdentity::parse(holder).unwrap(),
            nonce: Nonce(nonce),
            grant,
        };
        let left = Some(Duration::from_millis(left));
        Ok(LockAccount {
            lease: Some((Obstacle::Lease(lease), left)),
            reservation: None,
        })
    }

    fn broken(mut account: Result<LockAccount, Unknown>) -> Result<LockAccount, Unknown> {
        if let Ok(account) = &mut account {
            account.reservation = Some(("nobody".into(), Some(Duration::from_secs(60))));
        }
        account
    }

    fn of(accounts: Vec<Result<LockAccount, Unknown>>) -> LockStatus {
        let size = QuorumSize::new(accounts.len()).unwrap();
        let named = accounts
            .into_iter()
            .enumerate()
            .map(|(i, account)| (format!("m{i}"), account));
        LockStatus::of(
            &LockName::parse("l").unwrap(),
            &named.collect::<Vec<_>>(),
            size,
            BootInstant::default(),
        )
    }

    #[test]
    fn the_state_is_the_one_that_a_majority_shows() {
        let free = || Ok(LockAccount::default());
        let gone = || Err(Unknown::NotSealed);
        for (accounts, state, agreeing) in [
            (
                vec![held("a", 1, 4, 9), held("a", 1, 5, 8), free()],
                LockState::Held,
                2,
            ),
            (vec![free(), free(), held("a", 1, 4, 9)], LockState::Free, 2),
            (
                vec![held("a", 1, 4, 9), held("b", 2, 4, 9), free()],
                LockState::Split,
                1,
            ),
            (vec![free(), gone(), gone()], LockState::Unknown, 1),
            (
                vec![broken(free()), broken(free()), gone()],
                LockState::Reserved,
                2,
            ),
        ] {
            let status = of(accounts);
            assert_eq!((status.state, status.agreeing), (state, agreeing), "{status:?}");
        }
    }

    #[test]
    fn a_broken_lock_that_is_still_held_shows_both() {
        let status = of(vec![
            broken(held("a", 1, 4, 9)),
            broken(held("a", 1, 7, 8)),
            broken(Ok(LockAccount::default())),
        ]);
        assert_eq!(status.state, LockState::Held);
        assert_eq!(status.fencing_token, Some(7));
        assert_eq!(status.remaining_milliseconds, Some(9));
        assert_eq!(status.reserved.as_deref(), Some("nobody"));
        assert_eq!(status.reserved_milliseconds, Some(60_000));
    }
}
