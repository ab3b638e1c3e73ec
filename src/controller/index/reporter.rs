//! Contends for the internal locks of a cluster on each quorum. They elect the reporting replicas, and prove that no
//! other cluster has the same name.
//!
//! `_reporter/<cluster UID>` elects the replica that writes the status of the quorum. `_reporter/<cluster UID>/<scope>`
//! elects the replica that writes for locks that no replica of this cluster holds: replicas that watch other namespaces
//! do not see these locks, so each set of namespaces has its own reporter. `_cluster/<name>` is held by a replica of
//! the one cluster that may have the name.
//!
//! Where another replica coordinates the cluster, it also reports: it stops targets, and knows what hinders it. Its Lease at the
//! API server ends late. So another replica takes a seat that is free, and leaves it once the coordinator renews its Lease.

use std::time::Duration;

use super::{
    LockSnapshot,
    coordinator_seat::{CoordinatorSeat, KnownCoordinator},
    reporter_seat::ReporterSeat,
};
use crate::{
    api::in_use,
    controller::planted::{WorldMistake, plants},
    lease::{
        BootInstant, ClusterId, LockName, Participation, Terms,
        identity::IdentityError,
        timing::{GivenTimings, Timings},
    },
    masters::{reporter_lock, scope_reporter_lock},
};

/// The duration of these leases.
const LEASE: Duration = Duration::from_secs(15);
/// The duration of the leases of the reporters: after a crash, statuses are older than the facts for about this time. Two renewals
/// with the usual command timeout fit into it.
const SEAT_LEASE: Duration = Duration::from_secs(3);
/// The time for which a former reporter still shows the locks of its cluster: the next one shows them from then on.
const SHOWN: Duration = Duration::from_secs(5);

/// The state of an internal lock, as this replica sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::controller) enum View {
    Mine,
    /// A candidate with this identity holds the lock. The candidate is a sibling if its cluster has the UID of this cluster.
    Held {
        cluster: ClusterId,
        identity: String,
    },
    /// No holder is seen.
    Free,
}

fn view(seen: &LockSnapshot) -> View {
    if seen.authority.is_some() {
        return View::Mine;
    }
    match &seen.holder {
        Some(holder) => View::Held {
            cluster: holder.cluster.clone(),
            identity: holder.identity.clone(),
        },
        None => View::Free,
    }
}

/// What this replica has to do as reporter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::controller) struct ReporterDuty {
    /// The time at which the last renewal of another coordinator that sees the masters was observed; `None` without one.
    pub(in crate::controller) coordinator_renewed: Option<BootInstant>,
    pub(in crate::controller) coordinator: KnownCoordinator,
}

/// The namespaces that the replicas of one Deployment watch, encoded for the name of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::controller) struct Scope(String);

