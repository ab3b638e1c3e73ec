//! The rules of the action Patch.

use serde_json::Value;

use super::name::is_label_key;
use super::problems::{FieldError, Problems, Quoted};
use crate::api::bounds::{VALUE_LIMIT, excess};
use crate::api::plan::{FieldPlan, PatchPlan, StatusCheck};
use crate::api::pointer::Pointer;
use crate::api::reasons;
use crate::api::target::{CHECK_LIMIT, FIELD_LIMIT, PatchField, PatchSettings, StoppedWhen, Target};

/// The prefixes of annotations that have another purpose: the state of locks, and the manifest of `kubectl apply`.
const RESERVED: [&str; 2] = ["redlock.dev/", "kubectl.kubernetes.io/"];

/// Returns the settings of a target with action Patch; `None` where they are missing or refused.
pub(super) fn patch(problems: &mut Problems, field: &str, target: &Target) -> Option<PatchPlan> {
    if target.stop_seconds.is_none() {
        let field = format!("{field}.stopSeconds");
        problems.add(FieldError::missing(field, reasons::NO_PATCH_STOP));
    }
    let field = format!("{field}.patch");
    let Some(settings) = &target.patch else {
        problems.add(FieldError::missing(field, reasons::NO_PATCH));
        return None;
    };
    counts(problems, &field, settings);
    let read = |(index, of): (usize, &PatchField)| {
        let field = format!("{field}.fields[{index}]");
        field_plan(problems, &field, of)
    };
    let fields: Option<Vec<FieldPlan>> = each(settings.fields.iter().enumerate().map(read));
    let read = |(index, of): (usize, &StoppedWhen)| {
        let field = format!("{field}.stoppedWhen[{index}]");
        check(problems, &field, of)
    };
    let checks: Option<Vec<StatusCheck>> = each(settings.stopped_when.iter().enumerate().map(read));
    let plan = PatchPlan {
        fields: fields?,
        stopped_when: checks?,
        trusts_status: settings.trust_status_without_generation.unwrap_or(false),
    };
    together(problems, &field, &plan);
    Some(plan)
}

/// Collects all items; `None` if one is `None`, after each was read.
fn each<T>(items: impl Iterator<Item = Option<T>>) -> Option<Vec<T>> {
    let items: Vec<Option<T>> = items.collect();
    items.into_iter().collect()
}

fn counts(problems: &mut Problems, field: &str, settings: &PatchSettings) {
    let fields = settings.fields.len();
    if !(1..=FIELD_LIMIT).contains(&fields) {
        let reason = format!("is not a number of fields to switch: give 1 to {FIELD_LIMIT}");
        problems.add(FieldError::new(format!("{field}.fields"), fields, reason));
    }
    let checks = settings.stopped_when.len();
    if checks > CHECK_LIMIT {
        let reason = format!("are too many checks: give at most {CHECK_LIMIT}");
        problems.add(FieldError::new(format!("{field}.stoppedWhen"), checks, reason));
    }
}

/// The rules between the fields, and between fields and checks.
fn together(problems: &mut Problems, field: &str, plan: &PatchPlan) {
    let paths: Vec<&Pointer> = plan.fields.iter().map(|field| &field.path).collect();
    let overlap = |(index, path): (usize, &&Pointer)| paths[..index].iter().any(|other| other.overlaps(path));
    if paths.iter().enumerate().any(overlap) {
        let field = format!("{field}.fields");
        problems.add(FieldError::missing(field, reasons::FIELDS_OVERLAP));
    }
    let annotates = paths.iter().any(|path| path.annotation().is_some());
    if annotates && !plan.stopped_when.is_empty() && !plan.trusts_status {
        let field = format!("{field}.stoppedWhen");
        problems.add(FieldError::missing(field, reasons::ANNOTATION_TRUST));
    }
}

