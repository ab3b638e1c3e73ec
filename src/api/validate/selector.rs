//! The rules of a label selector.

use std::fmt::Display;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::{
    name::{is_label_key, is_label_value},
    problems::{FieldError, Problems, Quoted},
};
use crate::api::{
    reasons,
    target::{EXPRESSION_LIMIT, LABEL_LIMIT, OPERATORS, VALUE_LIMIT},
};

/// Everything that is wrong with a selector.
pub(super) fn check_selector(problems: &mut Problems, field: &str, selector: &LabelSelector) {
    let labels = selector.match_labels.iter().flatten();
    let expressions = selector.match_expressions.as_deref().unwrap_or_default();
    let mut add = |value: &dyn Display, reason: &str| problems.add(FieldError::new(field, value, reason));
    for (what, count, limit) in [
        (
            "labels",
            selector.match_labels.as_ref().map_or(0, |all| all.len()),
            LABEL_LIMIT,
        ),
        ("expressions", expressions.len(), EXPRESSION_LIMIT),
    ] {
        if count > limit {
            add(&count, &format!("are too many {what}: use at most {limit}"));
        }
    }
    for (key, value) in labels {
        if !is_label_key(key) {
            add(&Quoted(key), reasons::SELECTOR_KEY);
        }
        if !is_label_value(value) {
            add(&Quoted(value), reasons::SELECTOR_VALUE);
        }
    }
    for expression in expressions {
        check_expression(&mut add, expression);
    }
}

fn check_expression(add: &mut impl FnMut(&dyn Display, &str), expression: &LabelSelectorRequirement) {
    let (key, operator) = (&expression.key, &*expression.operator);
    let values = expression.values.as_deref().unwrap_or_default();
    if !is_label_key(key) {
        add(&Quoted(key), reasons::SELECTOR_KEY);
    }
    if !OPERATORS.contains(&operator) {
        let reason = format!("is not an operator: use one of {}", OPERATORS.join(", "));
        add(&Quoted(operator), &reason);
    } else if ["In", "NotIn"].contains(&operator) == values.is_empty() {
        add(&operator, reasons::SELECTOR_VALUES);
    }
    if values.len() > VALUE_LIMIT {
        let reason = format!("are too many values: use at most {VALUE_LIMIT}");
        add(&values.len(), &reason);
    }
    for value in values.iter().filter(|value| !is_label_value(value)) {
        add(&Quoted(value), reasons::SELECTOR_VALUE);
    }
}
