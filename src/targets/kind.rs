//! Finds the resource of a kind, in a version that the API server serves.
//!
//! A target refers to a group and a kind. The declared version is used while it is served, else the version that the
//! group prefers, else any other served version: all of them show the same object. A version that is no longer served
//! is replaced at the next discovery.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::{Client, api::ApiResource, core::GroupVersion};
use tokio::{sync::watch, task::JoinSet, time};

use super::TargetError;
use crate::{
    api::{target::TargetRef, validate::is_api_version},
    clock,
    lease::BootInstant,
};

/// The shortest time between two discoveries of a kind that was not found or is in doubt, regardless of the
/// number of targets that name it.
const ASKED_AGAIN: Duration = Duration::from_secs(2);
/// The time after which a found kind is discovered again.
const REFRESHED: Duration = Duration::from_secs(300);
/// The maximum age of a discovery that can confirm that an object does not exist.
const CONFIRMED: Duration = Duration::from_secs(10);
/// The longest time for a discovery: an aggregated API may accept a request and never answer.
const LONGEST: Duration = Duration::from_secs(5);
/// The time after which a kind that no target requests is forgotten.
const UNUSED: Duration = Duration::from_secs(900);

/// The requirement of a target for its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// The kind is served.
    Served,
    /// The kind has a scale subresource as well.
    Scale,
}

type Key = (TargetRef, Need);

#[derive(Debug)]
struct Entry {
    found: Result<ApiResource, TargetError>,
    asked: BootInstant,
    used: BootInstant,
    /// Whether a read showed that the path is no longer served.
    doubted: bool,
    /// The start of a refresh that has not ended.
    refreshing: Option<BootInstant>,
}

impl Entry {
    /// Returns the result while no new discovery is due.
    fn answer(&self, now: BootInstant, fresh: Duration) -> Option<Result<ApiResource, TargetError>> {
        let valid = match &self.found {
            Ok(_) if !self.doubted => fresh,
            Ok(_) | Err(_) => ASKED_AGAIN,
        };
        (now.since(self.asked) < valid).then(|| self.found.clone())
    }
}

/// The kinds that targets name, with the result of the last discovery of each. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Kinds(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    entries: Mutex<BTreeMap<Key, Entry>>,
    /// Held during the discovery of a kind, so that a thousand targets of the kind cause one discovery. Other
    /// kinds do not wait for it.
    asking: Mutex<BTreeMap<Key, Arc<tokio::sync::Mutex<()>>>>,
    /// Refreshes in the background. The earlier results are used until they end.
    refreshes: Mutex<JoinSet<()>>,
    /// The number of changes of the discovered kinds.
    changes: watch::Sender<u64>,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
            asking: Mutex::default(),
            refreshes: Mutex::default(),
            changes: watch::channel(0).0,
        }
    }
}

impl Kinds {
    /// Returns the resource of a kind. A known result is returned at once: a discovery that is due happens in the
    /// background, so that a start or stop never waits for it.
    pub(super) async fn find(
        &self,
        client: &Client,
        reference: &TargetRef,
        need: Need,
    ) -> Result<ApiResource, TargetError> {
        if let Some(known) = self.known(client, reference, need) {
            return Ok(known);
        }
        self.find_within(client, reference, need, REFRESHED).await
    }

    /// Returns the result of the last discovery, and begins a refresh if one is due.
    fn known(&self, client: &Client, reference: &TargetRef, need: Need) -> Option<ApiResource> {
        let now = clock::now();
        let mut entries = self.entries();
        let entry = entries.get_mut(&key(reference, need))?;
        let known = entry.found.as_ref().ok()?.clone();
        entry.used = now;
        // A refresh that was aborted does not prevent the next one.
        let runs = entry
            .refreshing
            .is_some_and(|began| now.since(began) < LONGEST * 2);
        if entry.answer(now, REFRESHED).is_none() && !runs {
            entry.refreshing = Some(now);
            self.refresh(client, reference, need);
        }
        Some(known)
    }

    fn refresh(&self, client: &Client, reference: &TargetRef, need: Need) {
        let (kinds, client, reference) = (Arc::downgrade(&self.0), client.clone(), reference.clone());
        let mut refreshes = self.0.refreshes.lock().unwrap_or_else(PoisonError::into_inner);
        while refreshes.try_join_next().is_some() {}
        refreshes.spawn(async move {
            let Some(kinds) = kinds.upgrade() else { return };
            // A failure keeps the known result. The next use tries again.
            drop(Self(kinds).ask(&client, &reference, need, REFRESHED).await);
        });
    }

