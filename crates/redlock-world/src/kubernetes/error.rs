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

    pub(super) fn modified(id: &ResourceId, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(id, name, why)
    }

    pub(super) fn wrong_uid(id: &ResourceId, name: &str, wanted: &str, found: &str) -> Self {
        let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}");
        Self::conflict(id, name, &why)
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

    pub(super) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub(super) fn invalid(kind: &ResourceKind, name: &str, errors: &[FieldError]) -> Self {
        let texts: Vec<String> = errors
            .iter()
            .map(|error| format!("{}: {}", error.field, error.message))
            .collect();
        let text = match &texts[..] {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let called = kind.qualified();
        let causes: Vec<Value> = errors
            .iter()
            .map(|error| json!({"reason": error.reason, "message": error.message, "field": error.field}))
            .collect();
        let mut refused = Self::new(422, "Invalid", format!("{called} \"{name}\" is invalid: {text}"));
        refused.details = json!({"name": name, "group": kind.id.group, "kind": kind.kind, "causes": causes});
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
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.code, self.reason, self.message)
    }
}

impl std::error::Error for ApiError {}
