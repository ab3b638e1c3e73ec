//! The internal locks of a cluster on each quorum: which replica reports, and that no other cluster has our name.
//!
//! `_reporter/<cluster UID>` elects the replica that writes for locks that no replica of this cluster holds.
//! `_cluster/<name>` is held by one replica of the one cluster that may be called so.

use std::time::Duration;

use crate::{
    elector::{Elector, Standing},
    lease::{
        ClusterId, LockName, Moment, Participation, Terms,
        identity::IdentityError,
        timing::{GivenTimings, Timings},
    },
    masters::reporter_lock,
};

/// These leases cost little and need no long rest.
const LEASE: Duration = Duration::from_secs(15);

/// How one of the internal locks looks from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum View {
    Mine,
    /// A candidate holds it: our sibling if its cluster has our UID.
    Held(ClusterId),
    /// Nobody, as far as this replica sees.
    Free,
}

fn view(standing: &Standing, now: Moment) -> View {
    if standing.authority_at(now).is_some() {
        return View::Mine;
    }
    match standing.holder_at(now) {
        Some(holder) => View::Held(holder.cluster.clone()),
        None => View::Free,
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Reporter {
    cluster: ClusterId,
    report: LockName,
    name: LockName,
    timings: Timings,
    /// Longer than any lease: what was free so long is nobody's.
    long: Duration,
    contends_for_name: bool,
    /// The name was seen ours at least once.
    confirmed: bool,
    clash: Option<ClusterId>,
    name_free_since: Option<Moment>,
    report_free_since: Option<Moment>,
    mine: bool,
}

/// What a look showed that was not so before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// This replica became, or is no more, the reporter.
    pub(super) reporter: bool,
    /// Whether the name is ours is known otherwise than before.
    pub(super) name: bool,
}

impl Reporter {
    /// Contends for both locks.
    pub(super) fn start(
        elector: &Elector,
        cluster: &ClusterId,
        command_timeout: Option<Duration>,
        longest_lease: Duration,
        now: Moment,
    ) -> Result<Self, IdentityError> {
        let given = GivenTimings {
            lease_duration: Some(LEASE.min(longest_lease)),
            ..GivenTimings::default()
        };
        // A command time-out that suits no lease of this length is reported with the first lock that asks for one.
        let timings = Timings::resolve(given, Duration::ZERO, command_timeout, longest_lease)
            .or_else(|_| Timings::resolve(given, Duration::ZERO, None, longest_lease))
            .unwrap_or_else(|_| Timings::derive(Duration::ZERO));
        let reporter = Self {
            cluster: cluster.clone(),
            report: reporter_lock(cluster)?,
            name: LockName::internal("cluster", cluster.name())?,
            timings,
            long: longest_lease * 2,
            contends_for_name: true,
            confirmed: false,
            clash: None,
            name_free_since: None,
            report_free_since: Some(now),
            mine: false,
        };
        elector.put(reporter.report.clone(), reporter.terms(Participation::Contend));
        elector.put(reporter.name.clone(), reporter.terms(Participation::Contend));
        Ok(reporter)
    }

    fn terms(&self, participation: Participation) -> Terms {
        Terms {
            cluster: self.cluster.clone(),
            timings: self.timings,
            participation,
            ordered_delay: Duration::ZERO,
            guards: false,
            siblings_first: false,
        }
    }

    /// To be called often: what is seen is a matter of time.
    pub(super) fn look(&mut self, elector: &Elector, now: Moment) -> Turn {
        let seen = |lock: &LockName| {
            let standing = elector.watch(lock);
            standing.map_or(View::Free, |standing| view(&standing.borrow(), now))
        };
        let (report, name) = (seen(&self.report), seen(&self.name));
        let before = (self.mine, self.confirmed, self.clash.clone());
        self.mine = report == View::Mine;
        self.report_free_since = match report {
            View::Free => self.report_free_since.or(Some(now)),
            View::Mine | View::Held(_) => None,
        };
        self.judge_name(elector, name, now);
        Turn {
            reporter: before.0 != self.mine,
            name: (before.1, &before.2) != (self.confirmed, &self.clash),
        }
    }

    /// A name that another cluster has is not contended for: the first moment in which it is free, because a replica
    /// there was replaced, must not make us the rightful bearer. What nobody held for two longest leases is free.
    fn judge_name(&mut self, elector: &Elector, seen: View, now: Moment) {
        match seen {
            View::Mine => (self.confirmed, self.clash, self.name_free_since) = (true, None, None),
            View::Held(cluster) if cluster.uid() == self.cluster.uid() => {
                (self.confirmed, self.clash, self.name_free_since) = (true, None, None);
                self.contend_for_name(elector, true);
            }
            View::Held(cluster) => {
                (self.confirmed, self.clash, self.name_free_since) = (false, Some(cluster), None);
                self.contend_for_name(elector, false);
            }
            View::Free => {
                let since = *self.name_free_since.get_or_insert(now);
                if now.since(since) >= self.long {
                    self.contend_for_name(elector, true);
                }
            }
        }
    }

    fn contend_for_name(&mut self, elector: &Elector, contend: bool) {
        if self.contends_for_name != contend {
            self.contends_for_name = contend;
            let participation = if contend {
                Participation::Contend
            } else {
                Participation::Observe
            };
            elector.put(self.name.clone(), self.terms(participation));
        }
    }

    /// This replica writes for locks that no replica of its cluster holds.
    pub(super) fn is_mine(&self) -> bool {
        self.mine
    }

    /// For how long nobody of this cluster reports, as far as this replica sees.
    pub(super) fn absent_for(&self, now: Moment) -> Option<Duration> {
        self.report_free_since.map(|since| now.since(since))
    }

    /// So long without a reporter: any replica may write that nothing is known.
    pub(super) fn long(&self) -> Duration {
        self.long
    }

    /// Another cluster that has our name.
    pub(super) fn clash(&self) -> Option<&ClusterId> {
        self.clash.as_ref()
    }

    /// The name was ours at a look and no other cluster had it since.
    pub(super) fn confirmed(&self) -> bool {
        self.confirmed
    }
}
