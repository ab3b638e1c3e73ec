//! The handle of a server: faults, rules, history and snapshots.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::{Value, json};

use super::{
    access::{CommittedWrite, Verb},
    admission::{AdmissionRule, MutationRule},
    error::ApiError,
    events::ObjectEvent,
    faults::{CallerFaults, Heal, Partition},
    options::ApiOptions,
    registry::ResourceKind,
    resource::ResourceId,
    snapshot::ApiSnapshot,
    state::{RequestCounts, State},
    watch::WatchEnd,
    write::{WriteOptions, WriteRequest},
};

/// The API server of one cluster. Clones share it.
#[derive(Clone, Debug)]
pub struct ApiServer {
    pub(super) state: Arc<Mutex<State>>,
}

pub(super) fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The caller that creates the first objects.
const BOOTSTRAP: &str = "system:bootstrap";

impl ApiServer {
    pub fn new(options: ApiOptions) -> Self {
        let mut state = State::new(options);
        state.bootstrap();
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns the present revision, the resourceVersion of the last write.
    pub fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// Returns a number that grows with each change of a resource, also where the database is restored to an older
    /// revision.
    pub fn change_count(&self, resource: &ResourceId) -> u64 {
        self.lock().change_count(resource)
    }

    /// Waits until a write is newer than a revision, or the database was restored to an older one.
    pub async fn changed(&self, since: u64) -> u64 {
        loop {
            let (revision, committed) = {
                let state = self.lock();
                (state.revision, state.committed.clone().notified_owned())
            };
            if revision != since {
                return revision;
            }
            committed.await;
        }
    }

    /// Returns the changes of a resource after a revision; 410 if some of them are no longer known.
    pub fn events_since(
        &self,
        resource: &ResourceId,
        revision: u64,
    ) -> Result<Vec<Arc<ObjectEvent>>, ApiError> {
        let state = self.lock();
        let kind = state.kind(resource)?;
        if revision < state.oldest(&kind) {
            return Err(ApiError::expired(format!("too old resource version: {revision}")));
        }
        let events = state
            .logs
            .get(resource)
            .map(|log| &log.events)
            .into_iter()
            .flatten();
        Ok(events
            .filter(|event| event.revision > revision)
            .cloned()
            .collect())
    }

    /// Returns a kind that is served.
    pub fn kind(&self, resource: &ResourceId) -> Result<Arc<ResourceKind>, ApiError> {
        self.lock().kind(resource)
    }

    /// Returns the resource of a kind that is served.
    pub fn resource_of(&self, api_version: &str, kind: &str) -> Option<ResourceId> {
        let state = self.lock();
        let mut kinds = state.kinds.values();
        let found = kinds.find(|one| one.kind == kind && one.api_version() == api_version);
        found.map(|one| one.id.clone())
    }

    /// Returns the faults of a caller.
    pub fn faults(&self, caller: &str) -> CallerFaults {
        self.lock().faults.of(caller).clone()
    }

    /// Changes the faults of one caller. Running requests and open watches follow at once.
    pub fn change_faults(&self, caller: &str, change: impl FnOnce(&mut CallerFaults)) {
        let mut state = self.lock();
        change(state.faults.change(caller));
        state.faults_changed.notify_waiters();
    }

    /// Changes the faults of all callers that have none of their own.
    pub fn change_default_faults(&self, change: impl FnOnce(&mut CallerFaults)) {
        let mut state = self.lock();
        change(&mut state.faults.default);
        state.faults_changed.notify_waiters();
    }

    pub fn partition(&self, caller: &str, partition: Partition) {
        self.change_faults(caller, |faults| faults.partition = partition);
    }

    /// Ends the partition of a caller.
    pub fn heal(&self, caller: &str, heal: Heal) {
        let mut state = self.lock();
        state.faults.change(caller).partition = Partition::None;
        if heal == Heal::Break {
            state.faults.break_connections(caller);
        }
        state.faults_changed.notify_waiters();
    }

    /// Breaks all connections of a caller: waiting requests and open watches fail.
    pub fn break_connections(&self, caller: &str) {
        let mut state = self.lock();
        state.faults.break_connections(caller);
        state.faults_changed.notify_waiters();
    }

    /// Ends the open watches of a caller on a resource; `None` means every caller, or every resource.
    pub fn end_watches(&self, how: WatchEnd, caller: Option<&str>, resource: Option<&ResourceId>) {
        self.lock().end_watches(how, |watch| {
            caller.is_none_or(|caller| watch.caller == caller)
                && resource.is_none_or(|resource| watch.resource == *resource)
        });
    }

    /// Returns the requests that each caller has sent since the last call.
    pub fn take_requests(&self) -> BTreeMap<String, RequestCounts> {
        std::mem::take(&mut self.lock().requests)
    }

    /// Returns the callers and resources of all open watches.
    pub fn open_watches(&self) -> Vec<(String, ResourceId)> {
        let state = self.lock();
        let open = state.watches.values();
        open.map(|watch| (watch.caller.clone(), watch.resource.clone()))
            .collect()
    }

    /// Adds a rule that can refuse requests. Returns its number.
    pub fn add_rule(&self, rule: AdmissionRule) -> u64 {
        self.lock().rules.add(rule)
    }

    /// Adds a rule that can change objects before they are validated. Returns its number.
    pub fn add_mutation(&self, rule: MutationRule) -> u64 {
        self.lock().rules.add_mutation(rule)
    }

    /// Removes a rule of either kind.
    pub fn remove_rule(&self, number: u64) {
        self.lock().rules.remove(number);
    }

    /// Forgets all changes up to now: a watch from an older resourceVersion, and a list that continues, get 410.
    pub fn compact(&self) {
        let mut state = self.lock();
        state.compacted = state.revision;
        state.logs.values_mut().for_each(super::events::EventLog::compact);
    }

    /// Returns and removes the committed writes since the last call, and the number of older ones that were dropped.
    pub fn take_history(&self) -> (Vec<CommittedWrite>, u64) {
        let mut state = self.lock();
        let lost = std::mem::take(&mut state.history_lost);
        (state.history.drain(..).collect(), lost)
    }

    /// Returns a copy of the database.
    pub fn snapshot(&self) -> ApiSnapshot {
        self.lock().snapshot()
    }

    /// Restores a copy of the database, of this server or of another one. The resourceVersion goes back and all watches
    /// break. Names, UIDs and the clock do not go back. The history has no entry for it.
    pub fn restore(&self, snapshot: &ApiSnapshot) {
        self.lock().restore(snapshot);
    }
}

impl State {
    /// Creates the first namespaces and CRDs.
    fn bootstrap(&mut self) {
        let write = WriteOptions::default();
        let request = WriteRequest {
            caller: BOOTSTRAP,
            verb: Verb::Create,
            options: &write,
        };
        let mut names = vec!["kube-system".to_owned(), "default".to_owned()];
        names.extend(self.options.namespaces.clone());
        for name in names {
            let namespace = json!({"metadata": {"name": name}});
            let made = self.create(request, &ResourceId::NAMESPACES, "", namespace, None);
            made.expect("a first namespace is valid");
        }
        let system = super::object::ObjectKey::new(ResourceId::NAMESPACES, "", "kube-system");
        let mut namespace = Value::clone(self.find(&system).expect("was created above"));
        namespace["metadata"]["uid"] = self.options.cluster_uid.clone().into();
        self.commit(request.author(), &system, Some(namespace));
        for definition in self.options.definitions.clone() {
            self.install(request, &definition);
        }
        self.history.clear();
    }

    /// Stores a CRD without owners of its fields, which would take most of the time of a new server.
    fn install(&mut self, request: WriteRequest<'_>, definition: &Value) {
        let kind = self.kind(&ResourceId::DEFINITIONS).expect("is built in");
        let mut definition = definition.clone();
        self.begin_metadata(&kind, "", &mut definition)
            .expect("a first CRD is valid");
        super::content::new_status(&kind, &mut definition);
        let name = super::object::meta(&definition, "name").to_owned();
        let key = super::object::ObjectKey::new(ResourceId::DEFINITIONS, "", name);
        self.commit(request.author(), &key, Some(definition));
    }
}
