//! Remembers the fields that a start has set, so that a field that is no longer declared gets its value of standby. Pure.
//!
//! A field is remembered only while the object has the value that was set: a field that was never written, or that
//! another writer has changed since, is left alone.

use serde_json::Value;

use super::fields::{Difference, value_at};
use crate::{
    api::{plan::FieldPlan, pointer::Pointer},
    targets::TargetError,
};

/// The largest number of remembered fields, several times the number that a target may declare: a declaration that
/// changes all the time must not fill the memory.
const LIMIT: usize = 32;

/// The fields of one object that have their active values by a start of this process.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SetFields {
    /// The UID of the object.
    object: Option<String>,
    fields: Vec<SetField>,
}

#[derive(Clone, Debug, PartialEq)]
struct SetField {
    plan: FieldPlan,
    /// The value of standby that was declared when the field was first set.
    first_standby: Option<Value>,
}

impl SetFields {
    /// Records that these fields of the object have their active values, or may get them from a write that is sent now.
    pub(super) fn set(&mut self, object: Option<String>, fields: &[FieldPlan]) {
        self.belong_to(object);
        let known = std::mem::take(&mut self.fields);
        let first = |field: &FieldPlan| {
            let known = known.iter().find(|known| known.plan.path == field.path);
            known.map_or_else(|| field.standby.clone(), |known| known.first_standby.clone())
        };
        let set = fields.iter().map(|field| SetField {
            plan: field.clone(),
            first_standby: first(field),
        });
        let set: Vec<SetField> = set.collect();
        self.fields = known;
        self.fields
            .retain(|known| !fields.iter().any(|field| field.path.overlaps(&known.plan.path)));
        self.fields.extend(set);
        let excess = self.fields.len().saturating_sub(LIMIT);
        self.fields.drain(..excess);
    }

    /// Forgets the fields of an object that was deleted.
    pub(super) fn belong_to(&mut self, object: Option<String>) {
        if self.object != object {
            (self.object, self.fields) = (object, Vec::new());
        }
    }

