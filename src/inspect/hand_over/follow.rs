//! Follows a request to its result: on the masters if they can be read from here, otherwise in the status of the
//! object.

use std::{
    pin::{Pin, pin},
    time::Duration,
};

use kube::Api;
use tokio::{signal, time};

use super::{Ending, HandOverError, HandedOver, Plan, request};
use crate::{
    api::{
        LeaderLock,
        hand_over::{HandOverAnswer, HandOverResult},
        lock_status::Role,
    },
    clock,
    inspect::status::{self, LockState, LockStatus},
    lease::{BootInstant, Nonce},
};

/// The interval at which the masters are read: a takeover takes milliseconds, and one lock costs them
/// nothing.
const POLL: Duration = Duration::from_millis(10);
/// The interval at which the object is read.
const READ: Duration = Duration::from_millis(250);
/// The number of reads for the answer to a request whose result is known already.
const READS: usize = 8;

/// The holder after the lease that was passed on.
#[derive(Clone, Debug)]
struct Next {
    identity: String,
    /// NAME/UID if the masters show it, NAME if a status does.
    cluster: String,
    token: u64,
    gap: Option<Duration>,
}

/// Sends the request and follows it to its end, at most for the time that the plan sets.
///
/// # Errors
/// Returns an error if the request could not be written.
pub(super) async fn follow(
    locks: &Api<LeaderLock>,
    name: &str,
    plan: &Plan,
) -> Result<HandedOver, HandOverError> {
    let (mut seen, mut masters) = (HandOverProgress::default(), pin!(by_masters(plan)));
    let id = {
        let mut write = pin!(request::write(locks, name, plan));
        loop {
            tokio::select! {
                // The old lease must be seen before it can end: the holder is often quicker than the answer to a write.
                biased;
                next = &mut masters, if seen.next.is_none() => seen.next = Some(next),
                id = &mut write => break id?,
            }
        }
    };
    let end = tokio::select! {
        end = time::timeout(plan.wait, seen.watch(locks, name, plan, &id, masters)) => end.ok(),
        // If signals cannot be received, the wait lasts to its end.
        Ok(()) = signal::ctrl_c() => Some(Ending::Interrupted),
    };
    let ending = match end {
        Some(Ending::Interrupted) | None if seen.answer.is_none() => {
            seen.withdrawn = request::withdraw(locks, name, &id).await;
            if !seen.withdrawn
                && let Ok(object) = locks.get(name).await
            {
                // The holder may have answered at the last moment.
                seen.answer = request::answered(&object, &id);
            }
            match (&seen.answer, end) {
                (None, None) => Ending::NotAnswered,
                (None, Some(ending)) => ending,
                (Some(answer), _) => unfinished(answer),
            }
        }
        Some(Ending::Interrupted) | None => seen.answer.as_ref().map_or(Ending::NotAnswered, unfinished),
        Some(ending) => {
            seen.leave_nothing(locks, name, &id).await;
            ending
        }
    };
    Ok(result_of(plan, ending, seen))
}

const fn unfinished(answer: &HandOverAnswer) -> Ending {
    match answer.result {
        HandOverResult::Reserving => Ending::NotTaken,
        HandOverResult::Refused => Ending::Refused,
    }
}

#[derive(Debug, Default)]
struct HandOverProgress {
    answer: Option<HandOverAnswer>,
    next: Option<Next>,
    /// Whether the request was withdrawn: no answer came, and no answer will come.
    withdrawn: bool,
    /// Whether the holder was seen to stop its targets.
    stopping: bool,
}

