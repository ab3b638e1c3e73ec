//! The objects, by name.

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
    /// It is missing, or may not be read.
    pub async fn quorum(&self, name: &str) -> Result<RedisQuorum, ClusterError> {
        let api = Api::all(self.client.clone());
        get(&api, name, format!("RedisQuorum {name}")).await
    }

    /// The one of this name; the only one, where none is named.
    ///
    /// # Errors
    /// It is missing, there are several, or it may not be read.
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

    /// A lock of the namespace.
    ///
    /// # Errors
    /// It is missing, or may not be read.
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

    /// A lock of the namespace, its name on the masters, and its quorum.
    ///
    /// # Errors
    /// One of them is missing, not valid, or may not be read; another quorum is asked for than the lock's.
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

    /// All locks of the namespace, or of all; of one quorum, or of all.
    ///
    /// # Errors
    /// They may not be read.
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

    /// The API server answers for a namespace that does not exist as for one that is empty.
    async fn check_namespace(&self) -> Result<(), ClusterError> {
        if !self.namespace_given {
            return Ok(());
        }
        let api: Api<Namespace> = Api::all(self.client.clone());
        match api.get_opt(&self.namespace).await {
            Ok(None) => Err(ClusterError::NoNamespace(self.namespace.clone())),
            // A user that may not read namespaces sees only the objects in it.
            Ok(Some(_)) | Err(_) => Ok(()),
        }
    }

    /// The admission policies of the chart that are in effect, as the chart calls them. None where they may not be listed.
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

/// A quorum that was typed must be the lock's.
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

/// What a quorum comes down to.
pub(in crate::inspect) fn plan(object: &RedisQuorum) -> Result<QuorumPlan, ClusterError> {
    validate_quorum(object).map_err(|errors| ClusterError::Invalid {
        object: format!("RedisQuorum {}", object.name_any()),
        errors,
    })
}

impl DeclaredLock {
    /// Finds the name on the masters. Other problems of the object are no reason not to read its lock.
    ///
    /// # Errors
    /// An invalid lock name, or one that this namespace may not use.
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