fn field_plan(problems: &mut Problems, field: &str, given: &PatchField) -> Option<FieldPlan> {
    let path_field = format!("{field}.path");
    let refused = |reason| FieldError::new(path_field, Quoted(&given.path), reason);
    let path = match field_path(&given.path) {
        Ok(path) => path,
        Err(reason) => {
            problems.add(refused(reason));
            return None;
        }
    };
    for (name, value) in [("active", &given.active), ("standby", &given.standby)] {
        let Some(value) = value else { continue };
        if let Some(problem) = too_long(format!("{field}.{name}"), value) {
            problems.add(problem);
            continue;
        }
        let reason = if path.annotation().is_some() && !value.is_string() {
            reasons::ANNOTATION_TEXT
        } else if has_null(value) {
            reasons::HOLDS_NULL
        } else {
            continue;
        };
        problems.add(FieldError::new(format!("{field}.{name}"), value, reason));
    }
    if given.active == given.standby {
        let shown = given
            .active
            .as_ref()
            .map_or_else(|| "no value".to_owned(), Value::to_string);
        problems.add(FieldError::new(
            format!("{field}.standby"),
            shown,
            reasons::SAME_VALUES,
        ));
    }
    Some(FieldPlan {
        path,
        active: given.active.clone(),
        standby: given.standby.clone(),
    })
}

/// Returns the problem of a value that is longer than its bound.
fn too_long(field: String, value: &Value) -> Option<FieldError> {
    let length = excess(value, VALUE_LIMIT)?;
    let reason = format!("of JSON are too much: use at most {VALUE_LIMIT} bytes");
    Some(FieldError::new(field, format!("{length} bytes"), reason))
}

fn field_path(text: &str) -> Result<Pointer, &'static str> {
    let path = Pointer::parse(text).filter(|path| path.is_below("spec") || path.is_below("metadata"));
    let path = path.ok_or(reasons::FIELD_PATH)?;
    let [top, second, ..] = path.parts() else {
        return Err(reasons::FIELD_PATH);
    };
    if top == "metadata" {
        if second != "annotations" || path.parts().len() < 3 {
            return Err(reasons::FIELD_PATH);
        }
        let free =
            |key: &&str| is_label_key(key) && !RESERVED.iter().any(|reserved| key.starts_with(reserved));
        path.annotation().filter(free).ok_or(reasons::ANNOTATION_PATH)?;
    }
    Ok(path)
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null),
        Value::Object(fields) => fields.values().any(has_null),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn check(problems: &mut Problems, field: &str, given: &StoppedWhen) -> Option<StatusCheck> {
    let mut missing = |of: &str, reason| problems.add(FieldError::missing(format!("{field}.{of}"), reason));
    if given.path.is_some() == given.condition.is_some() {
        missing("path", reasons::ONE_CHECK);
    }
    if given.condition.is_some() != given.status.is_some() {
        missing("status", reasons::CONDITION_STATUS);
    }
    if given.condition.is_none() && given.reason.is_some() {
        missing("reason", reasons::CONDITION_REASON);
    }
    if given.path.is_some() && given.equals.is_none() {
        missing("equals", reasons::NO_EQUALS);
    }
    if given.path.is_none() && given.equals.is_some() {
        missing("equals", reasons::EQUALS_UNUSED);
    }
    if let Some(problem) = given
        .equals
        .as_ref()
        .and_then(|value| too_long(format!("{field}.equals"), value))
    {
        problems.add(problem);
    }
    match (&given.path, &given.condition) {
        (Some(text), None) => {
            let path = Pointer::parse(text).filter(|path| path.is_below("status"));
            if path.is_none() {
                let field = format!("{field}.path");
                problems.add(FieldError::new(field, Quoted(text), reasons::CHECK_PATH));
            }
            Some(StatusCheck::Field {
                path: path?,
                equals: given.equals.clone()?,
            })
        }
        (None, Some(kind)) => Some(StatusCheck::Condition {
            kind: kind.clone(),
            status: given.status?,
            reason: given.reason.clone(),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
