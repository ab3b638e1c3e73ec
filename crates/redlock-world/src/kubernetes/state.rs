//! The state of the server: objects, recent changes, and the commit of a write.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
};

use serde_json::Value;
use tokio::sync::Notify;

use super::{
    access::{CommittedWrite, Verb},
    admission::AdmissionRules,
    error::ApiError,
    events::{EventLog, ObjectEvent, deleted},
    faults::Faults,
    handle::ApiRequest,
    object::ObjectKey,
    options::ApiOptions,
    registry::{ResourceKind, built_in, defined},
    resource::ResourceId,
    watch::WatchEnd,
};

/// The objects of one resource, by namespace and name.
pub(super) type Objects = BTreeMap<(String, String), Arc<Value>>;

/// The numbers of requests by method and path.
pub type RequestCounts = BTreeMap<String, u64>;

/// An open watch.
#[derive(Debug)]
pub(super) struct OpenWatch {
    pub(super) caller: String,
    pub(super) resource: ResourceId,
    pub(super) ended: Arc<AtomicU8>,
}

/// The time for which an Event object is kept: `--event-ttl` of the API server.
const EVENT_TTL: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);

/// The author of a write, for the history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Author<'a> {
    pub(super) caller: &'a str,
    pub(super) verb: Verb,
    pub(super) subresource: &'static str,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) options: ApiOptions,
    pub(super) rng: fastrand::Rng,
    pub(super) kinds: BTreeMap<ResourceId, Arc<ResourceKind>>,
    pub(super) objects: BTreeMap<ResourceId, Objects>,
    pub(super) revision: u64,
    /// The number of changes of each resource. It never falls, unlike the revision.
    changes: BTreeMap<ResourceId, u64>,
    /// The number of times that the database was restored, each a change of every resource.
    pub(super) restorations: u64,
    pub(super) logs: BTreeMap<ResourceId, EventLog>,
    /// Before this revision, no change of any resource is kept.
    pub(super) compacted: u64,
    pub(super) history: VecDeque<CommittedWrite>,
    pub(super) history_lost: u64,
    /// The number of requests of each caller by method and path, also of those that were lost or refused.
    pub(super) requests: BTreeMap<String, RequestCounts>,
    pub(super) faults: Faults,
    pub(super) rules: AdmissionRules,
    /// The Event objects and the times of their creation, the oldest first.
    event_objects: VecDeque<(jiff::Timestamp, ObjectKey)>,
    pub(super) watches: BTreeMap<u64, OpenWatch>,
    pub(super) next_watch: u64,
    /// Wakes all requests and watches after a change of the faults.
    pub(super) faults_changed: Arc<Notify>,
    /// Wakes all followers of the revision.
    pub(super) committed: Arc<Notify>,
}

/// The compiled kinds of the CRDs of `crds/`: a world does not compile them again.
static PROJECT_KINDS: LazyLock<Vec<(Value, Arc<ResourceKind>)>> = LazyLock::new(|| {
    let compiled = ApiOptions::project_definitions()
        .iter()
        .filter_map(|definition| Some((definition["spec"].clone(), Arc::new(defined(definition)?))));
    compiled.collect()
});

static BUILT_IN_KINDS: LazyLock<Vec<Arc<ResourceKind>>> = LazyLock::new(built_in);

impl State {
    pub(super) fn new(options: ApiOptions) -> Self {
        let kinds = BUILT_IN_KINDS
            .iter()
            .map(|kind| (kind.id.clone(), kind.clone()))
            .collect();
        Self {
            rng: fastrand::Rng::with_seed(options.seed),
            kinds,
            objects: BTreeMap::new(),
            revision: options.first_revision,
            changes: BTreeMap::new(),
            restorations: 0,
            logs: BTreeMap::new(),
            compacted: options.first_revision,
            history: VecDeque::new(),
            history_lost: 0,
            requests: BTreeMap::new(),
            faults: Faults::default(),
            rules: AdmissionRules::default(),
            event_objects: VecDeque::new(),
            watches: BTreeMap::new(),
            next_watch: 0,
            faults_changed: Arc::default(),
            committed: Arc::default(),
            options,
        }
    }

    pub(super) fn count_request(&mut self, caller: &str, request: &ApiRequest) {
        let target = format!("{} {}", request.method, request.path);
        let counts = self.requests.entry(caller.to_owned()).or_default();
        *counts.entry(target).or_default() += 1;
    }

    pub(super) fn kind(&self, id: &ResourceId) -> Result<Arc<ResourceKind>, ApiError> {
        self.kinds.get(id).cloned().ok_or_else(ApiError::no_resource)
    }

