//! Validates objects: custom resources against their schema, built-in kinds as far as the operator depends on it.

use serde_json::Value;

use super::{
    error::{ApiError, FieldError},
    object::{finalizers, is_deleting, meta},
    path::FieldPath,
    registry::ResourceKind,
    resource::ResourceId,
    schema::Schema,
};

/// Refuses an object that is not valid.
pub(super) fn check(kind: &ResourceKind, before: Option<&Value>, after: &Value) -> Result<(), ApiError> {
    let mut errors = Vec::new();
    names(after, &mut errors);
    if let Some(before) = before {
        new_finalizers(kind, before, after, &mut errors);
    }
    match &kind.schema {
        Some(schema) => {
            schema.check(&FieldPath::Root, after, true, &mut errors);
            if schema.has_rules && errors.iter().any(prevents_rules) {
                errors.push(FieldError::invalid("<nil>", &Value::Null, UNCHECKED));
            }
        }
        None => built_in(kind, before, after, &mut errors),
    }
    if errors.is_empty() {
        Ok(())
    } else if kind.id == ResourceId::EVENTS {
        // Events are validated in the form of the core group.
        let core = ResourceKind {
            id: ResourceId::CORE_EVENTS,
            ..kind.clone()
        };
        Err(ApiError::invalid(&core, meta(after, "name"), &errors))
    } else {
        Err(ApiError::invalid(kind, meta(after, "name"), &errors))
    }
}

const UNCHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing \
                         errors to complete validation";

/// Reports whether the server does not evaluate the CEL rules of an object with this error.
fn prevents_rules(error: &FieldError) -> bool {
    matches!(
        error.reason,
        "FieldValueNotSupported"
            | "FieldValueRequired"
            | "FieldValueTooLong"
            | "FieldValueTooMany"
            | "FieldValueTypeInvalid"
    )
}

fn names(object: &Value, errors: &mut Vec<FieldError>) {
    let name = meta(object, "name");
    let allowed =
        |one: char| one.is_ascii_lowercase() || one.is_ascii_digit() || matches!(one, '-' | '.' | ':');
    if name.is_empty() {
        let mut error = FieldError::required("metadata.name");
        error.message.push_str(": name or generateName is required");
        errors.push(error);
    } else if name.len() > 253 || !name.chars().all(allowed) {
        let why =
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'";
        errors.push(FieldError::invalid("metadata.name", &name.into(), why));
    }
    let annotations = object["metadata"]["annotations"].as_object();
    let text = |value: &Value| value.as_str().map_or(0, str::len);
    let size: usize = annotations
        .into_iter()
        .flatten()
        .map(|(key, value)| key.len() + text(value))
        .sum();
    if size > 256 * 1024 {
        errors.push(FieldError {
            field: "metadata.annotations".to_owned(),
            reason: "FieldValueTooLong",
            message: "Too long: may not be more than 262144 bytes".to_owned(),
        });
    }
}

fn new_finalizers(kind: &ResourceKind, before: &Value, after: &Value, errors: &mut Vec<FieldError>) {
    if !is_deleting(before) {
        return;
    }
    let former = finalizers(before);
    let mut added: Vec<String> = finalizers(after)
        .into_iter()
        .filter(|one| !former.contains(one))
        .map(|one| format!("{one:?}"))
        .collect();
    added.sort();
    if !added.is_empty() {
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            added.join(", ")
        );
        errors.push(FieldError::forbidden("metadata.finalizers", &why));
        if kind.is_custom() {
            // The server validates the metadata of a custom resource twice.
            errors.extend(errors.last().cloned());
        }
    }
}

