//! Handles the calls of the kubelet.

use std::path::{Path, PathBuf};

use redlock_client::clock;
use redlock_core::fence::{Input, Record};
use tokio::sync::oneshot;

use super::Owner;
use crate::{
    agent::{
        PublishError, PublishRequest, QuorumReport, Report, UnpublishError,
        pod::{Caller, FreezeTrial, Pod},
        quorum::Quorum,
    },
    cgroup::{self, pod::PodCgroupError},
    guardian::chain,
    resolver::Unresolved,
    spec::LockSpec,
    table::EntryState,
};

impl Owner<'_> {
    pub(super) fn publish(
        &mut self,
        request: PublishRequest,
        answer: oneshot::Sender<Result<(), PublishError>>,
    ) {
        let (uid, target) = (request.pod.uid.clone(), request.target.clone());
        if let Err(error) = self.admit(request) {
            let _ = answer.send(Err(error));
            return;
        }
        let caller = Caller { target, answer };
        if let Some(pod) = self.pods.get_mut(&uid) {
            pod.callers.push(caller);
        }
        self.input(&uid, Input::Published);
        self.ask_soon(&uid);
    }

    /// Creates a record for an unknown pod.
    fn admit(&mut self, request: PublishRequest) -> Result<(), PublishError> {
        let PublishRequest { pod, lock, target } = request;
        let declared = format!("{}/{lock}", pod.namespace);
        let known = self
            .pods
            .get(&pod.uid)
            .map(|known| (known.declared.clone(), known.lock.is_some()));
        match known {
            Some((first, _)) if !first.is_empty() && first != declared => Err(PublishError::OtherLock {
                first,
                second: declared,
            }),
            Some((_, has_lock)) => {
                if !has_lock {
                    let resolved = self.resolve(&pod.namespace, &lock)?;
                    if let Some(known) = self.pods.get_mut(&pod.uid) {
                        known.lock = Some(resolved);
                    }
                }
                let uid = pod.uid.clone();
                if let Some(known) = self.pods.get_mut(&uid) {
                    known.declared = declared;
                    known.name = pod;
                    known.targets.insert(target);
                }
                self.begin_lost(&uid)
            }
            None => {
                let cgroup = cgroup::pod::find(&self.shared.options.cgroup_root, &pod.uid)?;
                let resolved = self.resolve(&pod.namespace, &lock)?;
                self.freezer.try_freeze(&pod.uid, &cgroup);
                let uid = pod.uid.clone();
                let mut new = Pod::new(pod, Some(cgroup), Record::new(clock::now()));
                new.targets.insert(target);
                new.declared = declared;
                new.lock = Some(resolved);
                new.trial = FreezeTrial::Begun;
                self.pods.insert(uid, new);
                Ok(())
            }
        }
    }

    /// Handles a call for a pod that was found without an entry: the kubelet writes the data of a volume
    /// before it calls, and keeps the data across a reboot. If no process of the pod runs, the call waits for
    /// a start permit like the call for a new pod. The cgroup stays frozen until then.
    fn begin_lost(&mut self, uid: &str) -> Result<(), PublishError> {
        let Some(pod) = self.pods.get_mut(uid).filter(|pod| pod.is_lost()) else {
            return Ok(());
        };
        let cgroup = cgroup::pod::find(&self.shared.options.cgroup_root, uid)?;
        self.freezer.freeze(uid, &cgroup);
        let events = cgroup::pod::events(&cgroup).map_err(PodCgroupError::from)?;
        if events.is_none_or(|events| !events.populated) {
            pod.record = Record::new(clock::now());
            pod.freeze.end();
            pod.trial = FreezeTrial::Begun;
            self.freezer.try_freeze(uid, &cgroup);
        }
        pod.cgroup = Some(cgroup);
        Ok(())
    }

    /// Finds the lock, and opens its masters.
    pub(super) fn resolve(&mut self, namespace: &str, lock: &str) -> Result<LockSpec, PublishError> {
        let resolved = self.shared.resolver.resolve(namespace, lock)?;
        self.open(&resolved)?;
        Ok(resolved)
    }

    /// Connects to the masters of a lock, unless that was done before.
    pub(super) fn open(&mut self, lock: &LockSpec) -> Result<(), PublishError> {
        if !self.quorums.contains_key(&lock.quorum) {
            let failed = |reason: String| PublishError::Quorum {
                lock: lock.name.clone(),
                reason,
            };
            let access = self.shared.resolver.access(&lock.quorum).map_err(failed)?;
            let quorum = Quorum::open(lock, access, clock::now());
            let quorum = quorum.map_err(|error| failed(error.to_string()))?;
            self.quorums.insert(lock.quorum.clone(), quorum);
        }
        match self.quorums.get_mut(&lock.quorum) {
            Some(quorum) => Ok(quorum.add(lock)?),
            None => Ok(()),
        }
    }

    /// Plans a round at once, because a call waits for a round that began after the call.
    fn ask_soon(&mut self, uid: &str) {
        let Some(pod) = self.pods.get(uid) else {
            return;
        };
        if !pod.callers.is_empty()
            && let Some(lock) = &pod.lock
            && let Some(quorum) = self.quorums.get_mut(&lock.quorum)
        {
            quorum.due = clock::now();
        }
    }

    /// Unpublishes a volume. The directory is removed after all earlier writes into it.
    pub(super) fn unpublish(
        &mut self,
        uid: &str,
        target: PathBuf,
        answer: oneshot::Sender<Result<(), UnpublishError>>,
    ) {
        match self.forget(uid, &target) {
            Ok(()) => self.volumes.remove(target, answer),
            Err(error) => _ = answer.send(Err(error)),
        }
    }

    fn forget(&mut self, uid: &str, target: &Path) -> Result<(), UnpublishError> {
        self.waiting.forget(uid);
        let Some(pod) = self.pods.get_mut(uid) else {
            return Ok(());
        };
        if pod.targets.iter().any(|other| other != target) {
            pod.targets.remove(target);
            return Ok(());
        }
        if let Some(path) = &pod.cgroup {
            match cgroup::pod::events(path) {
                Ok(Some(events)) if events.populated && pod.stored.is_some() => {
                    return Err(UnpublishError::Populated {
                        uid: uid.to_owned(),
                        path: path.clone(),
                    });
                }
                Ok(_) => {}
                Err(source) => {
                    let uid = uid.to_owned();
                    return Err(UnpublishError::Unknown { uid, source });
                }
            }
        }
        self.end(uid);
        Ok(())
    }

    /// Ends the record of a pod, which is no longer guarded.
    pub(super) fn end(&mut self, uid: &str) {
        if self.pods.get(uid).is_some_and(|pod| pod.stored.is_some()) {
            self.store(uid, EntryState::Ended);
        }
        self.freezer.forget(uid);
        let Some(pod) = self.pods.remove(uid) else {
            return;
        };
        for caller in pod.callers {
            let _ = caller.answer.send(Err(PublishError::Replaced));
        }
        if let Some(stored) = pod.stored {
            self.ended.insert(uid.to_owned(), stored.bytes);
        }
        self.close_unused();
    }

    /// Disconnects from masters that no pod needs.
    pub(super) fn close_unused(&mut self) {
        let pods = &self.pods;
        let used = |lock: &LockSpec| pods.values().any(|pod| pod.lock.as_ref() == Some(lock));
        let unused = self
            .quorums
            .iter_mut()
            .filter_map(|(spec, quorum)| (!quorum.keep(used)).then(|| spec.clone()));
        let unused: Vec<_> = unused.collect();
        for spec in unused {
            if let Some(quorum) = self.quorums.remove(&spec) {
                self.closing.spawn(quorum.close());
            }
        }
    }

    /// Resolves the lock of a pod that was found without an entry, by the name in its volume.
    pub(super) fn resolve_again(&mut self, uid: &str) {
        let Some(pod) = self.pods.get(uid) else {
            return;
        };
        let declared = pod.declared.clone();
        let Some((namespace, lock)) = declared.split_once('/') else {
            return;
        };
        match self.resolve(namespace, lock) {
            Ok(resolved) => {
                if let Some(pod) = self.pods.get_mut(uid) {
                    pod.lock = Some(resolved);
                }
            }
            Err(PublishError::Lock(Unresolved::NotReady { .. })) => {}
            Err(error) => tracing::warn!(pod = uid, error = %chain(&error), "the lock of the pod is unknown"),
        }
    }

    pub(super) fn report(&self) -> Report {
        let now = clock::now();
        let quorums = self.quorums.iter();
        let quorums = quorums.map(|(spec, quorum)| quorum.report(&spec.name));
        Report {
            pods: self.pods.values().map(|pod| pod.report(now)).collect(),
            quorums: quorums.collect::<Vec<QuorumReport>>(),
            guardian: self.shared.table.heartbeat(),
            cgroup2: cgroup::pod::is_version_2(&self.shared.options.cgroup_root).ok(),
            cannot_freeze: self.cannot_freeze.clone(),
            latency: self.latency,
        }
    }
}
