//! Reads the objects, by name.

use std::fmt::Debug;

use k8s_openapi::api::{admissionregistration::v1::ValidatingAdmissionPolicyBinding, core::v1::Namespace};
use kube::{
    Api, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
    core::{DeserializeGuard, error_boundary::InvalidObject},
};
use serde::de::DeserializeOwned;

use super::{Cluster, ClusterError};
use crate::{
    api::{
        LeaderLock, RedisQuorum,
        plan::QuorumPlan,
        validate::{Graces, LockNames, validate_lock, validate_quorum},
    },
    lease::LockName,
    targets::list_all,
};

const LOCK_NAME: &str = "spec.lockName";

/// A lock as it is declared, and its name on the masters.
#[derive(Clone, Debug)]
pub struct DeclaredLock {
    pub object: LeaderLock,
    pub lock_name: LockName,
}

/// An object that this version cannot read.
#[derive(Clone, Debug)]
pub struct Unread {
    pub namespace: String,
    pub name: String,
    pub reason: String,
}

type Listed = (Vec<LeaderLock>, Vec<Unread>);

impl Cluster {
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// # Errors
    /// Returns an error if the quorum is missing, or may not be read.
    pub async fn quorum(&self, name: &str) -> Result<RedisQuorum, ClusterError> {
        let api = Api::all(self.client.clone());
        get(&api, name, format!("RedisQuorum {name}")).await
    }

    /// Returns the quorum of this name, or the only one if no name is given.
    ///
    /// # Errors
    /// Returns an error if the quorum is missing or may not be read, or if there are several.
    pub async fn quorum_or_only(&self, name: Option<&str>) -> Result<RedisQuorum, ClusterError> {
        if let Some(name) = name {
            return self.quorum(name).await;
        }
        let api: Api<DeserializeGuard<RedisQuorum>> = Api::all(self.client.clone());
        let (found, unread) = list(&api, "reading RedisQuorums", None).await?;
        match (&found[..], &unread[..]) {
            ([], []) => Err(ClusterError::NoQuorum),
            ([only], []) => Ok(only.clone()),
            ([], [only]) => Err(ClusterError::Unreadable {
                object: format!("RedisQuorum {}", only.name),
                reason: only.reason.clone(),
            }),
            _ => {
                let unread = unread.into_iter().map(|unread| unread.name);
                let mut names: Vec<String> = found.iter().map(ResourceExt::name_any).chain(unread).collect();
                names.sort();
                Err(ClusterError::WhichQuorum(names.join(", ")))
            }
        }
    }

    /// Returns a lock of the namespace.
    ///
    /// # Errors
    /// Returns an error if the lock is missing, or may not be read.
    pub async fn lock(&self, name: &str) -> Result<LeaderLock, ClusterError> {
        if name.contains('/') {
            return Err(ClusterError::NotAName(name.to_owned()));
        }
        let api = Api::namespaced(self.client.clone(), &self.namespace);
        let found = get(&api, name, format!("LeaderLock {}/{name}", self.namespace)).await;
        match found {
            Err(ClusterError::NotFound(object)) => {
                self.check_namespace().await?;
                Err(ClusterError::NotFound(object))
            }
            found => found,
        }
    }

    /// Returns a lock of the namespace, its name on the masters, and its quorum.
    ///
    /// # Errors
    /// Returns an error if one of them is missing, invalid or may not be read, or if `quorum` is not that of
    /// the lock.
    pub async fn declared(
        &self,
        name: &str,
        quorum: Option<&str>,
    ) -> Result<(RedisQuorum, DeclaredLock), ClusterError> {
        let object = self.lock(name).await?;
        check_quorum(&object, quorum)?;
        let quorum = self.quorum(&object.spec.quorum_ref.name).await?;
        let declared = DeclaredLock::of(object, &plan(&quorum)?)?;
        Ok((quorum, declared))
    }

    /// Returns all locks of the namespace, or of all namespaces; of one quorum, or of all.
    ///
    /// # Errors
    /// Returns an error if they may not be read.
    pub async fn locks(&self, everywhere: bool, quorum: Option<&str>) -> Result<Listed, ClusterError> {
        let api: Api<DeserializeGuard<LeaderLock>> = if everywhere {
            Api::all(self.client.clone())
        } else {
            Api::namespaced(self.client.clone(), &self.namespace)
        };
        let selector = quorum.map(|name| format!("spec.quorumRef.name={name}"));
        let doing = if everywhere {
            "reading LeaderLocks of all namespaces".to_owned()
        } else {
            format!("reading LeaderLocks of namespace {}", self.namespace)
        };
        let listed = list(&api, &doing, selector).await?;
        if listed.0.is_empty() && listed.1.is_empty() && !everywhere {
            self.check_namespace().await?;
        }
        Ok(listed)
    }

