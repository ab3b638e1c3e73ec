//! Lease: in a cluster that does not hold the lock, the operator holds the Lease of a controller's leader
//! election, so that all replicas of the controller run and none of them leads. In the cluster that holds the
//! lock, the operator frees the Lease.

mod changes;
mod hold;
mod holder;
mod record;
mod renewal;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Pod},
    jiff::Timestamp,
};
use kube::{
    Api, Resource,
    api::{ApiResource, Patch, PostParams},
};
use serde_json::Value;

use super::{
    EventReason, Found, StartPermit, Step, StopPermit, TargetContext, TargetError,
    in_flight::InFlight,
    kind::Need,
    read::{Place, Read},
    write::{Write, managed_by},
};
use crate::{
    api::{
        lock_status::TargetState,
        plan::{LEASE_STOP, TargetWork},
        target::TargetRef,
    },
    clock,
    lease::{BootInstant, FencingToken},
};
pub(super) use changes::LeaseHolder;
use hold::{Hold, MissingLease, Move, needed, wait_without_record};
use holder::OwnHolder;
pub(crate) use holder::{LeaseFence, ReleaseName};
use record::{Record, created, freed, renewed, taken};
use renewal::RenewalSchedule;

/// The field manager that owns the record.
const MANAGER: &str = "redlock-operator-lease";
/// The maximum number of reads in one step: the Lease may change between a read and a write.
const TRIES: usize = 8;
/// The interval of reads while a stop is not confirmed, even without a watch event.
const POLL: Duration = Duration::from_secs(5);

pub(super) struct LeaderLease {
    context: TargetContext,
    name: String,
    /// The name of the Lease in messages, as in `Lease billing/controller`.
    called: String,
    api: Api<Lease>,
    place: Place,
    own: OwnHolder,
    /// The declared stop time.
    stop: Option<Duration>,
    missing: MissingLease,
    /// The record as it was last read.
    last: Option<Record>,
    hold: Hold,
    /// The time of the last read of the record.
    polled: Option<BootInstant>,
    /// Whether the watch showed a change since the last read.
    changed: Arc<AtomicBool>,
    /// A write that frees the Lease and was not answered.
    in_flight: InFlight,
    /// The lease of the lock under which the Lease was freed, or found free.
    free_under: Option<FencingToken>,
    /// The lease of the lock under which an event reported that the stop time is too short.
    warned: Option<FencingToken>,
    /// Whether an event reported that no admission policy protects the record.
    unfenced: bool,
    /// The renewals of the record; none are planned if a policy protects it.
    renewal: RenewalSchedule,
    /// The pod of the former leader, while it terminates.
    terminating: Option<String>,
}

impl LeaderLease {
    pub(super) fn new(context: TargetContext, object: &TargetRef, stop: Option<Duration>) -> Self {
        let name = &object.name;
        let resource = ApiResource::erase::<Lease>(&());
        let place = Place::of(
            &context.client,
            &context.shared.kinds,
            object,
            Need::Served,
            resource,
        );
        Self {
            called: format!("Lease {}/{name}", context.namespace),
            name: name.clone(),
            api: Api::namespaced(context.client.clone(), &context.namespace),
            place,
            own: OwnHolder::new(&context.cluster, context.shared.lease_fence.release.as_ref()),
            stop,
            missing: MissingLease::Create,
            last: None,
            hold: Hold::default(),
            polled: None,
            changed: Arc::default(),
            in_flight: InFlight::default(),
            free_under: None,
            warned: None,
            unfenced: false,
            renewal: RenewalSchedule::default(),
            terminating: None,
            context,
        }
    }

    pub(super) fn declare(&mut self, work: &TargetWork) {
        if let TargetWork::Lease { stop, .. } = work {
            (self.stop, self.missing) = (*stop, MissingLease::Create);
        }
    }

    pub(super) fn undeclare(&mut self) {
        self.missing = MissingLease::Await;
    }

    async fn read(&mut self) -> Result<(Option<Record>, Read), TargetError> {
        // A change during this read shows in the next one.
        self.changed.store(false, Ordering::SeqCst);
        let asked = clock::now();
        let found = self.api.get(&self.name).await;
        let what = || format!("reading {}", self.called);
        let found = self.place.settle(what, found).await?;
        let answered = clock::now();
        self.polled = Some(answered);
        let found = found.as_ref().map(|lease| self.own.read(lease));
        self.last = found.clone().or(self.last.take());
        Ok((found, Read { asked, answered }))
    }

