//! Compares the fields of an object with the wanted values, and builds the merge patch that sets them. Pure.

use serde_json::{Map, Value};

use crate::api::{plan::FieldPlan, pointer::Pointer};

/// A field and its wanted value; `None` if the field must be absent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) path: &'a Pointer,
    pub(super) value: Option<&'a Value>,
}

impl<'a> Wanted<'a> {
    pub(super) fn active(field: &'a FieldPlan) -> Self {
        let (path, value) = (&field.path, field.active.as_ref());
        Self { path, value }
    }

    pub(super) fn standby(field: &'a FieldPlan) -> Self {
        let (path, value) = (&field.path, field.standby.as_ref());
        Self { path, value }
    }
}

/// A field whose value is not the wanted one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Difference {
    pub(super) path: Pointer,
    pub(super) found: Option<Value>,
    wanted: Option<Value>,
}

/// A path that leads through a value other than an object, such as a list, which a merge patch would replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blocked {
    pub(super) path: Pointer,
    /// The path of that value.
    pub(super) at: String,
}

/// Returns the value at a path; `None` if it is absent.
pub(super) fn value_at<'a>(object: &'a Value, path: &Pointer) -> Result<Option<&'a Value>, Blocked> {
    let mut at = object;
    for (depth, part) in path.parts().iter().enumerate() {
        let Value::Object(fields) = at else {
            let parts = path.parts().iter().take(depth);
            let at = parts.fold(String::new(), |at, part| at + "/" + part);
            let path = path.clone();
            return Err(Blocked { path, at });
        };
        match fields.get(part) {
            None | Some(Value::Null) => return Ok(None),
            Some(value) => at = value,
        }
    }
    Ok(Some(at))
}

impl Difference {
    /// Returns the difference of the same field from another value.
    pub(super) fn wanting(&self, value: Option<&Value>) -> Self {
        let wanted = value.cloned();
        Self {
            wanted,
            ..self.clone()
        }
    }

    /// Reports whether the field has the wanted value already.
    pub(super) fn is_settled(&self) -> bool {
        self.found == self.wanted
    }

    /// Reports whether a value was to be stored where the object had none.
    pub(super) const fn is_addition(&self) -> bool {
        self.found.is_none() && self.wanted.is_some()
    }
}