    pub(super) fn find(&self, key: &ObjectKey) -> Option<&Arc<Value>> {
        self.objects.get(&key.resource)?.get(&key.place())
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Result<Arc<Value>, ApiError> {
        let found = self.find(key).cloned();
        found.ok_or_else(|| ApiError::not_found(&key.resource, &key.name))
    }

    pub(super) fn log(&mut self, id: &ResourceId) -> &mut EventLog {
        self.logs.entry(id.clone()).or_default()
    }

    /// Returns the present second, as objects record it.
    pub(super) fn second(&self) -> String {
        second(self.now())
    }

    pub(super) fn now(&self) -> jiff::Timestamp {
        (self.options.now)()
    }

    pub(super) fn uid(&mut self) -> String {
        let (high, low) = (self.rng.u64(..), self.rng.u64(..));
        format!(
            "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            low >> 52,
            low & 0xffff_ffff_ffff
        )
    }

    /// Returns a number that grows with each change of a resource.
    pub(super) fn change_count(&self, id: &ResourceId) -> u64 {
        self.changes.get(id).copied().unwrap_or_default() + self.restorations
    }

    /// Stores a new version of an object, or removes it, and informs the watches.
    pub(super) fn commit(&mut self, author: Author<'_>, key: &ObjectKey, after: Option<Value>) -> Arc<Value> {
        self.revision += 1;
        let revision = self.revision;
        *self.changes.entry(key.resource.clone()).or_default() += 1;
        let objects = self.objects.entry(key.resource.clone()).or_default();
        let (before, after) = match after {
            Some(mut object) => {
                object["metadata"]["resourceVersion"] = revision.to_string().into();
                let object = Arc::new(object);
                (objects.insert(key.place(), object.clone()), Some(object))
            }
            None => (objects.remove(&key.place()), None),
        };
        let delivered = match (&after, &before) {
            (Some(after), _) => after.clone(),
            (None, Some(before)) => Arc::new(deleted(before, revision)),
            (None, None) => Arc::new(Value::Null),
        };
        let event = ObjectEvent::new(
            revision,
            key.clone(),
            before.clone(),
            after.clone(),
            delivered.clone(),
        );
        let window = self.options.event_window;
        self.log(&key.resource).push(event, window);
        self.record(author, key, before, after.clone());
        if key.resource == ResourceId::DEFINITIONS {
            self.serve(after.as_deref(), &key.name);
        }
        self.committed.notify_waiters();
        delivered
    }

    fn record(
        &mut self,
        author: Author<'_>,
        key: &ObjectKey,
        before: Option<Arc<Value>>,
        after: Option<Arc<Value>>,
    ) {
        self.history.push_back(CommittedWrite {
            time: self.now(),
            revision: self.revision,
            caller: author.caller.to_owned(),
            verb: author.verb,
            subresource: author.subresource,
            key: key.clone(),
            before,
            after,
        });
        if self.history.len() > self.options.history_limit {
            self.history.pop_front();
            self.history_lost += 1;
        }
    }

    /// Removes the Event objects that are older than their time to live.
    pub(super) fn expire_events(&mut self, newest: &ObjectKey) {
        let now = self.now();
        self.event_objects.push_back((now, newest.clone()));
        let author = Author {
            caller: "system:event-ttl",
            verb: Verb::Delete,
            subresource: "",
        };
        while let Some((made, _)) = self.event_objects.front()
            && now.duration_since(*made) > EVENT_TTL
            && let Some((_, key)) = self.event_objects.pop_front()
        {
            if self.find(&key).is_some() {
                self.commit(author, &key, None);
            }
        }
    }

    /// Serves the kind of a CRD, or ends serving it.
    fn serve(&mut self, definition: Option<&Value>, name: &str) {
        let (plural, group) = name.split_once('.').unwrap_or((name, ""));
        let id = ResourceId::new(group, plural);
        let Some(definition) = definition else {
            self.kinds.remove(&id);
            self.end_watches(WatchEnd::Removed, |watch| watch.resource == id);
            return;
        };
        let known = PROJECT_KINDS.iter().find(|(spec, _)| *spec == definition["spec"]);
        match known
            .map(|(_, kind)| kind.clone())
            .or_else(|| defined(definition).map(Arc::new))
        {
            Some(kind) => self.kinds.insert(id, kind),
            None => self.kinds.remove(&id),
        };
    }

    pub(super) fn end_watches(&mut self, how: WatchEnd, which: impl Fn(&OpenWatch) -> bool) {
        for watch in self.watches.values().filter(|watch| which(watch)) {
            watch.ended.store(how.code(), Relaxed);
        }
        self.faults_changed.notify_waiters();
    }
}

/// Returns a time in the format of Kubernetes, in whole seconds.
pub(super) fn second(time: jiff::Timestamp) -> String {
    let whole = jiff::Timestamp::from_second(time.as_second()).unwrap_or(time);
    whole.to_string()
}