impl Scope {
    /// Encodes these namespaces; an empty name stands for all.
    pub(in crate::controller) fn of(namespaces: &[String]) -> Self {
        Self(in_use::scope(namespaces))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The internal locks of a cluster on one quorum.
#[derive(Debug)]
pub(in crate::controller) struct Reporter {
    cluster: ClusterId,
    quorum: ReporterSeat,
    locks: ReporterSeat,
    name: LockName,
    timings: Timings,
    seat_timings: Timings,
    /// A time longer than any lease: a lock that was free for this time has no holder.
    long: Duration,
    contends_for_name: bool,
    /// Whether this replica may become the reporter.
    contends_to_report: bool,
    /// Whether this cluster was seen to hold the name, and no other cluster since.
    confirmed: bool,
    clash: Option<ClusterId>,
    name_free_since: Option<BootInstant>,
    /// `None` if the replicas elect no coordinator.
    coordinator: Option<CoordinatorSeat>,
}

/// The identity of a reporter, and the limits of its quorum.
pub(super) struct ReporterTerms<'a> {
    pub(super) cluster: &'a ClusterId,
    pub(super) scope: &'a Scope,
    pub(super) command_timeout: Duration,
    pub(super) longest_lease: Duration,
    /// Whether the replicas elect a coordinator.
    pub(super) elects_coordinator: bool,
}

/// The changes found by one observation of the locks.
#[derive(Clone, Debug, Default)]
pub(in crate::controller) struct Turn {
    /// Whether this replica became the reporter of the quorum, or ceased to be it.
    pub(in crate::controller) quorum: bool,
    /// Whether this replica became the reporter of the locks, or ceased to be it.
    pub(in crate::controller) locks: bool,
    /// Whether the ownership of the cluster name has changed.
    pub(in crate::controller) name: bool,
    /// Whether the objects of this cluster are a copy of those of another cluster.
    pub(in crate::controller) copied: bool,
    /// The new terms of locks that are to be contended for from now on, or no longer.
    pub(in crate::controller) put: Vec<(LockName, Terms)>,
}

impl Reporter {
    /// Creates the reporter for the locks that [`Self::first_terms`] names.
    pub(in crate::controller) fn new(
        terms: &ReporterTerms<'_>,
        now: BootInstant,
    ) -> Result<Self, IdentityError> {
        let ReporterTerms {
            cluster,
            scope,
            command_timeout,
            longest_lease,
            elects_coordinator,
        } = *terms;
        let timings = |lease: Duration| {
            let given = GivenTimings {
                lease_duration: Some(lease.min(longest_lease)),
                ..GivenTimings::default()
            };
            // A command timeout that is too long for this lease is reported with the first lock that it affects.
            Timings::resolve(given, Duration::ZERO, Some(command_timeout), longest_lease)
                .or_else(|_| Timings::resolve(given, Duration::ZERO, None, longest_lease))
                .unwrap_or_else(|_| Timings::derive(Duration::ZERO))
        };
        let coordinator = match elects_coordinator {
            true => Some(CoordinatorSeat::new(cluster, &scope.0)?),
            false => None,
        };
        Ok(Self {
            cluster: cluster.clone(),
            quorum: ReporterSeat::new(reporter_lock(cluster)?, now),
            locks: ReporterSeat::new(scope_reporter_lock(cluster, &scope.0)?, now),
            name: LockName::internal("cluster", cluster.name())?,
            timings: timings(LEASE),
            seat_timings: timings(SEAT_LEASE),
            long: longest_lease * 2,
            contends_for_name: true,
            contends_to_report: true,
            confirmed: false,
            clash: None,
            name_free_since: None,
            coordinator,
        })
    }

    /// Returns the initial terms: all locks are contended for, except that of the coordinator.
    pub(in crate::controller) fn first_terms(&self) -> impl Iterator<Item = (LockName, Terms)> {
        let [quorum, locks] = self.seats();
        let all = [quorum, locks, &self.name];
        let seat = self.coordinator.as_ref();
        let seat = seat.map(|seat| self.terms(seat.lock(), false));
        all.map(|lock| self.terms(lock, true)).into_iter().chain(seat)
    }

    /// Returns the locks that elect the reporters.
    fn seats(&self) -> [&LockName; 2] {
        [self.quorum.lock(), self.locks.lock()]
    }

    /// Returns the terms of a lock that only the reporter contends for.
    pub(super) fn shown_terms(&self, lock: &LockName) -> Terms {
        self.terms(lock, true).1
    }

    fn terms(&self, lock: &LockName, contends: bool) -> (LockName, Terms) {
        let participation = if contends {
            Participation::Contend
        } else {
            Participation::Observe
        };
        let terms = Terms {
            cluster: self.cluster.clone(),
            timings: match self.seats().contains(&lock) {
                true => self.seat_timings,
                false => self.timings,
            },
            participation,
            ordered_delay: Duration::ZERO,
            guards: false,
            siblings_first: false,
            fenced: false,
        };
        (lock.clone(), terms)
    }

