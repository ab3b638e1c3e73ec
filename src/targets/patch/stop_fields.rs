//! Decides which fields a stop writes, and which of them keep it from being confirmed. Pure.

use serde_json::Value;

use super::fields::{Blocked, Difference, Wanted, compare, value_at};
use crate::{api::plan::FieldPlan, targets::TargetError};

/// A declared field, and the refusal if the operator may not set it.
pub(super) type CheckedField<'a> = (&'a FieldPlan, Option<TargetError>);

/// Whether the target is part of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Membership {
    Declared,
    /// The target was removed from the lock: only what a start may have set has to be undone.
    Removed,
}

/// The reason for which a field cannot get its value of standby.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    Blocked(Blocked),
    NotAllowed(TargetError),
}

/// The fields of an object that do not have their values of standby.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct StopFields {
    /// The fields to write.
    pub(super) differing: Vec<Difference>,
    /// The first field that cannot be written. It keeps no other field from its value.
    pub(super) obstacle: Option<Obstacle>,
}

impl StopFields {
    pub(super) fn of(
        object: &Value,
        declared: &[CheckedField<'_>],
        dropped: &[FieldPlan],
        membership: Membership,
    ) -> Self {
        let allowed = declared.iter().filter(|(_, refusal)| refusal.is_none());
        let allowed: Vec<Wanted<'_>> = allowed.map(|(field, _)| Wanted::standby(field)).collect();
        let dropped: Vec<Wanted<'_>> = dropped.iter().map(Wanted::standby).collect();
        let (mut differing, blocked) = compare(object, &allowed);
        // A field that is no longer declared and cannot be set has nothing to undo.
        differing.extend(compare(object, &dropped).0);
        let may_be_set = |field: &FieldPlan| match membership {
            Membership::Declared => true,
            Membership::Removed => value_at(object, &field.path) == Ok(field.active.as_ref()),
        };
        let mut refused = declared.iter().filter(|(field, _)| may_be_set(field));
        let refused = refused.find_map(|(_, refusal)| refusal.clone().map(Obstacle::NotAllowed));
        // No start has set a field below a value that is no object.
        let blocked = blocked.into_iter().filter(|_| membership == Membership::Declared);
        let obstacle = blocked.map(Obstacle::Blocked).next().or(refused);
        Self { differing, obstacle }
    }

    pub(super) fn is_standby(&self) -> bool {
        self.differing.is_empty() && self.obstacle.is_none()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::pointer::Pointer;

    fn field(at: &str) -> FieldPlan {
        FieldPlan {
            path: Pointer::parse(at).unwrap(),
            active: Some(json!(1)),
            standby: Some(json!(0)),
        }
    }

    fn refusal() -> TargetError {
        TargetError::NotAllowed {
            path: "/spec/b".into(),
            group: "g".into(),
            resource: "r".into(),
        }
    }

    fn written(found: &StopFields) -> Vec<String> {
        found
            .differing
            .iter()
            .map(|field| field.path.to_string())
            .collect()
    }

    #[test]
    fn field_that_cannot_be_set_keeps_no_other_field_from_its_value() {
        let (good, blocked, refused) = (field("/spec/a"), field("/spec/list/x"), field("/spec/b"));
        let object = json!({"spec": {"a": 1, "b": 1, "list": [1]}});
        for (declared, obstacle) in [
            (
                vec![(&good, None), (&blocked, None)],
                Obstacle::Blocked(Blocked {
                    path: blocked.path.clone(),
                    at: "/spec/list".into(),
                }),
            ),
            (
                vec![(&refused, Some(refusal())), (&good, None)],
                Obstacle::NotAllowed(refusal()),
            ),
        ] {
            let found = StopFields::of(&object, &declared, &[], Membership::Declared);
            assert_eq!(written(&found), ["/spec/a"]);
            assert_eq!(found.obstacle, Some(obstacle));
            assert!(!found.is_standby());
        }
    }

    #[test]
    fn field_that_is_no_longer_declared_is_no_obstacle() {
        let (good, dropped) = (field("/spec/a"), [field("/spec/list/x"), field("/spec/c")]);
        let object = json!({"spec": {"a": 1, "c": 1, "list": [1]}});
        let found = StopFields::of(&object, &[(&good, None)], &dropped, Membership::Declared);
        assert_eq!(written(&found), ["/spec/a", "/spec/c"]);
        assert_eq!(found.obstacle, None);
    }

    #[test]
    fn removed_target_waits_only_for_what_may_have_been_set() {
        let (blocked, refused) = (field("/spec/list/x"), field("/spec/b"));
        let declared = [(&blocked, None), (&refused, Some(refusal()))];
        let of = |object: Value, membership| StopFields::of(&object, &declared, &[], membership);
        let unset = json!({"spec": {"list": [1]}});
        assert!(!of(unset.clone(), Membership::Declared).is_standby());
        assert!(of(unset, Membership::Removed).is_standby());
        let set = of(json!({"spec": {"b": 1}}), Membership::Removed);
        assert_eq!(set.obstacle, Some(Obstacle::NotAllowed(refusal())));
    }
}