    pub(super) async fn observe(&mut self) -> Result<TargetState, TargetError> {
        let (found, read) = self.read().await?;
        if found.as_ref().is_none_or(|found| found.holder != self.own.text()) {
            return Ok(TargetState::Active);
        }
        let doubt = self.in_flight.is_open();
        Ok(
            match self
                .hold
                .next(found.as_ref(), self.own.text(), self.stop, read, doubt)
            {
                Move::Stopped if self.terminating.is_none() => TargetState::Standby,
                Move::Stopped | Move::Wait(_) | Move::Take { .. } => TargetState::Changing,
            },
        )
    }

    /// Frees the Lease. A candidate that holds it is already the leader, and keeps it.
    pub(super) async fn start(&mut self, permit: &StartPermit) -> Result<Step, TargetError> {
        (self.hold, self.terminating) = (Hold::Open, None);
        self.renewal.clear();
        let token = permit.token();
        let again = self.free_under == Some(token);
        let mut wrote = false;
        for _ in 0..TRIES {
            let (found, _) = self.read().await?;
            if let Some(found) = &found {
                self.warn_of_stop_time(found, token);
            }
            let Some(held) = found.filter(Record::is_operators) else {
                self.free_under = Some(token);
                self.in_flight.settle();
                return Ok(if wrote && again {
                    Step::Contested(format!("{} was taken by an operator", self.called))
                } else {
                    Step::Done
                });
            };
            let change = freed(&held, now());
            if !permit.holds() {
                return Ok(Step::Working(TargetState::Standby));
            }
            let before = self.in_flight.send();
            let written = self.patch(&change, "freeing").await;
            let is_done = |write: &Write<Lease>| matches!(write, Write::Done(_) | Write::Missing);
            self.in_flight.answered(before, &written, is_done);
            // The next read confirms the write.
            wrote |= is_done(&written?);
        }
        Ok(Step::Working(TargetState::Changing))
    }

    /// Takes the Lease. Done when no leader can run any more.
    pub(super) async fn stop(
        &mut self,
        _by: Option<BootInstant>,
        permit: &StopPermit,
    ) -> Result<Step, TargetError> {
        self.free_under = None;
        if self.rests() {
            return Ok(Step::Working(TargetState::Changing));
        }
        for _ in 0..TRIES {
            let (found, read) = self.read().await?;
            let doubt = self.in_flight.is_open();
            if found.is_none() && self.missing == MissingLease::Await {
                return Ok(
                    match self
                        .hold
                        .absent(wait_without_record(self.last.as_ref(), self.stop), read)
                    {
                        Move::Stopped => Step::Done,
                        Move::Wait(_) | Move::Take { .. } => Step::Working(TargetState::Changing),
                    },
                );
            }
            match self
                .hold
                .next(found.as_ref(), self.own.text(), self.stop, read, doubt)
            {
                Move::Take { again } => {
                    if !permit.holds(Found::of(again)) {
                        return Ok(Step::Working(TargetState::Active));
                    }
                    let Some(written) = self.take(found.as_ref()).await? else {
                        continue;
                    };
                    self.hold.taken(&written, clock::now());
                    self.plan_renewal(&written);
                    // An unanswered free was for an earlier version.
                    self.in_flight.settle();
                    return Ok(match found.filter(|_| again) {
                        Some(found) => {
                            Step::Contested(format!("{} was taken by {:?}", self.called, found.holder))
                        }
                        None if again => Step::Contested(format!("{} was deleted", self.called)),
                        None => Step::Working(TargetState::Changing),
                    });
                }
                Move::Wait(_) => {
                    self.renew(&found.unwrap_or_default(), permit).await?;
                    return Ok(Step::Working(TargetState::Changing));
                }
                Move::Stopped => return self.confirm(&found.unwrap_or_default(), permit).await,
            }
        }
        Ok(Step::Working(TargetState::Changing))
    }

    /// Reports whether a stop has nothing to do yet: the wait has not ended, no renewal is due, and the watch shows no
    /// change.
    fn rests(&self) -> bool {
        let since = match self.hold {
            Hold::Held { since, .. } | Hold::Absent { since } => since,
            Hold::Open => return false,
        };
        let now = clock::now();
        let fresh = self.polled.is_some_and(|polled| now.since(polled) < POLL);
        let early = now < since + self.stop.unwrap_or(LEASE_STOP);
        let due = self.renewal.due().is_some_and(|at| at <= now);
        early && fresh && !due && !self.changed.load(Ordering::SeqCst)
    }