    /// Forgets each field that does not have the value that was set.
    pub(super) fn keep_unchanged(&mut self, object: &Value) {
        self.fields
            .retain(|SetField { plan, .. }| value_at(object, &plan.path) == Ok(plan.active.as_ref()));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    pub(super) fn has(&self, path: &Pointer) -> bool {
        self.fields.iter().any(|field| field.plan.path == *path)
    }

    pub(super) fn forget(&mut self, path: &Pointer) {
        self.fields.retain(|field| field.plan.path != *path);
    }

    /// Returns the remembered fields that are no longer declared.
    pub(super) fn dropped(&self, declared: &[FieldPlan]) -> Vec<FieldPlan> {
        let plans = self.fields.iter().map(|field| &field.plan);
        let is_declared = |known: &FieldPlan| declared.iter().any(|field| field.path.overlaps(&known.path));
        plans.filter(|known| !is_declared(known)).cloned().collect()
    }

    /// Returns the write of the value of standby that was declared when the field was first set, unless that is the
    /// refused write.
    pub(super) fn standby_before(&self, refused: &Difference) -> Option<Difference> {
        let known = self.fields.iter().find(|field| field.plan.path == refused.path)?;
        let earlier = refused.wanting(known.first_standby.as_ref());
        (earlier != *refused).then_some(earlier)
    }
}

/// Reports whether a field that is no longer declared has nothing to undo although its write was refused: the object
/// does not have the value that a start would have set, or its schema has no such field.
pub(super) fn is_unset(field: &FieldPlan, found: Option<&Value>, refusal: &TargetError) -> bool {
    found != field.active.as_ref() || refusal.is_unknown_field()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::targets::patch::fields::{Wanted, differences};

    fn field(at: &str, active: Option<Value>, standby: Option<Value>) -> FieldPlan {
        let path = Pointer::parse(at).unwrap();
        FieldPlan {
            path,
            active,
            standby,
        }
    }

    fn suspend(at: &str) -> FieldPlan {
        field(at, Some(json!(false)), Some(json!(true)))
    }

    fn object() -> Option<String> {
        Some("u".to_owned())
    }

    #[test]
    fn only_a_field_that_was_set_is_dropped() {
        let (right, wrong) = (suspend("/spec/suspend"), suspend("/spec/suspended"));
        let mut set = SetFields::default();
        assert_eq!(set.dropped(&[]), [], "nothing was written");
        set.set(object(), std::slice::from_ref(&right));
        assert_eq!(set.dropped(std::slice::from_ref(&right)), []);
        // The edit names a wrong field, which is never written, and is corrected.
        assert_eq!(
            set.dropped(std::slice::from_ref(&wrong)),
            std::slice::from_ref(&right)
        );
        set.keep_unchanged(&json!({"spec": {"suspend": false}}));
        assert_eq!(set.dropped(std::slice::from_ref(&right)), []);
        assert_eq!(set.dropped(&[]), [right]);
    }

    #[test]
    fn field_that_has_another_value_is_left_alone() {
        for (found, remembered) in [
            (json!({"spec": {"suspend": false}}), true),
            (json!({"spec": {"suspend": true}}), false),
            (json!({"spec": {"suspend": "other"}}), false),
            (json!({"spec": {}}), false),
            (json!({"spec": [1]}), false),
        ] {
            let mut set = SetFields::default();
            set.set(object(), &[suspend("/spec/suspend")]);
            set.keep_unchanged(&found);
            assert_eq!(!set.dropped(&[]).is_empty(), remembered, "{found}");
        }
    }

    #[test]
    fn fields_of_a_deleted_object_are_forgotten() {
        let mut set = SetFields::default();
        set.set(object(), &[suspend("/spec/suspend")]);
        set.belong_to(object());
        assert_eq!(set.dropped(&[]).len(), 1);
        set.belong_to(Some("new".to_owned()));
        assert_eq!(set.dropped(&[]), []);
    }

    #[test]
    fn field_is_remembered_with_the_value_that_was_set_last() {
        let with = |active: i64| field("/spec/a", Some(active.into()), Some(0.into()));
        let mut set = SetFields::default();
        set.set(object(), &[with(1)]);
        set.set(object(), &[with(2)]);
        assert_eq!(set.dropped(&[]), [with(2)]);
        let inner = field("/spec/a/b", Some(json!(1)), None);
        assert_eq!(set.dropped(&[inner]), [], "a declared field contains it");
        for number in 0..100 {
            set.set(object(), &[suspend(&format!("/spec/f{number}"))]);
        }
        assert_eq!(set.dropped(&[]).len(), LIMIT);
    }

    #[test]
    fn standby_value_that_was_declared_before_replaces_one_that_is_refused() {
        let mut set = SetFields::default();
        set.set(object(), &[suspend("/spec/suspend")]);
        let found = json!({"spec": {"suspend": false}});
        let refused = |value: Value| {
            let path = Pointer::parse("/spec/suspend").unwrap();
            let wanted = [Wanted {
                path: &path,
                value: Some(&value),
            }];
            differences(&found, &wanted).unwrap().remove(0)
        };
        let earlier = set.standby_before(&refused(json!("yes")));
        assert_eq!(earlier, Some(refused(json!(true))));
        assert_eq!(set.standby_before(&refused(json!(true))), None);
        // The field is found active under the new declaration.
        let edited = field("/spec/suspend", Some(json!(false)), Some(json!("yes")));
        set.set(object(), &[edited]);
        assert_eq!(set.standby_before(&refused(json!("yes"))), earlier);
        set.forget(&Pointer::parse("/spec/suspend").unwrap());
        assert_eq!(set.standby_before(&refused(json!("yes"))), None);
    }

    #[test]
    fn refused_field_is_unset_without_the_active_value_or_in_no_schema() {
        let refused = |reason: &str| TargetError::Rejected {
            what: "stopping".into(),
            reason: reason.into(),
        };
        let (unknown, denied) = (refused("unknown field \"spec.a\""), refused("denied"));
        let present = field("/spec/a", Some(json!(1)), None);
        let absent = field("/spec/a", None, Some(json!(0)));
        assert!(!is_unset(&present, Some(&json!(1)), &denied), "it was set");
        assert!(is_unset(&present, Some(&json!(2)), &denied) && is_unset(&present, None, &denied));
        assert!(
            !is_unset(&absent, None, &denied),
            "its removal may have started it"
        );
        assert!(is_unset(&absent, None, &unknown));
    }
}
