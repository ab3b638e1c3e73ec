//! The deletion of objects: grace periods, finalizers and propagation.

use std::sync::Arc;

use serde_json::Value;

use super::{
    access::Verb,
    error::{ApiError, FieldError},
    metadata::bump_generation,
    object::{ObjectKey, finalizers, is_deleting, meta, set_finalizers},
    registry::ResourceKind,
    resource::ResourceId,
    state::{State, second},
    write::{WriteOptions, WriteRequest},
};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// How a deletion affects the dependents of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

impl Propagation {
    /// Reads a policy; an empty one is that of the kind.
    pub(super) fn read(text: &str) -> Result<Option<Self>, ApiError> {
        match text {
            "" => Ok(None),
            "Background" => Ok(Some(Self::Background)),
            "Foreground" => Ok(Some(Self::Foreground)),
            "Orphan" => Ok(Some(Self::Orphan)),
            other => {
                let error = FieldError {
                    field: "propagationPolicy".to_owned(),
                    reason: "FieldValueNotSupported",
                    message: format!(
                        "Unsupported value: {other:?}: supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
                    ),
                };
                Err(ApiError::invalid_options("DeleteOptions", error))
            }
        }
    }
}

/// The options of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    pub grace_seconds: Option<i64>,
    pub propagation: Option<Propagation>,
    /// The required UID.
    pub uid: Option<String>,
    /// The required resourceVersion.
    pub version: Option<String>,
    pub is_dry_run: bool,
}

impl DeleteOptions {
    /// Returns the options by which a kubelet removes a pod, and `kubectl delete --force` as well.
    pub fn now() -> Self {
        Self {
            grace_seconds: Some(0),
            ..Self::default()
        }
    }

    pub(super) fn read(body: &Value) -> Result<Self, ApiError> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Ok(Self {
            grace_seconds: body["gracePeriodSeconds"].as_i64(),
            propagation: Propagation::read(body["propagationPolicy"].as_str().unwrap_or_default())?,
            uid: text(&body["preconditions"]["uid"]),
            version: text(&body["preconditions"]["resourceVersion"]),
            is_dry_run: body["dryRun"].as_array().is_some_and(|all| !all.is_empty()),
        })
    }
}

/// The outcome of a deletion.
#[derive(Clone, Debug)]
pub(super) enum Deleted {
    /// The object remains until its finalizers are gone or its grace period is over.
    Pending(Arc<Value>),
    Gone(Arc<Value>),
}

impl State {
    pub(super) fn delete(
        &mut self,
        caller: &str,
        key: &ObjectKey,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        let (kind, before) = (self.kind(&key.resource)?, self.get(key)?);
        check_preconditions(&kind, &before, options)?;
        let protected = ["kube-system", "default", "kube-public"].contains(&&*key.name);
        if key.resource == ResourceId::NAMESPACES && protected {
            return Err(ApiError::forbidden(
                &key.resource,
                &key.name,
                "this namespace may not be deleted",
            ));
        }
        let write = WriteOptions::default();
        let request = WriteRequest {
            caller,
            verb: Verb::Delete,
            options: &write,
        };
        self.admit(request, key, Some(&before), None)?;
        let mut after = (*before).clone();
        propagate(&kind, &mut after, options);
        if key.resource == ResourceId::DEFINITIONS && !is_deleting(&after) {
            let mut all = finalizers(&after);
            all.push(CLEANUP.to_owned());
            set_finalizers(&mut after, &all);
        }
        let keeps = self.mark(&kind, &mut after, options);
        if options.is_dry_run {
            let after = Arc::new(after);
            return Ok(if keeps {
                Deleted::Pending(after)
            } else {
                Deleted::Gone(after)
            });
        }
        if !keeps {
            let gone = self.commit(request.author(), key, None);
            return Ok(Deleted::Gone(if kind.id == ResourceId::PODS {
                Arc::new(self.ended(&gone))
            } else {
                gone
            }));
        }
        if after == *before {
            return Ok(Deleted::Pending(before));
        }
        Ok(Deleted::Pending(self.commit(request.author(), key, Some(after))))
    }