    /// Reports whether this resource is served, according to a discovery within the last few seconds.
    pub(super) async fn is_served(
        &self,
        client: &Client,
        reference: &TargetRef,
        need: Need,
        resource: &ApiResource,
    ) -> Result<bool, TargetError> {
        let found = self.find_within(client, reference, need, CONFIRMED).await?;
        Ok(found == *resource && !self.is_stale(reference, need))
    }

    /// Marks the result of the discovery as doubtful, because a read showed that the kind is not served. The next use
    /// discovers it again.
    pub(super) fn doubt(&self, reference: &TargetRef, need: Need) {
        if let Some(entry) = self.entries().get_mut(&key(reference, need)) {
            entry.doubted = true;
        }
    }

    /// Returns a counter of discoveries that found another version, or a kind that has appeared or
    /// disappeared.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    async fn find_within(
        &self,
        client: &Client,
        reference: &TargetRef,
        need: Need,
        fresh: Duration,
    ) -> Result<ApiResource, TargetError> {
        if let Some(known) = self.answer(reference, need, fresh) {
            return known;
        }
        let (kinds, client, reference) = (self.clone(), client.clone(), reference.clone());
        // The discovery runs in its own task: the caller may not be polled for a while, and other callers
        // wait for the result.
        let mut task = JoinSet::new();
        task.spawn(async move { kinds.ask(&client, &reference, need, fresh).await });
        match task.join_next().await {
            Some(Ok(found)) => found,
            Some(Err(_)) | None => Err(TargetError::Api {
                what: "discovering a kind".into(),
                reason: "the task failed".into(),
                refusal: true,
            }),
        }
    }

    async fn ask(
        &self,
        client: &Client,
        reference: &TargetRef,
        need: Need,
        fresh: Duration,
    ) -> Result<ApiResource, TargetError> {
        let asking = self.asking(reference, need);
        let _asking = asking.lock().await;
        if let Some(known) = self.answer(reference, need, fresh) {
            return known;
        }
        let found = time::timeout(LONGEST, discover(client, reference, need)).await;
        let found = found.unwrap_or_else(|_| {
            Err(TargetError::Api {
                what: format!("discovering kind {} of {}", reference.kind, reference.api_version),
                reason: format!("the API server did not answer within {} s", LONGEST.as_secs()),
                refusal: true,
            })
        });
        self.take(reference, need, found)
    }

    fn asking(&self, reference: &TargetRef, need: Need) -> Arc<tokio::sync::Mutex<()>> {
        let mut asking = self.0.asking.lock().unwrap_or_else(PoisonError::into_inner);
        asking.retain(|_, lock| Arc::strong_count(lock) > 1);
        asking.entry(key(reference, need)).or_default().clone()
    }

    /// Records the result of a discovery. A failed discovery proves nothing about the kind: the earlier
    /// result is kept, in doubt.
    fn take(
        &self,
        reference: &TargetRef,
        need: Need,
        found: Result<ApiResource, TargetError>,
    ) -> Result<ApiResource, TargetError> {
        let now = clock::now();
        let mut entries = self.entries();
        entries.retain(|_, entry| now.since(entry.used) < UNUSED);
        let before = entries.get_mut(&key(reference, need));
        let conclusive = found.as_ref().map_or_else(TargetError::is_about_kind, |_| true);
        if let Some(entry) = before
            && entry.found.is_ok()
            && !conclusive
        {
            (entry.asked, entry.doubted, entry.refreshing) = (now, true, None);
            return entry.found.clone();
        }
        let entry = Entry {
            found: found.clone(),
            asked: now,
            used: now,
            doubted: false,
            refreshing: None,
        };
        let before = entries.insert(key(reference, need), entry);
        let resource = |found: &Result<ApiResource, TargetError>| found.as_ref().ok().cloned();
        if before.and_then(|before| resource(&before.found)) != resource(&found) {
            self.0.changes.send_modify(|count| *count += 1);
        }
        found
    }

    fn answer(
        &self,
        reference: &TargetRef,
        need: Need,
        fresh: Duration,
    ) -> Option<Result<ApiResource, TargetError>> {
        let now = clock::now();
        let mut entries = self.entries();
        let entry = entries.get_mut(&key(reference, need))?;
        entry.used = now;
        entry.answer(now, fresh)
    }

    fn is_stale(&self, reference: &TargetRef, need: Need) -> bool {
        let entries = self.entries();
        entries
            .get(&key(reference, need))
            .is_none_or(|entry| entry.doubted)
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<Key, Entry>> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the key of the entry, which all objects of a kind share.
fn key(reference: &TargetRef, need: Need) -> Key {
    let name = String::new();
    (
        TargetRef {
            name,
            ..reference.clone()
        },
        need,
    )
}

/// Discovers a kind. The declared version is requested first; as a rule no other request is needed.
async fn discover(client: &Client, reference: &TargetRef, need: Need) -> Result<ApiResource, TargetError> {
    let (api_version, kind) = (reference.api_version.clone(), reference.kind.clone());
    let declared = api_version.parse::<GroupVersion>();
    let Some(declared) = declared.ok().filter(|_| is_api_version(&api_version)) else {
        return Err(TargetError::ApiVersion { api_version, kind });
    };
    let mut without_scale = false;
    let mut versions = vec![declared.version.clone()];
    let mut next = 0;
    while let Some(version) = versions.get(next) {
        let version = GroupVersion::gv(&declared.group, version);
        match served(client, &version, &kind).await? {
            Some((resource, scales)) if scales || need == Need::Served => return Ok(resource),
            Some(_) => without_scale = true,
            None => {}
        }
        if next == 0 {
            let others = versions_of(client, &declared.group, &kind).await?;
            versions.extend(others.into_iter().filter(|other| *other != declared.version));
        }
        next += 1;
    }
    Err(if without_scale {
        TargetError::NoScale { api_version, kind }
    } else {
        TargetError::UnknownKind { api_version, kind }
    })
}

/// Returns the resource of a kind in one version, and whether it has `/scale`; `None` if the version is not served or
/// does not have the kind.
async fn served(
    client: &Client,
    version: &GroupVersion,
    kind: &str,
) -> Result<Option<(ApiResource, bool)>, TargetError> {
    let api_version = version.api_version();
    let list = if version.group.is_empty() {
        client.list_core_api_resources(&api_version).await
    } else {
        client.list_api_group_resources(&api_version).await
    };
    match list {
        Ok(list) => match resource(&list, version, kind) {
            Some((_, _, false)) => Err(TargetError::ClusterScoped {
                api_version,
                kind: kind.to_owned(),
            }),
            found => Ok(found.map(|(resource, scales, _)| (resource, scales))),
        },
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(TargetError::of(
            format!("discovering kind {kind} of {api_version}"),
            &error,
        )),
    }
}

/// Returns the resource of a kind, whether it has `/scale`, and whether its objects belong to a namespace.
fn resource(list: &APIResourceList, version: &GroupVersion, kind: &str) -> Option<(ApiResource, bool, bool)> {
    let mut resources = list.resources.iter();
    let found = resources.find(|resource| resource.kind == kind && !resource.name.contains('/'))?;
    let scale = format!("{}/scale", found.name);
    let namespaced = found.namespaced;
    let resource = ApiResource {
        group: version.group.clone(),
        version: version.version.clone(),
        api_version: version.api_version(),
        kind: kind.to_owned(),
        plural: found.name.clone(),
    };
    let scales = list.resources.iter().any(|resource| resource.name == scale);
    Some((resource, scales, namespaced))
}

/// Returns all served versions of a group, the preferred one first; empty if the group is not served.
async fn versions_of(client: &Client, group: &str, kind: &str) -> Result<Vec<String>, TargetError> {
    let failed = |error: kube::Error| {
        TargetError::of(
            format!("discovering the versions of group {group:?} for kind {kind}"),
            &error,
        )
    };
    if group.is_empty() {
        return Ok(client.list_core_api_versions().await.map_err(failed)?.versions);
    }
    let groups = client.list_api_groups().await.map_err(failed)?.groups;
    let Some(found) = groups.into_iter().find(|found| found.name == group) else {
        return Ok(Vec::new());
    };
    let preferred = found.preferred_version.map(|version| version.version);
    let mut versions: Vec<String> = found
        .versions
        .into_iter()
        .map(|version| version.version)
        .collect();
    versions.sort_by_key(|version| Some(version) != preferred.as_ref());
    Ok(versions)
}

#[cfg(test)]
mod tests;
