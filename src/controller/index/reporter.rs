//! The internal locks of a cluster on each quorum: which replica reports, and that no other cluster has our name.
//!
//! `_reporter/<cluster UID>` elects the replica that writes the status of the quorum. `_reporter/<cluster UID>/<scope>`
//! elects the one that writes for locks that no replica of this cluster holds: replicas that watch other namespaces do not
//! see these locks, so each set of namespaces has a reporter of its own. `_cluster/<name>` is held by one replica of the
//! one cluster that may be called so.

use std::time::Duration;

use super::LockSnapshot;
use crate::{
    api::in_use,
    lease::{
        BootInstant, ClusterId, LockName, Participation, Terms,
        identity::IdentityError,
        timing::{GivenTimings, Timings},
    },
    masters::{reporter_lock, scope_reporter_lock},
};

/// These leases cost little and need no long rest.
const LEASE: Duration = Duration::from_secs(15);

/// How one of the internal locks looks from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::controller) enum View {
    Mine,
    /// A candidate holds it: our sibling if its cluster has our UID.
    Held(ClusterId),
    /// Nobody, as far as this replica sees.
    Free,
}

fn view(seen: &LockSnapshot) -> View {
    if seen.authority.is_some() {
        return View::Mine;
    }
    match &seen.holder {
        Some(holder) => View::Held(holder.cluster.clone()),
        None => View::Free,
    }
}

/// One of the locks by which a reporter is elected.
#[derive(Debug)]
struct Seat {
    lock: LockName,
    mine: bool,
    free_since: Option<BootInstant>,
}

impl Seat {
    fn new(lock: LockName, now: BootInstant) -> Self {
        Self {
            lock,
            mine: false,
            free_since: Some(now),
        }
    }

    /// Returns whether this replica became, or is no more, the reporter.
    fn look(&mut self, seen: &View, now: BootInstant) -> bool {
        let before = std::mem::replace(&mut self.mine, *seen == View::Mine);
        self.free_since = match seen {
            View::Free => self.free_since.or(Some(now)),
            View::Mine | View::Held(_) => None,
        };
        before != self.mine
    }

    fn absent_for(&self, now: BootInstant) -> Option<Duration> {
        self.free_since.map(|since| now.since(since))
    }
}

/// The namespaces that the replicas of one Deployment watch, in the name of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::controller) struct Scope(String);

impl Scope {
    /// Of these namespaces; the empty one stands for all.
    pub(in crate::controller) fn of(namespaces: &[String]) -> Self {
        Self(in_use::scope(namespaces))
    }
}

/// See the module.
#[derive(Debug)]
pub(in crate::controller) struct Reporter {
    cluster: ClusterId,
    quorum: Seat,
    locks: Seat,
    name: LockName,
    timings: Timings,
    /// Longer than any lease: what was free so long is nobody's.
    long: Duration,
    contends_for_name: bool,
    /// The name was seen ours at least once.
    confirmed: bool,
    clash: Option<ClusterId>,
    name_free_since: Option<BootInstant>,
}

/// The identity of a reporter, and the limits of its quorum.
pub(super) struct ReporterTerms<'a> {
    pub(super) cluster: &'a ClusterId,
    pub(super) scope: &'a Scope,
    pub(super) command_timeout: Duration,
    pub(super) longest_lease: Duration,
}

/// What a look showed that was not so before.
#[derive(Clone, Debug, Default)]
pub(in crate::controller) struct Turn {
    /// This replica became, or is no more, the reporter of the quorum.
    pub(in crate::controller) quorum: bool,
    /// The same of the locks.
    pub(in crate::controller) locks: bool,
    /// Whether the name is ours is known otherwise than before.
    pub(in crate::controller) name: bool,
    /// To be contended for, or not any more.
    pub(in crate::controller) put: Option<(LockName, Terms)>,
}

impl Reporter {
    /// Of the locks that [`Self::first_terms`] names.
    pub(in crate::controller) fn new(
        terms: &ReporterTerms<'_>,
        now: BootInstant,
    ) -> Result<Self, IdentityError> {
        let ReporterTerms {
            cluster,
            scope,
            command_timeout,
            longest_lease,
        } = *terms;
        let given = GivenTimings {
            lease_duration: Some(LEASE.min(longest_lease)),
            ..GivenTimings::default()
        };
        // A command time-out that suits no lease of this length is reported with the first lock that asks for one.
        let timings = Timings::resolve(given, Duration::ZERO, Some(command_timeout), longest_lease)
            .or_else(|_| Timings::resolve(given, Duration::ZERO, None, longest_lease))
            .unwrap_or_else(|_| Timings::derive(Duration::ZERO));
        Ok(Self {
            cluster: cluster.clone(),
            quorum: Seat::new(reporter_lock(cluster)?, now),
            locks: Seat::new(scope_reporter_lock(cluster, &scope.0)?, now),
            name: LockName::internal("cluster", cluster.name())?,
            timings,
            long: longest_lease * 2,
            contends_for_name: true,
            confirmed: false,
            clash: None,
            name_free_since: None,
        })
    }

    /// All of them are contended for at first.
    pub(in crate::controller) fn first_terms(&self) -> impl Iterator<Item = (LockName, Terms)> {
        let all = [&self.quorum.lock, &self.locks.lock, &self.name];
        all.map(|lock| (lock.clone(), self.terms(Participation::Contend)))
            .into_iter()
    }

