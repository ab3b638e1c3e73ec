//! Rules by which the server refuses requests: roles, policies and webhooks of a cluster.

use std::sync::Arc;

use serde_json::Value;

use super::{access::Verb, error::ApiError, object::ObjectKey};

/// A request before it is executed.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionRequest<'a> {
    pub caller: &'a str,
    pub verb: Verb,
    /// The key; its name is empty for a list, a watch and a creation with `generateName`.
    pub key: &'a ObjectKey,
    /// `status`, `scale`, or empty.
    pub subresource: &'a str,
    pub before: Option<&'a Value>,
    /// The object as it would be stored; `None` for reads and deletions.
    pub after: Option<&'a Value>,
}

/// A refusal by a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionRefusal {
    /// 403 for a role or a webhook, 422 for a `ValidatingAdmissionPolicy` without a reason, 500 for a webhook that fails.
    pub code: u16,
    pub message: String,
}

impl AdmissionRefusal {
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self {
            code: 403,
            message: message.into(),
        }
    }
}

/// A rule: it refuses a request or lets it pass. It must not call the server.
pub type AdmissionRule = Arc<dyn Fn(&AdmissionRequest<'_>) -> Option<AdmissionRefusal> + Send + Sync>;

/// A rule that changes an object before it is validated, as a `MutatingAdmissionPolicy` does. It must not call the server.
pub type MutationRule = Arc<dyn Fn(&AdmissionRequest<'_>, &mut Value) + Send + Sync>;

/// The rules, by the numbers under which they were added.
#[derive(Clone, Default)]
pub(super) struct AdmissionRules {
    next: u64,
    rules: Vec<(u64, AdmissionRule)>,
    mutations: Vec<(u64, MutationRule)>,
}

impl AdmissionRules {
    pub(super) fn add(&mut self, rule: AdmissionRule) -> u64 {
        self.next += 1;
        self.rules.push((self.next, rule));
        self.next
    }

    pub(super) fn add_mutation(&mut self, rule: MutationRule) -> u64 {
        self.next += 1;
        self.mutations.push((self.next, rule));
        self.next
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.rules.retain(|(other, _)| *other != number);
        self.mutations.retain(|(other, _)| *other != number);
    }

    /// Changes an object that is about to be stored; the request has no `after`.
    pub(super) fn mutate(&self, request: &AdmissionRequest<'_>, object: &mut Value) {
        for (_, rule) in &self.mutations {
            rule(request, object);
        }
    }

    pub(super) fn check(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let refusal = self.rules.iter().find_map(|(_, rule)| rule(request));
        let Some(refusal) = refusal else { return Ok(()) };
        let (id, name) = (&request.key.resource, &request.key.name);
        Err(match refusal.code {
            403 => ApiError::forbidden(id, name, &refusal.message),
            422 => ApiError::refused(422, format!("{id} \"{name}\" is invalid: {}", refusal.message)),
            code => ApiError::refused(code, refusal.message),
        })
    }
}

impl std::fmt::Debug for AdmissionRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdmissionRules")
            .field("rules", &self.rules.len())
            .finish_non_exhaustive()
    }
}