    /// Observes the locks. The caller polls this, because some changes result from time alone.
    pub(in crate::controller) fn observe(
        &mut self,
        lock: &dyn Fn(&LockName) -> Option<LockSnapshot>,
        duty: &ReporterDuty,
        now: BootInstant,
    ) -> Turn {
        let seen = |name: &LockName| lock(name).map_or(View::Free, |seen| view(&seen));
        let (quorum, locks, name) = (
            seen(self.quorum.lock()),
            seen(self.locks.lock()),
            seen(&self.name),
        );
        let before = (self.confirmed, self.clash.clone());
        let contended = (self.contends_for_name, self.contends_to_report);
        self.judge_name(name, now);
        let (quorum, locks) = (self.quorum.observe(&quorum, now), self.locks.observe(&locks, now));
        self.contends_to_report = duty.coordinator_renewed.is_none_or(|renewed| {
            let mut seats = [&self.quorum, &self.locks].into_iter();
            !plants(WorldMistake::ReportsLate)
                && seats.any(|seat| seat.is_contended_beside(renewed, self.contends_to_report, now))
        });
        let mut put = Vec::new();
        let mut copied = false;
        if let Some(seat) = &mut self.coordinator {
            let contended = seat.contends();
            copied = seat.observe(&seen(seat.lock()), &duty.coordinator, now);
            let (lock, contends) = (seat.lock().clone(), seat.contends());
            if contends != contended {
                put.push(self.terms(&lock, contends));
            }
        }
        if self.contends_for_name != contended.0 {
            put.push(self.terms(&self.name, self.contends_for_name));
        }
        if self.contends_to_report != contended.1 {
            put.extend(self.seats().map(|seat| self.terms(seat, self.contends_to_report)));
        }
        Turn {
            quorum,
            locks,
            name: before != (self.confirmed, self.clash.clone()),
            copied,
            put,
        }
    }

    /// Judges the ownership of the name. A name that another cluster owns is not contended for: a moment
    /// without a holder, while a replica of that cluster is replaced, must not make this cluster its owner. A
    /// name without a holder for twice the longest lease is free.
    fn judge_name(&mut self, seen: View, now: BootInstant) {
        match seen {
            View::Mine => (self.confirmed, self.clash, self.name_free_since) = (true, None, None),
            View::Held { cluster, .. } if cluster.uid() == self.cluster.uid() => {
                (self.confirmed, self.clash, self.name_free_since) = (true, None, None);
                self.contends_for_name = true;
            }
            View::Held { cluster, .. } => {
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

    /// Reports whether this replica writes the status of the quorum.
    pub(in crate::controller) fn reports_quorum(&self) -> bool {
        self.quorum.is_mine()
    }

    /// Reports whether this replica writes for locks of its scope that no replica of its cluster holds.
    pub(in crate::controller) fn reports_locks(&self) -> bool {
        self.locks.is_mine()
    }

    /// Reports whether this replica shows in which locks its cluster takes part. A former reporter does so until another replica
    /// reports: a cluster that seems to take part in no lock would get a lock that it declines.
    pub(super) fn shows_locks(&self, now: BootInstant) -> bool {
        self.locks.is_mine() || self.locks.left_for(now).is_some_and(|left| left < SHOWN)
    }

    /// Returns how long no replica of this cluster has reported on the quorum, as far as this replica sees.
    pub(in crate::controller) fn quorum_unreported(&self, now: BootInstant) -> Option<Duration> {
        self.quorum.absent_for(now)
    }

    /// Returns how long no replica of this cluster has reported on the locks of this scope.
    pub(in crate::controller) fn locks_unreported(&self, now: BootInstant) -> Option<Duration> {
        self.locks.absent_for(now)
    }

    /// Returns the time without a reporter after which any replica may write that the state is unknown.
    pub(in crate::controller) fn long(&self) -> Duration {
        self.long
    }

    /// Returns another cluster with the same name.
    pub(in crate::controller) fn clash(&self) -> Option<&ClusterId> {
        self.clash.as_ref()
    }

    /// Reports whether this cluster was seen to own the name, and no other cluster has owned it since.
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
        // Even thousands of namespaces fit into a name.
        let many: Vec<String> = (0..2_000).map(|n| format!("namespace-{n}")).collect();
        assert_eq!(Scope::of(&many).0.len(), 16);
    }
}