    /// Checks a given namespace: the API server answers for one that does not exist as for an empty one.
    async fn check_namespace(&self) -> Result<(), ClusterError> {
        if !self.namespace_given {
            return Ok(());
        }
        let api: Api<Namespace> = Api::all(self.client.clone());
        match api.get_opt(&self.namespace).await {
            Ok(None) => Err(ClusterError::NoNamespace(self.namespace.clone())),
            // A user that may not read namespaces may still read the objects in it.
            Ok(Some(_)) | Err(_) => Ok(()),
        }
    }

    /// Returns the active admission policies of the chart by their names there; `None` if they may not be
    /// listed.
    pub async fn policies(&self) -> Option<Vec<String>> {
        let ours = ListParams::default().labels("app.kubernetes.io/name=redlock-operator");
        let of_release = |name: String| name.rsplit('.').next().unwrap_or_default().to_owned();
        let validating: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.client.clone());
        let bindings = validating.list(&ours).await.ok()?;
        let mut names: Vec<String> = bindings.iter().map(|one| of_release(one.name_any())).collect();
        let kind = GroupVersionKind::gvk(
            "admissionregistration.k8s.io",
            "v1",
            "MutatingAdmissionPolicyBinding",
        );
        let mutating: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind));
        // Not served before Kubernetes 1.36.
        let bindings = mutating.list(&ours).await.into_iter().flatten();
        names.extend(bindings.map(|one| format!("{} (on creation)", of_release(one.name_any()))));
        Some(names)
    }

    pub(in crate::inspect) fn locks_api(&self) -> Api<LeaderLock> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(in crate::inspect) fn client(&self) -> kube::Client {
        self.client.clone()
    }
}

/// Checks that a quorum that the user gave is that of the lock.
pub(in crate::inspect) fn check_quorum(object: &LeaderLock, asked: Option<&str>) -> Result<(), ClusterError> {
    let actual = &object.spec.quorum_ref.name;
    match asked {
        Some(asked) if asked != actual => Err(ClusterError::OtherQuorum {
            lock: object.name_any(),
            actual: actual.clone(),
            asked: asked.to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Returns the settings that a quorum results in.
pub(in crate::inspect) fn plan(object: &RedisQuorum) -> Result<QuorumPlan, ClusterError> {
    validate_quorum(object).map_err(|errors| ClusterError::Invalid {
        object: format!("RedisQuorum {}", object.name_any()),
        errors,
    })
}

impl DeclaredLock {
    /// Finds the name on the masters. Other problems of the object do not prevent its lock from being read.
    ///
    /// # Errors
    /// Returns an error if the lock name is invalid, or may not be used in this namespace.
    pub fn of(object: LeaderLock, quorum: &QuorumPlan) -> Result<Self, ClusterError> {
        let namespace = object.namespace().unwrap_or_default();
        let called = format!("{namespace}/{}", object.name_any());
        let mut errors = match validate_lock(&object, quorum, LockNames::OfTheNamespace, &Graces::default()) {
            Ok(plan) => {
                let lock_name = plan.lock_name;
                return Ok(Self { object, lock_name });
            }
            Err(errors) => errors,
        };
        errors.retain(|error| error.field == LOCK_NAME);
        let text = object.spec.lock_name.clone().unwrap_or_else(|| called.clone());
        match LockName::parse(&text) {
            Ok(lock_name) if errors.is_empty() => Ok(Self { object, lock_name }),
            _ => Err(ClusterError::Invalid {
                object: format!("LeaderLock {called}"),
                errors,
            }),
        }
    }
}

async fn get<K>(api: &Api<K>, name: &str, object: String) -> Result<K, ClusterError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let doing = format!("reading {object}");
    api.get(name)
        .await
        .map_err(|error| ClusterError::asked(&doing, Some(&object), &error))
}

async fn list<K>(
    api: &Api<DeserializeGuard<K>>,
    doing: &str,
    selector: Option<String>,
) -> Result<(Vec<K>, Vec<Unread>), ClusterError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let which = ListParams {
        field_selector: selector,
        ..ListParams::default()
    };
    let mut unread = Vec::new();
    let found = list_all(api, which, |guard| {
        let invalid = |invalid: InvalidObject| {
            unread.push(Unread {
                namespace: invalid.metadata.namespace.unwrap_or_default(),
                name: invalid.metadata.name.unwrap_or_default(),
                reason: invalid.error,
            });
        };
        guard.0.map_err(invalid).ok()
    });
    let found = found
        .await
        .map_err(|error| ClusterError::asked(doing, None, &error))?;
    Ok((found, unread))
}