fn built_in(kind: &ResourceKind, before: Option<&Value>, after: &Value, errors: &mut Vec<FieldError>) {
    if kind.id == ResourceId::EVENTS && before.is_none() {
        event(after, errors);
    }
    let counts: &[&str] = match &*kind.id.plural {
        "deployments" | "statefulsets" | "replicasets" => &["/spec/replicas"],
        "jobs" => &["/spec/parallelism", "/spec/completions", "/spec/backoffLimit"],
        "leases" => &["/spec/leaseTransitions"],
        _ => &[],
    };
    for path in counts {
        let field = path[1..].replace('/', ".");
        match after.pointer(path) {
            Some(value) if value.as_i64().is_some_and(|count| count < 0) => {
                errors.push(FieldError::invalid(
                    field,
                    value,
                    "must be greater than or equal to 0",
                ));
            }
            _ => {}
        }
    }
    if let Some(seconds) = after
        .pointer("/spec/leaseDurationSeconds")
        .filter(|_| kind.id.plural == "leases")
        && seconds.as_i64().is_some_and(|seconds| seconds <= 0)
    {
        errors.push(FieldError::invalid(
            "spec.leaseDurationSeconds",
            seconds,
            "must be greater than 0",
        ));
    }
    let fixed = match &*kind.id.plural {
        "deployments" | "statefulsets" | "replicasets" | "daemonsets" | "jobs" => "/spec/selector",
        _ => return,
    };
    if let Some(before) = before
        && before.pointer(fixed) != after.pointer(fixed)
    {
        let value = after.pointer(fixed).unwrap_or(&Value::Null);
        errors.push(FieldError::invalid("spec.selector", value, "field is immutable"));
    }
}

/// The longest note of an Event.
const NOTE: usize = 1_024;

fn event(event: &Value, errors: &mut Vec<FieldError>) {
    let text = |field: &str| event[field].as_str().unwrap_or_default();
    for field in [
        "eventTime",
        "reportingController",
        "reportingInstance",
        "action",
        "reason",
    ] {
        if text(field).is_empty() {
            errors.push(FieldError::required(field));
        }
        if field == "reportingController" && text(field).is_empty() {
            for why in [
                "name part must be non-empty",
                "name part must consist of alphanumeric characters",
            ] {
                errors.push(FieldError::invalid(field, &"".into(), why));
            }
        }
    }
    let kind = text("type");
    if !["Normal", "Warning"].contains(&kind) {
        errors.push(FieldError::invalid(
            "type",
            &"".into(),
            &format!("has invalid value: {kind}"),
        ));
    }
    if text("note").len() > NOTE {
        errors.push(FieldError::invalid(
            "message",
            &"".into(),
            "can have at most 1024 characters",
        ));
    }
}

