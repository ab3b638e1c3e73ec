//! The answers of the agent, each computed for one moment.

use serde::Serialize;

use super::post::Post;
use crate::{lease::BootInstant, operator::http::Role};

/// One lock, as this agent sees it. The names of the fields are stable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    lock: String,
    pub(super) role: Role,
    holder: Option<String>,
    holder_cluster: Option<String>,
    /// The token of the holder, or the last one that was seen.
    token: Option<u64>,
    /// The time for which the app may still act: 0 for a standby, regardless of the holder's lease.
    valid_for_milliseconds: u64,
    /// The end of that time on `CLOCK_BOOTTIME`, which is the same for every process of the machine: it stays
    /// correct even if it is read late.
    valid_until_boot_milliseconds: Option<u64>,
    /// The identity of this agent.
    identity: String,
    cluster: String,
    quorum: Option<String>,
    lease_transitions: u64,
}

/// The answer in the format of the classic leader-elector sidecar: the name of the leader's pod.
#[derive(Debug, Serialize)]
pub(super) struct Leader {
    pub(super) name: String,
}

/// The difference between two answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    /// Another role, holder or token.
    Changed,
    /// The same lease, for longer.
    Renewed,
    /// No difference that a reader waits for.
    Nothing,
}

impl Answer {
    /// Computes the answer. Call this after the last await before the response.
    pub(super) fn at(post: &Post, now: BootInstant) -> Self {
        let in_use = post.state.in_use.load();
        let quorum = in_use.quorums.first();
        let voting = quorum.map_or(0, |quorum| quorum.masters.voters());
        let granting = quorum.map_or(0, |quorum| quorum.masters.granting());
        let majority = quorum.map_or(usize::MAX, |quorum| quorum.masters.size().majority());
        let decided = voting >= majority;
        let view = post.view().map(|view| view.borrow().clone());
        let view = view.as_ref();
        let mut answer = Self {
            lock: post.lock.to_string(),
            role: if decided { Role::Standby } else { Role::Unknown },
            holder: None,
            holder_cluster: None,
            token: view.and_then(|view| Some(view.last_token()?.0)),
            valid_for_milliseconds: 0,
            valid_until_boot_milliseconds: None,
            identity: post.state.identity.to_string(),
            cluster: post.state.cluster.to_string(),
            quorum: quorum.map(|quorum| format!("{granting}/{}", quorum.masters.size().masters())),
            lease_transitions: view.map_or(0, |view| view.transitions),
        };
        let authority = view.and_then(|view| view.authority_at(now));
        if let Some(authority) = authority {
            if post.contends() && authority.valid_until.left(now) > post.stop_grace {
                answer.role = Role::Active;
                answer.holder = Some(answer.identity.clone());
                answer.holder_cluster = Some(post.state.cluster.name().to_owned());
                answer.token = Some(authority.token.0);
                answer.valid_for_milliseconds = milliseconds(authority.valid_until.since(now));
                answer.valid_until_boot_milliseconds = Some(authority.valid_until.as_nanos() / 1_000_000);
            }
        } else if let Some(view) = view
            // A lost lease of this process that has not expired yet gives authority to no process.
            && let Some(holder) = view.holder_at(now).filter(|holder| !view.is_own(holder))
        {
            answer.holder = Some(holder.identity.clone());
            answer.holder_cluster = Some(holder.cluster.name().to_owned());
        }
        // No process can acquire the lock: a standby would be taken for one beside an active process.
        if answer.holder.is_none() && granting < majority {
            answer.role = Role::Unknown;
        }
        answer
    }

    pub(super) fn differs(&self, before: &Self) -> Difference {
        let of = |answer: &Self| {
            let (holder, cluster) = (answer.holder.clone(), answer.holder_cluster.clone());
            (answer.role, holder, cluster, answer.token)
        };
        if of(self) != of(before) {
            Difference::Changed
        } else if self.valid_until_boot_milliseconds != before.valid_until_boot_milliseconds {
            Difference::Renewed
        } else {
            Difference::Nothing
        }
    }

    /// Returns the answer in the sidecar format. Its clients compare the name with the name of their own pod,
    /// which a pod of another cluster or namespace may share: the answer is then the whole identity. A
    /// process that is not active never reads its own name here.
    pub(super) fn leader(&self) -> Leader {
        let own = pod_name(&self.identity);
        let name = match self.holder.as_deref() {
            Some(_) if self.role == Role::Active => own,
            Some(holder) if pod_name(holder) != own => pod_name(holder),
            Some(holder) if holder != own => holder,
            _ => "",
        };
        Leader {
            name: name.to_owned(),
        }
    }
}

/// Returns the name of the pod if this is the identity of an agent in a pod, else the whole identity.
fn pod_name(identity: &str) -> &str {
    let parts: Vec<&str> = identity.split('/').collect();
    match parts[..] {
        [_, pod, _] => pod,
        _ => identity,
    }
}

fn milliseconds(length: std::time::Duration) -> u64 {
    length.as_millis().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: Option<&str>, role: Role) -> Answer {
        Answer {
            lock: "ns/l".into(),
            role,
            holder: holder.map(str::to_owned),
            holder_cluster: None,
            token: None,
            valid_for_milliseconds: 0,
            valid_until_boot_milliseconds: None,
            identity: "ns/web-0/u1".into(),
            cluster: "a/a".into(),
            quorum: None,
            lease_transitions: 0,
        }
    }

    #[test]
    fn a_client_that_compares_pod_names_never_takes_another_pod_for_itself() {
        let name = |holder, role| held_by(holder, role).leader().name;
        assert_eq!(name(Some("ns/web-0/u1"), Role::Active), "web-0");
        assert_eq!(name(Some("ns/web-1/u2"), Role::Standby), "web-1");
        assert_eq!(name(Some("host-7"), Role::Standby), "host-7");
        assert_eq!(
            name(Some("ns/web-0/u9"), Role::Standby),
            "ns/web-0/u9",
            "another cluster's"
        );
        assert_eq!(
            name(Some("web-0"), Role::Standby),
            "",
            "another cluster's, that is only called so"
        );
        assert_eq!(name(None, Role::Standby), "");
        assert_eq!(name(None, Role::Unknown), "");
    }

    #[test]
    fn a_renewal_is_distinguished_from_a_change() {
        let one = Answer {
            token: Some(1),
            valid_until_boot_milliseconds: Some(5),
            ..held_by(Some("ns/web-0/u1"), Role::Active)
        };
        let later = Answer {
            valid_until_boot_milliseconds: Some(6),
            valid_for_milliseconds: 3,
            ..one.clone()
        };
        let next = Answer {
            token: Some(2),
            ..later.clone()
        };
        assert_eq!(one.differs(&one), Difference::Nothing);
        assert_eq!(later.differs(&one), Difference::Renewed);
        assert_eq!(next.differs(&later), Difference::Changed);
    }
}
