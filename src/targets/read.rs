//! Interprets the answer to a request for one object: found, gone, or unknown.
//!
//! Only a 404 for the object itself, of a kind that discovery shows to be served, means that the object is gone. Every
//! other failure leaves its state unknown, such as a kind, version or path that is not served, or a 404 for a
//! subresource: the API server may return one after any failure of its storage.

use kube::{Client, api::ApiResource, core::Status};

use super::{
    TargetError,
    kind::{Kinds, Need},
};
use crate::{api::target::TargetRef, lease::BootInstant};

/// The times of one read: before the request, and after the answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) asked: BootInstant,
    pub(super) answered: BootInstant,
}

/// One object, in a served version of its kind.
#[derive(Clone)]
pub(super) struct Place {
    client: Client,
    kinds: Kinds,
    reference: TargetRef,
    need: Need,
    pub(super) resource: ApiResource,
}

impl Place {
    /// Discovers the resource of the object.
    pub(super) async fn find(
        client: &Client,
        kinds: &Kinds,
        reference: &TargetRef,
        need: Need,
    ) -> Result<Self, TargetError> {
        let resource = kinds.find(client, reference, need).await?;
        Ok(Self::of(client, kinds, reference, need, resource))
    }

    /// Returns the place of an object whose resource is known.
    pub(super) fn of(
        client: &Client,
        kinds: &Kinds,
        reference: &TargetRef,
        need: Need,
        resource: ApiResource,
    ) -> Self {
        Self {
            client: client.clone(),
            kinds: kinds.clone(),
            reference: reference.clone(),
            need,
            resource,
        }
    }

    /// Marks the discovered resource as doubtful, because a request showed that it may no longer be served.
    pub(super) fn doubt(&self) {
        self.kinds.doubt(&self.reference, self.need);
    }

    /// Returns the answer to a request for this object; `None` if the object is gone, and an error if its
    /// state is unknown.
    pub(super) async fn settle<T>(
        &self,
        what: impl FnOnce() -> String,
        answer: kube::Result<T>,
    ) -> Result<Option<T>, TargetError> {
        let status = match answer {
            Ok(found) => return Ok(Some(found)),
            Err(kube::Error::Api(status)) if status.code == 404 || status.is_not_found() => status,
            Err(error) => return Err(TargetError::of(what(), &error)),
        };
        let (kinds, resource) = (&self.kinds, &self.resource);
        if names(&status, resource, &self.reference.name)
            && kinds
                .is_served(&self.client, &self.reference, self.need, resource)
                .await?
        {
            return Ok(None);
        }
        self.doubt();
        Err(TargetError::NotServed {
            what: what(),
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
            reason: status.message,
        })
    }
}

/// Reports whether a 404 is about this very object, and not about a subresource of it.
fn names(status: &Status, resource: &ApiResource, name: &str) -> bool {
    let Some(details) = &status.details else {
        return false;
    };
    status.reason == "NotFound"
        && details.name == name
        && details.group == resource.group
        && details.kind == resource.plural
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_404_that_names_the_object_is_about_the_object() {
        let resource = ApiResource {
            group: "apps".into(),
            version: "v1".into(),
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            plural: "deployments".into(),
        };
        let names_object = |reason: &str, details: serde_json::Value| {
            let status = json!({ "code": 404, "reason": reason, "message": "", "details": details });
            names(&serde_json::from_value(status).unwrap(), &resource, "web")
        };
        let of = |group: &str, kind: &str, name: &str| json!({ "group": group, "kind": kind, "name": name });
        assert!(names_object("NotFound", of("apps", "deployments", "web")));
        for (reason, details) in [
            // The path is not served: the answer is JSON without a name, or plain text.
            ("NotFound", json!({})),
            ("NotFound", json!(null)),
            ("Failed to parse error data", of("apps", "deployments", "web")),
            // The answer is about another object.
            ("NotFound", of("apps", "deployments/scale", "web")),
            ("NotFound", of("apps", "deployments", "other")),
            ("NotFound", of("", "namespaces", "web")),
            ("NotFound", of("extensions", "deployments", "web")),
            ("NotFound", of("apps", "statefulsets", "web")),
        ] {
            assert!(!names_object(reason, details.clone()), "{reason} {details}");
        }
    }
}
