//! Identifies the objects that a lock switches, so that no two locks switch the same object.

use std::{collections::BTreeSet, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::api::{
    plan::{LockPlan, TargetWork},
    target::Target,
};

/// An object, in any version of its group, or the pods of a selector.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::controller) enum TargetKey {
    Object {
        namespace: String,
        group: String,
        kind: String,
        name: String,
    },
    Pods {
        namespace: String,
        selector: String,
    },
}

impl TargetKey {
    pub(in crate::controller) fn of(namespace: &str, work: &TargetWork) -> Self {
        let namespace = namespace.to_owned();
        match work {
            TargetWork::Scale { object, .. }
            | TargetWork::Suspend { object }
            | TargetWork::OncePerSchedule { object, .. }
            | TargetWork::Lease { object, .. }
            | TargetWork::Patch { object, .. } => Self::Object {
                namespace,
                group: group(&object.api_version).to_owned(),
                kind: object.kind.clone(),
                name: object.name.clone(),
            },
            TargetWork::LabelPods { selector } => Self::Pods {
                namespace,
                selector: in_one_order(selector),
            },
        }
    }

    /// Returns the key of a declared target; `None` if it names neither an object nor a selector.
    pub(in crate::controller) fn of_target(namespace: &str, target: &Target) -> Option<Self> {
        let namespace = namespace.to_owned();
        match (&target.reference, &target.label_pods) {
            (Some(object), _) => Some(Self::Object {
                namespace,
                group: group(&object.api_version).to_owned(),
                kind: object.kind.clone(),
                name: object.name.clone(),
            }),
            (None, Some(pods)) => Some(Self::Pods {
                namespace,
                selector: in_one_order(&pods.selector),
            }),
            (None, None) => None,
        }
    }
}

impl fmt::Display for TargetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object { kind, name, .. } => write!(f, "{kind} {name}"),
            Self::Pods { selector, .. } => write!(f, "the pods with {selector}"),
        }
    }
}

/// Returns all targets of a lock. A lock that only observes conflicts with no other lock.
pub(in crate::controller) fn target_keys(plan: &LockPlan) -> BTreeSet<TargetKey> {
    let all = plan.targets.iter().filter(|_| plan.switches());
    all.map(|target| TargetKey::of(&plan.namespace, &target.work))
        .collect()
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Returns the selector in a canonical order: the order does not affect the selected pods.
fn in_one_order(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().flatten();
    let mut parts: Vec<String> = labels.map(|(name, value)| format!("{name}={value}")).collect();
    for expression in selector.match_expressions.iter().flatten() {
        let mut values = expression.values.clone().unwrap_or_default();
        values.sort();
        let (name, operator) = (&expression.key, &expression.operator);
        parts.push(match (operator.as_str(), &values[..]) {
            // Equivalent to a label.
            ("In", [value]) => format!("{name}={value}"),
            _ => format!("{name} {operator} ({})", values.join(", ")),
        });
    }
    parts.sort();
    parts.dedup();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::target::TargetRef;

    fn scale(api_version: &str, kind: &str, name: &str) -> TargetKey {
        let object = TargetRef {
            api_version: api_version.into(),
            kind: kind.into(),
            name: name.into(),
        };
        TargetKey::of("n", &TargetWork::Suspend { object })
    }

    fn pods(selector: &str) -> TargetKey {
        let selector = serde_yaml::from_str(selector).unwrap();
        TargetKey::of("n", &TargetWork::LabelPods { selector })
    }

    #[test]
    fn an_object_is_the_same_in_every_version_of_its_group() {
        assert_eq!(
            scale("apps/v1", "Deployment", "a"),
            scale("apps/v2", "Deployment", "a")
        );
        assert_eq!(scale("v1", "Thing", "a"), scale("v2", "Thing", "a"));
        assert_ne!(scale("v1", "Thing", "a"), scale("apps/v1", "Thing", "a"));
        assert_ne!(
            scale("apps/v1", "Deployment", "a"),
            scale("apps/v1", "StatefulSet", "a")
        );
        assert_ne!(
            scale("apps/v1", "Deployment", "a"),
            scale("apps/v1", "Deployment", "b")
        );
    }

    #[test]
    fn a_selector_is_the_same_in_every_order() {
        let one = "{matchLabels: {a: b, c: d}, matchExpressions: [{key: e, operator: In, values: [y, x]}]}";
        let other = "{matchExpressions: [{key: e, operator: In, values: [x, y]}, {key: c, operator: In, values: [d]}], \
                     matchLabels: {a: b}}";
        assert_eq!(pods(one), pods(other));
        assert_ne!(pods(one), pods("{matchLabels: {a: b}}"));
    }
}