/// Returns the fields whose value is not the wanted one.
pub(super) fn differences(object: &Value, wanted: &[Wanted<'_>]) -> Result<Vec<Difference>, Blocked> {
    let (all, blocked) = compare(object, wanted);
    blocked.into_iter().next().map_or(Ok(all), Err)
}

/// Returns the fields whose value is not the wanted one, and those that cannot be set.
pub(super) fn compare(object: &Value, wanted: &[Wanted<'_>]) -> (Vec<Difference>, Vec<Blocked>) {
    let (mut all, mut blocked) = (Vec::new(), Vec::new());
    for field in wanted {
        match value_at(object, field.path) {
            Ok(found) if found == field.value => {}
            Ok(found) => all.push(Difference {
                path: field.path.clone(),
                found: found.cloned(),
                wanted: field.value.cloned(),
            }),
            Err(error) => blocked.push(error),
        }
    }
    (all, blocked)
}

/// Returns the merge patch that sets these fields and no other.
pub(super) fn merge_patch(differences: &[Difference]) -> Value {
    let mut patch = Value::Object(Map::new());
    for field in differences {
        let mut at = &mut patch;
        for part in field.path.parts() {
            at = &mut at[part.as_str()];
        }
        *at = change(field.found.as_ref(), field.wanted.as_ref());
    }
    patch
}

/// Returns the merge patch from one value to the other. A field of a map that is not wanted must be removed by name.
fn change(found: Option<&Value>, wanted: Option<&Value>) -> Value {
    let (Some(Value::Object(found)), Some(Value::Object(wanted))) = (found, wanted) else {
        return wanted.cloned().unwrap_or_default();
    };
    let removed = found.keys().filter(|key| !wanted.contains_key(*key));
    let removed = removed.map(|key| (key.clone(), Value::Null));
    let set = wanted
        .iter()
        .filter(|(key, value)| found.get(*key) != Some(value));
    let set = set.map(|(key, value)| (key.clone(), change(found.get(key), Some(value))));
    removed.chain(set).collect::<Map<String, Value>>().into()
}

/// Returns a value as one line of text; `no value` if it is absent.
pub(super) fn shown(value: Option<&Value>) -> String {
    const LONGEST: usize = 80;
    let Some(value) = value else {
        return "no value".to_owned();
    };
    let text = value.to_string();
    if text.chars().count() <= LONGEST {
        return text;
    }
    text.chars().take(LONGEST).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(text: &str) -> Pointer {
        Pointer::parse(text).unwrap()
    }

    /// Returns the merge patch from `object` to a value at a path, or the path of the value that blocks it.
    fn patch(object: &Value, at: &str, value: Option<&Value>) -> Result<Value, String> {
        let path = path(at);
        let wanted = [Wanted { path: &path, value }];
        differences(object, &wanted)
            .map(|all| merge_patch(&all))
            .map_err(|blocked| blocked.at)
    }

    #[test]
    fn patch_sets_only_the_fields_that_differ() {
        let set = |object: Value, value: Option<Value>| patch(&object, "/spec/a", value.as_ref());
        for (object, value, wanted) in [
            // The value is the wanted one, even if a parent is missing: a merge patch would create the
            // parent.
            (json!({"spec": {"a": true}}), Some(json!(true)), json!({})),
            (json!({}), None, json!({})),
            (json!({"spec": {"a": null}}), None, json!({})),
            (
                json!({"spec": {"a": false, "b": 1}}),
                Some(json!(true)),
                json!({"spec": {"a": true}}),
            ),
            (json!({}), Some(json!(true)), json!({"spec": {"a": true}})),
            (json!({"spec": {"a": true}}), None, json!({"spec": {"a": null}})),
            // Types are not converted.
            (
                json!({"spec": {"a": "true"}}),
                Some(json!(true)),
                json!({"spec": {"a": true}}),
            ),
            // A map is replaced as a whole.
            (
                json!({"spec": {"a": {"x": 1, "y": {"z": 1, "w": 2}}}}),
                Some(json!({"y": {"z": 1}, "v": 3})),
                json!({"spec": {"a": {"x": null, "y": {"w": null}, "v": 3}}}),
            ),
            (
                json!({"spec": {"a": 1}}),
                Some(json!({})),
                json!({"spec": {"a": {}}}),
            ),
            (
                json!({"spec": {"a": [1, 2]}}),
                Some(json!([2])),
                json!({"spec": {"a": [2]}}),
            ),
        ] {
            assert_eq!(
                set(object.clone(), value.clone()),
                Ok(wanted),
                "{object} {value:?}"
            );
        }
    }

    #[test]
    fn lists_and_other_values_on_the_way_are_not_replaced() {
        for (object, at) in [
            (json!({"spec": [{"a": 1}]}), "/spec"),
            (json!({"spec": {"b": [1]}}), "/spec/b"),
            (json!({"spec": {"b": "x"}}), "/spec/b"),
        ] {
            assert_eq!(
                patch(&object, "/spec/b/a", Some(&json!(1))),
                Err(at.to_owned()),
                "{object}"
            );
        }
    }

    #[test]
    fn field_that_cannot_be_set_hides_no_other() {
        let (good, bad) = (path("/spec/b"), path("/spec/list/x"));
        let value = json!(2);
        let wanted = [&bad, &good].map(|path| Wanted {
            path,
            value: Some(&value),
        });
        let (differing, blocked) = compare(&json!({"spec": {"b": 1, "list": [1]}}), &wanted);
        assert_eq!((differing.len(), &differing[0].path), (1, &good));
        assert_eq!((blocked.len(), &blocked[0].path), (1, &bad));
    }

    #[test]
    fn names_are_taken_as_they_are() {
        let key = "/metadata/annotations/crossplane.io~1paused";
        let set = patch(&json!({"metadata": {}}), key, Some(&json!("true")));
        let wanted = json!({"metadata": {"annotations": {"crossplane.io/paused": "true"}}});
        assert_eq!(set, Ok(wanted.clone()));
        assert_eq!(patch(&wanted, key, Some(&json!("true"))), Ok(json!({})));
    }

    /// Applies a merge patch by RFC 7386, as the API server does.
    fn merged(object: &Value, patch: &Value) -> Value {
        let Value::Object(patch) = patch else {
            return patch.clone();
        };
        let mut fields = object.as_object().cloned().unwrap_or_default();
        for (key, value) in patch {
            if value.is_null() {
                fields.remove(key);
            } else {
                let before = fields.get(key).cloned().unwrap_or_default();
                fields.insert(key.clone(), merged(&before, value));
            }
        }
        fields.into()
    }

    fn any_value() -> impl proptest::strategy::Strategy<Value = Value> {
        use proptest::prelude::*;
        let leaf = prop_oneof![any::<bool>().prop_map(Value::from), (0..3).prop_map(Value::from)];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::btree_map("[abc]", inner, 0..3)
                    .prop_map(|fields| fields.into_iter().collect::<Map<_, _>>().into()),
            ]
        })
    }

    proptest::proptest! {
        #[test]
        fn the_patch_leads_from_any_value_to_any_other(
            before in proptest::option::of(any_value()),
            after in proptest::option::of(any_value()),
        ) {
            let object = before.map_or_else(|| json!({"spec": {"b": 1}}), |a| json!({"spec": {"a": a, "b": 1}}));
            let path = path("/spec/a");
            let wanted = [Wanted { path: &path, value: after.as_ref() }];
            let patch = merge_patch(&differences(&object, &wanted).unwrap());
            let result = merged(&object, &patch);
            proptest::prop_assert_eq!(differences(&result, &wanted).unwrap(), []);
            proptest::prop_assert_eq!(&result["spec"]["b"], 1);
        }
    }
}
