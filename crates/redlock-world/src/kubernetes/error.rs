//! The errors of the API server, as `Status` objects.

use serde_json::{Value, json};

use super::{registry::ResourceKind, resource::ResourceId};

/// A failed request: the parts of the `Status` object that clients read.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    pub code: u16,
    pub reason: String,
    pub message: String,
    pub details: Value,
}

/// One field that validation refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldError {
    pub(super) field: String,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl FieldError {
    pub(super) fn required(field: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            reason: "FieldValueRequired",
            message: "Required value".to_owned(),
        }
    }

    pub(super) fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Self {
        Self {
            field: field.into(),
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {value}: {why}"),
        }
    }

    pub(super) fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Self {
            field: field.into(),
            reason: "FieldValueForbidden",
            message: format!("Forbidden: {why}"),
        }
    }
}

impl ApiError {
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.to_owned(),
            message: message.into(),
            details: Value::Null,
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.code == 404
    }

    pub fn is_conflict(&self) -> bool {
        self.code == 409 && self.reason == "Conflict"
    }

    pub(super) fn not_found(id: &ResourceId, name: &str) -> Self {
        Self::of(404, "NotFound", id, name, format!("{id} \"{name}\" not found"))
    }

    pub(super) fn already_exists(id: &ResourceId, name: &str) -> Self {
        Self::of(
            409,
            "AlreadyExists",
            id,
            name,
            format!("{id} \"{name}\" already exists"),
        )
    }

    pub(super) fn conflict(id: &ResourceId, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {id} \"{name}\": {why}");
        Self::of(409, "Conflict", id, name, message)
    }

    /// A deletion whose precondition does not hold: its details name the kind, not the resource.
    pub(super) fn unmet(kind: &ResourceKind, name: &str, why: &str) -> Self {
        let mut error = Self::conflict(&kind.id, name, why);
        error.message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            kind.qualified()
        );
        error.details["kind"] = kind.kind.clone().into();
        error
    }

    pub(super) fn modified(id: &ResourceId, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(id, name, why)
    }

    pub(super) fn wrong_uid(id: &ResourceId, name: &str, wanted: &str, found: &str) -> Self {
        let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}");
        Self::conflict(id, name, &why)
    }

    /// An update of a kind whose updates need a version.
    pub(super) fn without_version(id: &ResourceId, name: &str) -> Self {
        let error = FieldError::invalid(
            "metadata.resourceVersion",
            &Value::from(0),
            "must be specified for an update",
        );
        let message = format!("{id} \"{name}\" is invalid: {}: {}", error.field, error.message);
        let mut refused = Self::of(422, "Invalid", id, name, message);
        refused.details["causes"] = causes(&[error]);
        refused
    }

    pub(super) fn forbidden(id: &ResourceId, name: &str, why: &str) -> Self {
        Self::of(
            403,
            "Forbidden",
            id,
            name,
            format!("{id} \"{name}\" is forbidden: {why}"),
        )
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// A refusal with this code, for a reason outside the request.
    pub(super) fn refused(code: u16, message: impl Into<String>) -> Self {
        let reason = match code {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            409 => "Conflict",
            410 => "Expired",
            422 => "Invalid",
            429 => "TooManyRequests",
            500 => "InternalError",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "Unknown",
        };
        let mut error = Self::new(code, reason, message);
        if code == 429 {
            error.details = json!({"retryAfterSeconds": 1});
        }
        error
    }

    /// A path that is not served.
    pub(super) fn no_resource() -> Self {
        let mut error = Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        );
        error.details = json!({});
        error
    }

    /// A subresource that the CRD of an object does not have.
    pub(super) fn no_subresource(id: &ResourceId, name: &str) -> Self {
        let mut error = Self::of(404, "NotFound", id, name, String::new());
        error.message = Self::no_resource().message;
        error
    }

    pub(super) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub(super) fn invalid(kind: &ResourceKind, name: &str, errors: &[FieldError]) -> Self {
        let mut texts: Vec<String> = errors
            .iter()
            .map(|error| format!("{}: {}", error.field, error.message))
            .collect();
        texts.dedup();
        let text = match &texts[..] {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let called = kind.qualified();
        let mut refused = Self::new(422, "Invalid", format!("{called} \"{name}\" is invalid: {text}"));
        refused.details = json!({"kind": kind.kind, "causes": causes(errors)});
        for (field, text) in [("name", name), ("group", &*kind.id.group)] {
            if !text.is_empty() {
                refused.details[field] = text.into();
            }
        }
        refused
    }

    /// Options of a request that are not valid.
    pub(super) fn invalid_options(kind: &str, error: FieldError) -> Self {
        let message = format!(
            "{kind}.meta.k8s.io \"\" is invalid: {}: {}",
            error.field, error.message
        );
        let mut refused = Self::new(422, "Invalid", message);
        refused.details = json!({"group": "meta.k8s.io", "kind": kind, "causes": causes(&[error])});
        refused
    }

    /// A patch whose result is no object of the kind.
    pub(super) fn invalid_patch(why: &str) -> Self {
        let error = FieldError::invalid("patch", &Value::Null, why);
        let message = format!(" \"\" is invalid: {}: {}", error.field, error.message);
        let mut refused = Self::new(422, "Invalid", message);
        refused.details = json!({"causes": causes(&[error])});
        refused
    }

    fn of(code: u16, reason: &str, id: &ResourceId, name: &str, message: String) -> Self {
        let mut error = Self::new(code, reason, message);
        error.details = if id.group.is_empty() {
            json!({"name": name, "kind": id.plural})
        } else {
            json!({"name": name, "group": id.group, "kind": id.plural})
        };
        error
    }

    /// Returns the `Status` object.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.clone().into();
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}

fn causes(errors: &[FieldError]) -> Value {
    let causes = errors
        .iter()
        .map(|error| json!({"reason": error.reason, "message": error.message, "field": error.field}));
    causes.collect()
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.code, self.reason, self.message)
    }
}

impl std::error::Error for ApiError {}
