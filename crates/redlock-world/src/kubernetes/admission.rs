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
    /// 403 for a role or a webhook, 422 for a `ValidatingAdmissionPolicy` without a reason.
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

/// The rules, by the numbers under which they were added.
#[derive(Clone, Default)]
pub(super) struct AdmissionRules {
    next: u64,
    rules: Vec<(u64, AdmissionRule)>,
}

impl AdmissionRules {
    pub(super) fn add(&mut self, rule: AdmissionRule) -> u64 {
        self.next += 1;
        self.rules.push((self.next, rule));
        self.next
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.rules.retain(|(other, _)| *other != number);
    }

    pub(super) fn check(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let refusal = self.rules.iter().find_map(|(_, rule)| rule(request));
        let Some(refusal) = refusal else { return Ok(()) };
        let (id, name) = (&request.key.resource, &request.key.name);
        let mut error = ApiError::forbidden(id, name, &refusal.message);
        if refusal.code != 403 {
            error.code = refusal.code;
            error.reason = if refusal.code == 422 {
                "Invalid"
            } else {
                "BadRequest"
            }
            .to_owned();
            error.message = format!("{id} \"{name}\" is invalid: : {}", refusal.message);
        }
        Err(error)
    }
}

impl std::fmt::Debug for AdmissionRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdmissionRules")
            .field("rules", &self.rules.len())
            .finish_non_exhaustive()
    }
}
