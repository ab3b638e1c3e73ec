//! Performs the effects that send requests to the API server. Each request is a task.

// A new effect must be performed here.
#![deny(clippy::wildcard_enum_match_arm)]

use std::time::Duration;

use futures_util::future::Either;
use tokio::time;

use super::{Executor, requests};
use crate::{
    api::{LeaderLock, abstention::Abstention},
    clock,
    controller::{
        hand_over::answer,
        index::{
            CoordinatorWrite, CoordinatorWriteEnd, Failover, Guarded, Input, LockReadEnd, ObjectRequest,
            StatusWrite,
        },
        object::ObjectKey,
        siblings::Siblings,
        writer::{self, Item, Written},
    },
};

/// Timeout of the write of an abstention. A failover does not rely on an API server that takes longer.
const ABSTAINS: Duration = Duration::from_secs(5);
/// Timeout of a write of the coordinator's Lease: another one follows before the Lease expires.
const COORDINATES: Duration = Duration::from_secs(2);
/// Timeout of a consistent read, which is repeated. It includes the wait for the turn of the request.
const READS: Duration = Duration::from_secs(10);

impl Executor {
    /// Writes a status, with a timeout.
    pub(super) fn write_status(&mut self, write: StatusWrite) {
        let client = self.kubernetes.clients.urgent.clone();
        let (item, write) = match write {
            StatusWrite::Lock { key, version, status } => {
                let write = writer::write_lock(client, key.clone(), version, status);
                (Item::Lock(key), Either::Left(write))
            }
            StatusWrite::Quorum {
                name,
                version,
                status,
            } => {
                let write = writer::write_quorum(client, name.clone(), version, status);
                (Item::Quorum(name), Either::Right(write))
            }
        };
        // `Failed` would count as a failure of the server and delay the writes of all other objects.
        let broken = Written::Refused("the write ended unexpectedly".into());
        let broken = Input::Written(item.clone(), broken);
        self.tasks.writes.start(broken, async move {
            let end = time::timeout(writer::PATIENCE, write).await;
            let end = end.unwrap_or_else(|_| Written::Failed("no answer in time".into()));
            Input::Written(item, end)
        });
    }

    /// Sends a request other than the write of a status.
    pub(super) fn request_object(&mut self, request: ObjectRequest) {
        let (clients, rate_limiter) = (&self.kubernetes.clients, self.kubernetes.rate_limiter.clone());
        let urgent = clients.urgent.clone();
        let jobs = &mut self.tasks.jobs;
        match request {
            ObjectRequest::SetFinalizer { key, uid, change } => {
                let broken = Input::Finalizer {
                    key: key.clone(),
                    uid: uid.clone(),
                    end: Err("the write ended unexpectedly".to_owned()),
                };
                jobs.start(broken, async move {
                    let end =
                        requests::set_finalizer(urgent, &rate_limiter, &key, uid.as_deref(), &change).await;
                    Input::Finalizer { key, uid, end }
                });
            }
            ObjectRequest::ReadLock(key) => {
                let failed = LockReadEnd::Failed("the read ended unexpectedly".to_owned());
                let broken = Input::LockRead {
                    key: key.clone(),
                    sent: clock::now(),
                    end: failed,
                };
                jobs.start(broken, async move {
                    let read = requests::read_lock(urgent, &rate_limiter, &key);
                    let (sent, end) = time::timeout(READS, read).await.unwrap_or_else(|_| {
                        let reason = "the API server does not answer".to_owned();
                        (clock::now(), LockReadEnd::Failed(reason))
                    });
                    Input::LockRead { key, sent, end }
                });
            }
            ObjectRequest::WriteCoordinator(write) => self.write_coordinator(write),
            ObjectRequest::SetQuorumFinalizers {
                name,
                version,
                finalizers,
                adds,
            } => self.set_quorum_finalizers(name, version, finalizers, adds),
            ObjectRequest::Abstain {
                key,
                object,
                abstention,
                failover,
            } => self.abstain(key, *object, abstention, failover),
            ObjectRequest::EndAbstention { key, object } => jobs.start(Input::Nothing, async move {
                let write = requests::abstain(urgent, *object, None);
                if let Ok(Err(reason)) = time::timeout(ABSTAINS, write).await {
                    tracing::debug!(object = %format!("LeaderLock {key}"), reason,
                        "the abstention could not be ended; this cluster abstains until it expires");
                }
                Input::Nothing
            }),
            ObjectRequest::AnswerHandOver {
                key,
                request,
                answer: reply,
            } => jobs.start(Input::HandOverAnswered(key.clone()), async move {
                answer(urgent, key.clone(), request, reply).await;
                Input::HandOverAnswered(key)
            }),
            ObjectRequest::ReadDeleted { key, metadata, pause } => {
                let client = clients.work.clone();
                let broken = Input::Salvaged(key.clone(), Err(metadata));
                jobs.start(broken, async move {
                    time::sleep(pause).await;
                    let object = requests::read_deleted(client, &rate_limiter, &key).await;
                    Input::Salvaged(key, Ok(object))
                });
            }
        }
    }

    fn write_coordinator(&mut self, write: CoordinatorWrite) {
        let Some((namespace, name)) = self.followed.as_ref().and_then(Siblings::coordination) else {
            return;
        };
        let client = self.kubernetes.clients.urgent.clone();
        self.kubernetes.rate_limiter.count(1, clock::now());
        let failed = |reason: &str| CoordinatorWriteEnd::Failed {
            forbidden: false,
            reason: reason.to_owned(),
        };
        let broken = Input::CoordinatorWritten(failed("the write ended unexpectedly"));
        self.tasks.jobs.start(broken, async move {
            let write = requests::write_coordinator(client, &namespace, &name, write);
            let end = time::timeout(COORDINATES, write).await;
            Input::CoordinatorWritten(end.unwrap_or_else(|_| failed("the API server does not answer")))
        });
    }

    fn set_quorum_finalizers(
        &mut self,
        name: String,
        version: Option<String>,
        finalizers: Vec<String>,
        adds: bool,
    ) {
        let client = self.kubernetes.clients.urgent.clone();
        let rate_limiter = self.kubernetes.rate_limiter.clone();
        let broken = Guarded::Failed("the write ended unexpectedly".to_owned());
        let broken = Input::QuorumFinalizers(name.clone(), broken);
        self.tasks.jobs.start(broken, async move {
            if adds {
                rate_limiter.sent("").await;
            } else {
                rate_limiter.count(1, clock::now());
            }
            let end = requests::set_quorum_finalizers(client, &name, version, &finalizers).await;
            Input::QuorumFinalizers(name, end)
        });
    }

    fn abstain(&mut self, key: ObjectKey, object: LeaderLock, abstention: Abstention, failover: Failover) {
        let client = self.kubernetes.clients.urgent.clone();
        let broken = Err("the write ended unexpectedly".to_owned());
        let broken = Input::Abstains(key.clone(), failover.clone(), broken);
        self.tasks.jobs.start(broken, async move {
            let write = requests::abstain(client, object, Some(&abstention));
            let end = time::timeout(ABSTAINS, write).await;
            let end = end.unwrap_or_else(|_| Err("the API server does not answer".to_owned()));
            Input::Abstains(key, failover, end)
        });
    }
}