impl Schema {
    fn check(&self, at: &FieldPath<'_>, value: &Value, is_root: bool, errors: &mut Vec<FieldError>) {
        if value.is_null() && self.is_nullable {
            return;
        }
        if !self.has_type(value) {
            let wanted = self.value_type.as_deref().unwrap_or("integer or string");
            errors.push(FieldError {
                reason: "FieldValueTypeInvalid",
                ..FieldError::invalid(
                    at.to_string(),
                    value,
                    &format!("{at} in body must be of type {wanted}"),
                )
            });
            return;
        }
        if !self.choices.is_empty() && !self.choices.contains(value) {
            let choices: Vec<String> = self.choices.iter().map(ToString::to_string).collect();
            errors.push(FieldError {
                field: at.to_string(),
                reason: "FieldValueNotSupported",
                message: format!(
                    "Unsupported value: {value}: supported values: {}",
                    choices.join(", ")
                ),
            });
        }
        match value {
            Value::Object(fields) => self.check_map(at, fields, is_root, errors),
            Value::Array(items) => self.check_list(at, items, errors),
            Value::Number(number) => {
                self.check_number(at, number.as_f64().unwrap_or_default(), value, errors)
            }
            Value::String(text) => self.check_text(at, text, value, errors),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn has_type(&self, value: &Value) -> bool {
        if self.is_int_or_string {
            return value.is_i64() || value.is_u64() || value.is_string();
        }
        match self.value_type.as_deref() {
            Some("object") => value.is_object(),
            Some("array") => value.is_array(),
            Some("string") => value.is_string(),
            Some("boolean") => value.is_boolean(),
            Some("number") => value.is_number(),
            Some("integer") => match self.format.as_deref() {
                Some("int32") => value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
                _ => value.is_i64() || value.is_u64(),
            },
            _ => true,
        }
    }

    fn check_map(
        &self,
        at: &FieldPath<'_>,
        fields: &serde_json::Map<String, Value>,
        is_root: bool,
        errors: &mut Vec<FieldError>,
    ) {
        for name in self.required.iter().filter(|name| !fields.contains_key(*name)) {
            errors.push(FieldError::required(at.field(name).to_string()));
        }
        let most = self.bounds.max_properties.unwrap_or(u64::MAX);
        if fields.len() as u64 > most {
            errors.push(too_many(at, fields.len(), most));
        }
        for (name, value) in fields {
            if is_root && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                continue;
            }
            if let Some(schema) = self.property(name) {
                schema.check(&at.field(name), value, false, errors);
            }
        }
    }

    fn check_list(&self, at: &FieldPath<'_>, items: &[Value], errors: &mut Vec<FieldError>) {
        let (least, most) = (self.bounds.min_items, self.bounds.max_items.unwrap_or(u64::MAX));
        if items.len() as u64 > most {
            errors.push(too_many(at, items.len(), most));
        }
        if let Some(least) = least.filter(|least| (items.len() as u64) < *least) {
            let why = format!("{at} in body should have at least {least} items");
            errors.push(FieldError::invalid(
                at.to_string(),
                &Value::from(items.len()),
                &why,
            ));
        }
        let mut keys = std::collections::BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let path = at.index(index);
            if self.list_type != super::shape::ListType::Atomic
                && !keys.insert(super::shape::element_key(&self.list_type, item))
            {
                errors.push(FieldError {
                    field: path.to_string(),
                    reason: "FieldValueDuplicate",
                    message: format!("Duplicate value: {item}"),
                });
            }
            if let Some(schema) = &self.items {
                schema.check(&path, item, false, errors);
            }
        }
    }

    fn check_number(&self, at: &FieldPath<'_>, number: f64, value: &Value, errors: &mut Vec<FieldError>) {
        if let Some(least) = self.bounds.minimum.filter(|least| number < *least) {
            let why = format!("{at} in body should be greater than or equal to {least}");
            errors.push(FieldError::invalid(at.to_string(), value, &why));
        }
        if let Some(most) = self.bounds.maximum.filter(|most| number > *most) {
            let why = format!("{at} in body should be less than or equal to {most}");
            errors.push(FieldError::invalid(at.to_string(), value, &why));
        }
    }

    fn check_text(&self, at: &FieldPath<'_>, text: &str, value: &Value, errors: &mut Vec<FieldError>) {
        let length = text.chars().count() as u64;
        if let Some(least) = self.bounds.min_length.filter(|least| length < *least) {
            let why = format!("{at} in body should be at least {least} chars long");
            errors.push(FieldError::invalid(at.to_string(), value, &why));
        }
        if let Some(most) = self.bounds.max_length.filter(|most| length > *most) {
            errors.push(FieldError {
                field: at.to_string(),
                reason: "FieldValueTooLong",
                message: format!("Too long: may not be more than {most} bytes"),
            });
        }
        if self.format.as_deref() == Some("date-time") && text.parse::<jiff::Timestamp>().is_err() {
            let why = format!("{at} in body must be of type date-time: {value}");
            errors.push(FieldError::invalid(at.to_string(), value, &why));
        }
    }
}

fn too_many(at: &FieldPath<'_>, found: usize, most: u64) -> FieldError {
    FieldError {
        field: at.to_string(),
        reason: "FieldValueTooMany",
        message: format!("Too many: {found}: must have at most {most} items"),
    }
}