    /// Waits for the pod of the former leader, if it terminates: a controller may work during its graceful shutdown.
    async fn confirm(&mut self, found: &Record, permit: &StopPermit) -> Result<Step, TargetError> {
        self.renew(found, permit).await?;
        let (_, holder) = found.last_candidate();
        self.terminating = match holder.and_then(Record::pod_of) {
            Some(pod) if self.is_terminating(pod).await? => Some(pod.to_owned()),
            _ => None,
        };
        if self.terminating.is_some() {
            return Ok(Step::Working(TargetState::Changing));
        }
        Ok(match self.renewal.due() {
            Some(at) => Step::Waiting(at.left(clock::now())),
            None => Step::Done,
        })
    }

    fn plan_renewal(&mut self, written: &Record) {
        if self.context.shared.lease_fence.enforced {
            self.renewal.clear();
        } else {
            self.renewal.plan(written, clock::now());
        }
    }

    /// Renews the record if no policy protects it: candidates before client-go 0.27 do not honour its
    /// duration.
    async fn renew(&mut self, found: &Record, permit: &StopPermit) -> Result<(), TargetError> {
        if self.context.shared.lease_fence.enforced {
            return Ok(());
        }
        self.warn_of_missing_fence();
        if self.renewal.is_due(found, clock::now()) && permit.holds(Found::Running) {
            self.plan_renewal(found);
            // If the Lease changed in between, the next step reads it again.
            if let Write::Done(lease) = self.patch(&renewed(found, self::now()), "renewing").await? {
                self.plan_renewal(&Record::of(&lease));
            }
        }
        Ok(())
    }

    async fn is_terminating(&self, pod: &str) -> Result<bool, TargetError> {
        let pods: Api<Pod> = Api::namespaced(self.context.client.clone(), &self.context.namespace);
        let found = pods.get_metadata_opt(pod).await;
        let found = found.map_err(|error| TargetError::of(format!("reading pod {pod}"), &error))?;
        Ok(found.is_some_and(|pod| pod.meta().deletion_timestamp.is_some()))
    }

    /// Returns the record that the API server stored; `None` if the Lease changed in between.
    async fn take(&self, found: Option<&Record>) -> Result<Option<Record>, TargetError> {
        let written = match found {
            Some(found) => {
                self.patch(&taken(found, self.own.text(), now()), "taking")
                    .await?
            }
            None => {
                let lease = created(&self.name, self.own.text(), now());
                let params = PostParams {
                    field_manager: Some(MANAGER.to_owned()),
                    ..PostParams::default()
                };
                let answer = self.api.create(&params, &lease).await;
                Write::of(answer, format!("creating {}", self.called))?
            }
        };
        Ok(match written {
            Write::Done(lease) => Some(Record::of(&lease)),
            Write::Missing | Write::Late => None,
        })
    }

    async fn patch(&self, change: &Value, what: &str) -> Result<Write<Lease>, TargetError> {
        let patch = Patch::Merge(change);
        let answer = self.api.patch(&self.name, &managed_by(MANAGER), &patch).await;
        Write::of(answer, format!("{what} {}", self.called))
    }

    /// Emits a warning once for each lease of the lock.
    fn warn_of_stop_time(&mut self, found: &Record, token: FencingToken) {
        let needed = needed(found);
        if self.stop.is_some() || needed <= LEASE_STOP || self.warned == Some(token) {
            return;
        }
        self.warned = Some(token);
        let (target, called, usual) = (&self.context.target, &self.called, LEASE_STOP.as_secs());
        let text = format!(
            "target {target}: by the leaseDurationSeconds of {called} a leader takes up to {0} s to stop, but the stop \
             time is {usual} s: set stopSeconds: {0} in all clusters",
            needed.as_secs()
        );
        self.context.emit(EventReason::StopTooShort, text);
    }

    /// Emits a warning once.
    fn warn_of_missing_fence(&mut self) {
        if std::mem::replace(&mut self.unfenced, true) {
            return;
        }
        let (target, called) = (&self.context.target, &self.called);
        let text = format!(
            "target {target}: no admission policy protects {called} while the operator holds it: a candidate that \
             ends may release it, and a user may delete it; with the chart, set admission.leaseFence.enabled: true"
        );
        self.context.emit(EventReason::TargetNotSafe, text);
    }

    pub(super) fn late(&self) -> Option<String> {
        let pod = self.terminating.as_ref()?;
        Some(format!("pod {pod}, the former leader, terminates"))
    }
}

/// Returns the present time in the precision of the API server.
fn now() -> Timestamp {
    let now = i64::try_from(clock::unix_time().as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_microsecond(now).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