impl HandOverProgress {
    async fn watch(
        &mut self,
        locks: &Api<LeaderLock>,
        name: &str,
        plan: &Plan,
        id: &str,
        mut masters: Pin<&mut impl Future<Output = Next>>,
    ) -> Ending {
        if let Some(next) = self.next.take() {
            return self.end(plan, next);
        }
        let mut reads = time::interval(READ);
        reads.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                next = &mut masters => return self.end(plan, next),
                _ = reads.tick() => {}
            }
            // An API server that is briefly unavailable answers the next time.
            let Ok(object) = locks.get(name).await else {
                continue;
            };
            let role = object.status.as_ref().and_then(|status| status.role);
            self.stopping |= role == Some(Role::Stopping);
            if let Some(answer) = request::answered(&object, id) {
                let refused = answer.result == HandOverResult::Refused;
                self.answer = Some(answer);
                if refused {
                    return Ending::Refused;
                }
            }
            if plan.session.is_none()
                && let Some(next) = by_status(&object, plan.token)
            {
                return self.end(plan, next);
            }
        }
    }

    /// Waits for the answer, then withdraws the request. The masters may show the end before the holder has
    /// answered, and a holder that lost the lease meanwhile never answers.
    async fn leave_nothing(&mut self, locks: &Api<LeaderLock>, name: &str, id: &str) {
        let mut reads = time::interval(READ);
        for _ in 0..READS {
            if self.answer.is_some() {
                return;
            }
            reads.tick().await;
            if let Ok(object) = locks.get(name).await {
                self.answer = request::answered(&object, id);
            }
        }
        request::withdraw(locks, name, id).await;
    }

    fn end(&mut self, plan: &Plan, next: Next) -> Ending {
        let to = &plan.to;
        let there = if next.cluster.contains('/') {
            next.cluster == to.to_string()
        } else {
            next.cluster == to.name()
        };
        self.next = Some(next);
        if there {
            Ending::HandedOver
        } else {
            Ending::TakenByAnother
        }
    }
}

/// Reads the masters until they show another lease. The lock had no holder for at most the time from the
/// start of the last read that showed the old lease to the end of the first read that shows the new one.
async fn by_masters(plan: &Plan) -> Next {
    let Some(session) = &plan.session else {
        return std::future::pending().await;
    };
    let mut old_at: Option<BootInstant> = None;
    let mut old = Old::of(plan);
    loop {
        let asked = clock::now();
        let now = status::one(session, &plan.lock.lock_name).await;
        if old.is(&now) {
            old_at = Some(asked);
        } else if let LockStatus {
            state: LockState::Held,
            holder_identity: Some(identity),
            holder_cluster: Some(cluster),
            fencing_token: Some(token),
            ..
        } = now
        {
            return Next {
                identity,
                cluster,
                token,
                gap: old_at.map(|at| clock::now().since(at)),
            };
        }
        time::sleep(POLL).await;
    }
}

/// The lease that is passed on.
#[derive(Debug)]
struct Old<'a> {
    cluster: &'a str,
    token: u64,
    /// The nonce of the lease, once the lease was seen.
    nonce: Option<Nonce>,
}

impl<'a> Old<'a> {
    fn of(plan: &'a Plan) -> Self {
        Self {
            cluster: &plan.from_cluster,
            token: plan.token,
            nonce: None,
        }
    }

    /// Reports whether the lock has the old lease, which is the one that the cluster has before it receives
    /// the request: with another token, the request would be refused. The token that masters show is not
    /// reliable: they may have missed a grant, or show another number than the holder uses while the other
    /// masters do not show the lease any more.
    fn is(&mut self, now: &LockStatus) -> bool {
        let cluster = now.holder_cluster.as_deref().unwrap_or_default();
        let name = cluster.split_once('/').map_or(cluster, |(name, _)| name);
        let Some(nonce) = now.nonce.filter(|_| name == self.cluster) else {
            return false;
        };
        *self.nonce.get_or_insert(nonce) == nonce || now.fencing_token <= Some(self.token)
    }
}

fn by_status(object: &LeaderLock, token: u64) -> Option<Next> {
    let status = object.status.as_ref()?;
    let now = u64::try_from(status.fencing_token?).ok()?;
    (now > token).then_some(())?;
    Some(Next {
        identity: status.holder_identity.clone()?,
        cluster: status.holder_cluster.clone()?,
        token: now,
        gap: None,
    })
}

