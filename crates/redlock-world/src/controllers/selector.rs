//! Label selectors, and the objects that a controller claims by them.

use serde_json::{Value, json};

use super::{
    ControllerPlan,
    object::{FieldPath, Object, is_deleting, name, namespace, uid},
};

/// Reports whether a selector of `apps/v1` or `batch/v1` matches the labels of an object. A missing selector matches
/// nothing.
pub(super) fn matches(selector: Option<&Value>, object: &Value) -> bool {
    let Some(selector) = selector.filter(|selector| selector.is_object()) else {
        return false;
    };
    let labels = object.at("/metadata/labels");
    let label = |key: &str| labels.and_then(|labels| labels.get(key));
    let equal = selector.get("matchLabels").and_then(Value::as_object);
    let mut equal = equal.into_iter().flatten();
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    let mut expressions = expressions.into_iter().flatten();
    equal.all(|(key, value)| label(key) == Some(value))
        && expressions.all(|one| {
            let found = label(one["key"].as_str().unwrap_or_default());
            let values = one["values"].as_array().map(Vec::as_slice).unwrap_or_default();
            match one["operator"].as_str() {
                Some("In") => found.is_some_and(|found| values.contains(found)),
                Some("NotIn") => found.is_none_or(|found| !values.contains(found)),
                Some("Exists") => found.is_some(),
                Some("DoesNotExist") => found.is_none(),
                Some(_) | None => false,
            }
        })
}

/// The object that controls others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner<'a> {
    pub(super) object: &'a Value,
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
}

impl Owner<'_> {
    pub(super) fn reference(&self) -> Value {
        json!({
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": name(self.object),
            "uid": uid(self.object),
            "controller": true,
            "blockOwnerDeletion": true,
        })
    }

    /// Returns the objects that this owner controls, those included that it adopts now: they match its selector and no
    /// controller owns them. Releases an object whose labels no longer match.
    pub(super) fn claim(
        &self,
        kind: &'static str,
        candidates: &[Object],
        plan: &mut ControllerPlan,
    ) -> Vec<Object> {
        let (own, space) = (uid(self.object), namespace(self.object));
        let selector = self.object.at("/spec/selector");
        let deleting = is_deleting(self.object);
        let mut claimed = Vec::new();
        for candidate in candidates.iter().filter(|one| namespace(one) == space) {
            let matching = matches(selector, candidate);
            match controller_of(candidate) {
                Some(controller) if controller["uid"] == own => {
                    if matching {
                        claimed.push(candidate.clone());
                    } else if !deleting {
                        plan.update(kind, without_owner(candidate, &[own]));
                    }
                }
                None if matching && !deleting && !is_deleting(candidate) => {
                    plan.update(kind, self.adopted(candidate));
                    claimed.push(candidate.clone());
                }
                Some(_) | None => {}
            }
        }
        claimed
    }

    fn adopted(&self, object: &Value) -> Value {
        let mut adopted = object.clone();
        let references = &mut adopted["metadata"]["ownerReferences"];
        if let Value::Array(all) = references {
            all.push(self.reference());
        } else {
            *references = json!([self.reference()]);
        }
        adopted
    }
}

pub(super) fn owner_references(object: &Value) -> &[Value] {
    let all = object.at("/metadata/ownerReferences").and_then(Value::as_array);
    all.map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn controller_of(object: &Value) -> Option<&Value> {
    owner_references(object)
        .iter()
        .find(|owner| owner["controller"] == true)
}

pub(super) fn is_controlled_by(object: &Value, owner: &Value) -> bool {
    controller_of(object).is_some_and(|found| found["uid"] == uid(owner))
}

pub(super) fn without_owner(object: &Value, uids: &[&str]) -> Value {
    let mut changed = object.clone();
    if let Some(Value::Array(all)) = changed.pointer_mut("/metadata/ownerReferences") {
        all.retain(|owner| !uids.contains(&owner["uid"].as_str().unwrap_or_default()));
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_matches_by_labels_and_expressions() {
        let object = json!({"metadata": {"labels": {"app": "web", "tier": "front"}}});
        for (selector, wanted) in [
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchLabels": {"app": "web", "tier": "back"}}), false),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}),
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}),
                false,
            ),
            (
                json!({"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["web"]}]}),
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}),
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}),
                false,
            ),
            (json!({}), true),
            (json!(null), false),
        ] {
            assert_eq!(matches(Some(&selector), &object), wanted, "{selector}");
        }
    }
}