    fn terms(&self, participation: Participation) -> Terms {
        Terms {
            cluster: self.cluster.clone(),
            timings: self.timings,
            participation,
            ordered_delay: Duration::ZERO,
            guards: false,
            siblings_first: false,
            fenced: false,
        }
    }

    /// To be called often: what is seen is a matter of time.
    pub(in crate::controller) fn look(
        &mut self,
        lock: &dyn Fn(&LockName) -> Option<LockSnapshot>,
        now: BootInstant,
    ) -> Turn {
        let seen = |name: &LockName| lock(name).map_or(View::Free, |seen| view(&seen));
        let (quorum, locks, name) = (seen(&self.quorum.lock), seen(&self.locks.lock), seen(&self.name));
        let before = (self.confirmed, self.clash.clone());
        let contended = self.contends_for_name;
        self.judge_name(name, now);
        let contends = self.contends_for_name;
        let participation = if contends {
            Participation::Contend
        } else {
            Participation::Observe
        };
        let put = (contends != contended).then(|| (self.name.clone(), self.terms(participation)));
        Turn {
            quorum: self.quorum.look(&quorum, now),
            locks: self.locks.look(&locks, now),
            name: before != (self.confirmed, self.clash.clone()),
            put,
        }
    }

    /// A name that another cluster has is not contended for: the first moment in which it is free, because a replica
    /// there was replaced, must not make us the rightful bearer. What nobody held for two longest leases is free.
    fn judge_name(&mut self, seen: View, now: BootInstant) {
        match seen {
            View::Mine => (self.confirmed, self.clash, self.name_free_since) = (true, None, None),
            View::Held(cluster) if cluster.uid() == self.cluster.uid() => {
                (self.confirmed, self.clash, self.name_free_since) = (true, None, None);
                self.contends_for_name = true;
            }
            View::Held(cluster) => {
                (self.confirmed, self.clash, self.name_free_since) = (false, Some(cluster), None);
                self.contends_for_name = false;
            }
            View::Free => {
                let since = *self.name_free_since.get_or_insert(now);
                if now.since(since) >= self.long {
                    self.contends_for_name = true;
                }
            }
        }
    }

    /// This replica writes the status of the quorum.
    pub(in crate::controller) fn reports_quorum(&self) -> bool {
        self.quorum.mine
    }

    /// This replica writes for locks of its scope that no replica of its cluster holds.
    pub(in crate::controller) fn reports_locks(&self) -> bool {
        self.locks.mine
    }

    /// For how long no replica of this cluster reports on the quorum, as far as this replica sees.
    pub(in crate::controller) fn quorum_unreported(&self, now: BootInstant) -> Option<Duration> {
        self.quorum.absent_for(now)
    }

    /// The same of the locks of this scope.
    pub(in crate::controller) fn locks_unreported(&self, now: BootInstant) -> Option<Duration> {
        self.locks.absent_for(now)
    }

    /// So long without a reporter: any replica may write that nothing is known.
    pub(in crate::controller) fn long(&self) -> Duration {
        self.long
    }

    /// Another cluster that has our name.
    pub(in crate::controller) fn clash(&self) -> Option<&ClusterId> {
        self.clash.as_ref()
    }

    /// The name was ours at a look and no other cluster had it since.
    pub(in crate::controller) fn confirmed(&self) -> bool {
        self.confirmed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(namespaces: &[&str]) -> LockName {
        let cluster = "eu/u".parse().unwrap();
        let namespaces: Vec<String> = namespaces.iter().map(|&name| name.to_owned()).collect();
        scope_reporter_lock(&cluster, &Scope::of(&namespaces).0).unwrap()
    }

    #[test]
    fn each_set_of_namespaces_has_a_reporter_of_its_own() {
        assert_eq!(lock(&["a", "b"]), lock(&["b", "a", "b"]));
        assert_eq!(lock(&[]), lock(&[""]));
        assert_eq!(lock(&[]).as_str(), "_reporter/u/all");
        let all = [&[][..], &["a"], &["b"], &["a", "b"], &["a,b"]].map(lock);
        let different: std::collections::BTreeSet<_> = all.iter().map(LockName::as_str).collect();
        assert_eq!(different.len(), 4, "{different:?}");
        assert_eq!(lock(&["a"]).as_str(), "_reporter/u/af63dc4c8601ec8c");
        // Thousands of namespaces make no name that is too long.
        let many: Vec<String> = (0..2_000).map(|n| format!("namespace-{n}")).collect();
        assert_eq!(Scope::of(&many).0.len(), 16);
    }

    #[test]
    fn reporter_is_absent_from_when_its_lock_was_first_seen_free() {
        let at = |second: u64| BootInstant::from_nanos(second * 1_000_000_000);
        let mut seat = Seat::new(lock(&[]), at(1));
        assert!(!seat.look(&View::Free, at(3)));
        assert_eq!(seat.absent_for(at(4)), Some(Duration::from_secs(3)));
        assert!(!seat.look(&View::Held("eu/u".parse().unwrap()), at(5)));
        assert_eq!(seat.absent_for(at(5)), None);
        assert!(seat.look(&View::Mine, at(6)));
        assert!(seat.look(&View::Free, at(7)));
        assert_eq!(seat.absent_for(at(9)), Some(Duration::from_secs(2)));
    }
}