fn result_of(plan: &Plan, ending: Ending, seen: HandOverProgress) -> HandedOver {
    let next = seen.next;
    let holder = next.as_ref().map_or_else(String::new, |next| {
        format!(
            "{} of cluster {} holds the lock, token {}",
            next.identity, next.cluster, next.token
        )
    });
    let wait = plan.wait.as_secs_f64();
    let request = if seen.withdrawn {
        "the request was withdrawn"
    } else {
        "the request could not be withdrawn, and expires a minute later"
    };
    let answer = seen.answer.map_or_else(String::new, |answer| answer.message);
    let message = match ending {
        Ending::HandedOver => {
            let gap = next.as_ref().and_then(|next| next.gap);
            let gap = gap.map_or_else(
                || "the time without a holder is not known".to_owned(),
                |gap| {
                    format!(
                        "the lock had no holder for at most {:.1} ms",
                        gap.as_secs_f64() * 1e3
                    )
                },
            );
            format!("handed over: {holder}; {gap}")
        }
        Ending::Refused => format!("not handed over: the holder refused: {answer}"),
        Ending::TakenByAnother => format!("not handed over to {}: {holder}", plan.to),
        Ending::NotTaken => format!(
            "released, but no replica was seen to acquire the lock within {wait} s: the lock stays reserved for {} \
             until the old lease would have ended, and then every cluster may acquire it",
            plan.to
        ),
        Ending::NotAnswered if seen.stopping => format!(
            "not handed over: the targets were not stopped within {wait} s; {request}, and the holder starts the \
             targets again"
        ),
        Ending::NotAnswered => format!(
            "not handed over: no operator that holds the lock answered within {wait} s; {request}; check that the \
             operator runs and reaches the API server"
        ),
        Ending::Interrupted => format!("interrupted: {request}"),
    };
    let metadata = &plan.lock.object.metadata;
    HandedOver {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        lock_name: plan.lock.lock_name.to_string(),
        from: plan.from.clone(),
        to: plan.to.to_string(),
        token_before: plan.token,
        result: ending,
        holder_identity: next.as_ref().map(|next| next.identity.clone()),
        holder_cluster: next.as_ref().map(|next| next.cluster.clone()),
        fencing_token: next.as_ref().map(|next| next.token),
        gap_milliseconds: next
            .and_then(|next| next.gap)
            .map(|gap| (gap.as_secs_f64() * 1e4).round() / 10.0),
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(cluster: &str, nonce: u128, token: u64) -> LockStatus {
        LockStatus {
            lock_name: "ns/l".into(),
            state: LockState::Held,
            holder_identity: Some("a".into()),
            holder_cluster: Some(format!("{cluster}/uid")),
            fencing_token: Some(token),
            nonce: Some(Nonce(nonce)),
            remaining_milliseconds: None,
            reserved: None,
            reserved_milliseconds: None,
            agreeing: 3,
            accounts: Vec::new(),
        }
    }

    #[test]
    fn the_old_lease_is_recognised_by_its_nonce_at_any_token() {
        let mut old = Old {
            cluster: "eu-1",
            token: 7,
            nonce: None,
        };
        assert!(!old.is(&held("us-1", 2, 6)));
        assert!(old.is(&held("eu-1", 1, 7)));
        // One of the two masters that granted it with 7 lost it, and the third master granted it with 9.
        assert!(old.is(&held("eu-1", 1, 9)));
        assert!(!old.is(&held("eu-1", 2, 8)), "taken by the same cluster anew");
        assert!(!old.is(&held("us-1", 3, 9)));
        let mut late = Old { nonce: None, ..old };
        assert!(late.is(&held("eu-1", 1, 9)), "one master is away from the start");
    }
}