    /// Returns a pod that is removed, as the answer shows it: without a grace period.
    fn ended(&self, pod: &Value) -> Value {
        let mut pod = pod.clone();
        if !is_deleting(&pod) {
            bump_generation(&mut pod);
            pod["metadata"]["deletionTimestamp"] = self.second().into();
        }
        pod["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        pod
    }

    /// Marks an object as being deleted; returns false if nothing keeps it.
    fn mark(&self, kind: &ResourceKind, object: &mut Value, options: &DeleteOptions) -> bool {
        if kind.id == ResourceId::PODS {
            let asked = options.grace_seconds;
            if let Some(keeps) = self.mark_pod(object, asked) {
                return keeps;
            }
        }
        let in_spec = kind.id == ResourceId::NAMESPACES
            && object["spec"]["finalizers"]
                .as_array()
                .is_some_and(|all| !all.is_empty());
        if finalizers(object).is_empty() && !in_spec {
            return false;
        }
        if !is_deleting(object) {
            object["metadata"]["deletionTimestamp"] = self.second().into();
            bump_generation(object);
        }
        if in_spec {
            object["status"]["phase"] = "Terminating".into();
        } else {
            object["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        }
        true
    }

    /// Marks a pod that has a grace period; `None` if its grace period is over.
    fn mark_pod(&self, pod: &mut Value, asked: Option<i64>) -> Option<bool> {
        let running = pod["metadata"]["deletionGracePeriodSeconds"].as_i64();
        let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let own = pod["spec"]["terminationGracePeriodSeconds"]
            .as_i64()
            .unwrap_or(30);
        let is_bound = !pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
        let mut grace = asked.unwrap_or(own);
        if grace < 0 {
            grace = 1;
        }
        if !is_bound || ended {
            grace = 0;
        }
        if let Some(left) = running.filter(|_| is_deleting(pod)) {
            if left == 0 || (grace < left && grace == 0) {
                return None;
            }
            if asked.is_none() && !ended && is_bound || grace >= left {
                return Some(true);
            }
        } else if grace == 0 {
            return None;
        }
        let end = match (running, meta(pod, "deletionTimestamp").parse::<jiff::Timestamp>()) {
            (Some(left), Ok(end)) => end + jiff::SignedDuration::from_secs(grace - left),
            _ => self.now() + jiff::SignedDuration::from_secs(grace),
        };
        if !is_deleting(pod) {
            bump_generation(pod);
        }
        pod["metadata"]["deletionTimestamp"] = second(end).into();
        pod["metadata"]["deletionGracePeriodSeconds"] = grace.into();
        Some(true)
    }

    /// Reports whether the CRD of a custom resource is being deleted.
    pub(super) fn is_definition_ending(&self, id: &ResourceId) -> bool {
        self.find(&definition_of(id))
            .is_some_and(|definition| is_deleting(definition))
    }

    /// Deletes the objects of CRDs that are being deleted, and the CRDs when no object is left.
    pub(super) fn end_definitions(&mut self) {
        let definitions = self.objects.get(&ResourceId::DEFINITIONS).into_iter().flatten();
        let ending: Vec<String> = definitions
            .filter(|(_, definition)| is_deleting(definition))
            .map(|((_, name), _)| name.clone())
            .collect();
        for name in ending {
            self.end_definition(&name);
        }
    }

    fn end_definition(&mut self, name: &str) {
        const CALLER: &str = "system:crd-finalizer";
        let (plural, group) = name.split_once('.').unwrap_or((name, ""));
        let id = ResourceId::new(group, plural);
        let left = self.objects.get(&id).into_iter().flatten();
        let left: Vec<ObjectKey> = left
            .filter(|(_, object)| !is_deleting(object))
            .map(|((namespace, name), _)| ObjectKey::new(id.clone(), namespace, name))
            .collect();
        for key in left {
            // A refusal by a rule of the world leaves the object, and so the CRD.
            drop(self.delete(CALLER, &key, &DeleteOptions::default()));
        }
        let key = definition_of(&id);
        let Some(mut definition) = self.find(&key).map(|definition| (**definition).clone()) else {
            return;
        };
        if self.objects.get(&id).is_none_or(|all| all.is_empty()) {
            let rest: Vec<String> = finalizers(&definition)
                .into_iter()
                .filter(|one| one != CLEANUP)
                .collect();
            set_finalizers(&mut definition, &rest);
            let write = WriteOptions::default();
            let request = WriteRequest {
                caller: CALLER,
                verb: Verb::Update,
                options: &write,
            };
            self.commit(
                request.author(),
                &key,
                Some(definition).filter(|_| !rest.is_empty()),
            );
        }
    }
}

fn check_preconditions(kind: &ResourceKind, object: &Value, options: &DeleteOptions) -> Result<(), ApiError> {
    for (what, field, wanted) in [
        ("UID", "uid", &options.uid),
        ("ResourceVersion", "resourceVersion", &options.version),
    ] {
        let found = meta(object, field);
        if let Some(wanted) = wanted
            .as_deref()
            .filter(|wanted| !wanted.is_empty() && *wanted != found)
        {
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). \
                 The object might have been deleted and then recreated"
            );
            return Err(ApiError::unmet(kind, meta(object, "name"), &why));
        }
    }
    Ok(())
}

fn definition_of(id: &ResourceId) -> ObjectKey {
    ObjectKey::new(ResourceId::DEFINITIONS, "", format!("{}.{}", id.plural, id.group))
}

/// Adds or removes the finalizers by which the garbage collector handles dependents.
fn propagate(kind: &ResourceKind, object: &mut Value, options: &DeleteOptions) {
    let present = finalizers(object);
    let policy = match options.propagation {
        Some(policy) => policy,
        None if present.iter().any(|one| one == ORPHAN) => Propagation::Orphan,
        None if present.iter().any(|one| one == FOREGROUND) => Propagation::Foreground,
        // For compatibility, batch/v1 orphans by default.
        None if kind.id == ResourceId::JOBS => Propagation::Orphan,
        None => Propagation::Background,
    };
    let wanted = match policy {
        Propagation::Background => None,
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Orphan => Some(ORPHAN),
    };
    let rest = present
        .into_iter()
        .filter(|one| one != ORPHAN && one != FOREGROUND);
    let all: Vec<String> = rest.chain(wanted.map(str::to_owned)).collect();
    set_finalizers(object, &all);
}
