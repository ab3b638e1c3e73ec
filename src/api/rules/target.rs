//! The rules of a target.

use kube::core::Rule;

use schemars::Schema;
use serde_json::{Map, Value, json};

use super::{LABEL_KEY, LABEL_VALUE, message_expression, required, rule};
use crate::api::{
    reasons,
    target::{EXPRESSION_LIMIT, LABEL_LIMIT, OPERATORS, VALUE_LIMIT},
};

pub(in crate::api) fn ref_given() -> Rule {
    required(
        "ref",
        "self.action == 'LabelPods' || has(self.ref)",
        message_expression("'is required with action: ' + self.action + ': name the object to switch'"),
    )
}

pub(in crate::api) fn ref_not_with_pods() -> Rule {
    rule(
        "ref",
        "self.action != 'LabelPods' || !has(self.ref)",
        reasons::REF_NOT_READ,
    )
}

/// The action switches objects of these `kinds` of one API version only.
pub(in crate::api) fn switches(action: &str, api_version: &str, kinds: &[&str]) -> Rule {
    let list: Vec<String> = kinds.iter().map(|kind| format!("'{kind}'")).collect();
    rule(
        "ref",
        format!(
            "self.action != '{action}' || !has(self.ref) || (self.ref.apiVersion == '{api_version}' && self.ref.kind in \
             [{}])",
            list.join(", ")
        ),
        format!(
            "cannot be switched by action: {action}: use {api_version} {}",
            kinds.join(" or ")
        )
        .as_str(),
    )
}

/// A block of settings goes with its own action.
pub(in crate::api) fn block_of(action: &str, block: &str) -> Rule {
    rule(
        block,
        format!("self.action == '{action}' || !has(self.{block})"),
        message_expression(format!(
            "'is used only with action: {action}, and the action is ' + self.action"
        )),
    )
}

pub(in crate::api) fn stop_of_use() -> Rule {
    rule(
        "stopSeconds",
        "self.action in ['Scale', 'Suspend', 'Lease', 'Patch'] || !has(self.stopSeconds)",
        message_expression("'has no effect: ' + self.action + ' stops nothing; remove it'"),
    )
}

pub(in crate::api) fn pods_given() -> Rule {
    required(
        "labelPods",
        "self.action != 'LabelPods' || has(self.labelPods)",
        reasons::NO_PODS,
    )
}

/// Of the settings of LabelPods.
pub(in crate::api) fn not_all_pods() -> Rule {
    rule(
        "selector",
        "(has(self.selector.matchLabels) && self.selector.matchLabels.size() > 0) || \
         (has(self.selector.matchExpressions) && self.selector.matchExpressions.size() > 0)",
        reasons::ALL_PODS,
    )
}

/// Rule of the settings of Scale.
pub(in crate::api) fn fewer_on_standby() -> Rule {
    let active = "(has(self.activeReplicas) ? self.activeReplicas : 1)";
    rule(
        "standbyReplicas",
        format!("!has(self.standbyReplicas) || self.standbyReplicas < {active}"),
        reasons::STANDBY_REPLICAS,
    )
}

/// Rule of a reference: group and version follow the grammar of Kubernetes, because both become parts of a path.
pub(in crate::api) fn api_version() -> Rule {
    rule(
        "apiVersion",
        format!(
            "self.apiVersion.indexOf('/') <= 253 && self.apiVersion.matches('{}')",
            super::API_VERSION
        ),
        reasons::API_VERSION,
    )
}

/// Rule of the settings of LabelPods: `condition` on each expression `e` of the selector.
fn each_expression(condition: &str) -> String {
    format!("(!has(self.selector.matchExpressions) || self.selector.matchExpressions.all(e, {condition}))")
}

/// Rule of the settings of LabelPods: `condition` on each label of the selector, by its key `k`.
fn each_label(condition: &str) -> String {
    format!("(!has(self.selector.matchLabels) || self.selector.matchLabels.all(k, {condition}))")
}

pub(in crate::api) fn selector_keys() -> Rule {
    let key = |key: &str| format!("{key}.indexOf('/') <= 253 && {key}.matches('{LABEL_KEY}')");
    rule(
        "selector",
        format!("{} && {}", each_label(&key("k")), each_expression(&key("e.key"))),
        reasons::SELECTOR_KEY,
    )
}

pub(in crate::api) fn selector_values() -> Rule {
    let label = format!("self.selector.matchLabels[k].matches('{LABEL_VALUE}')");
    let expression = format!("!has(e.values) || e.values.all(v, v.matches('{LABEL_VALUE}'))");
    rule(
        "selector",
        format!("{} && {}", each_label(&label), each_expression(&expression)),
        reasons::SELECTOR_VALUE,
    )
}

pub(in crate::api) fn selector_values_fit() -> Rule {
    rule(
        "selector",
        each_expression("(e.operator in ['In', 'NotIn']) == (has(e.values) && e.values.size() > 0)"),
        reasons::SELECTOR_VALUES,
    )
}

/// Bounds of a selector, which its Rust type does not carry.
pub(in crate::api) fn selector_bounds(selector: &mut Schema) {
    let bound = |schema: Option<&mut Value>, bounds: Value| {
        if let (Some(Value::Object(schema)), Value::Object(bounds)) = (schema, bounds) {
            schema.extend(bounds);
        }
    };
    let fields: Option<&mut Map<String, Value>> =
        selector.get_mut("properties").and_then(Value::as_object_mut);
    // A bound that cannot be set would be missing in `crds/`, which a test compares.
    let Some(fields) = fields else { return };
    let text = json!({ "maxLength": 63 });
    let labels = fields.get_mut("matchLabels");
    bound(labels, json!({ "maxProperties": LABEL_LIMIT }));
    let value = fields
        .get_mut("matchLabels")
        .and_then(|labels| labels.get_mut("additionalProperties"));
    bound(value, text.clone());
    bound(
        fields.get_mut("matchExpressions"),
        json!({ "maxItems": EXPRESSION_LIMIT }),
    );
    let expression = fields
        .get_mut("matchExpressions")
        .and_then(|list| list.pointer_mut("/items/properties"));
    let Some(Value::Object(expression)) = expression else {
        return;
    };
    bound(expression.get_mut("key"), json!({ "maxLength": 317 }));
    bound(expression.get_mut("operator"), json!({ "enum": OPERATORS }));
    bound(expression.get_mut("values"), json!({ "maxItems": VALUE_LIMIT }));
    let value = expression
        .get_mut("values")
        .and_then(|values| values.get_mut("items"));
    bound(value, text);
}
