//! The garbage collector: deletes dependents whose owners are gone, and resolves the finalizers `foregroundDeletion` and
//! `orphan` that the API server sets for the propagation policy of a deletion.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{
    ClusterObjects, ControllerPlan, Propagation,
    object::{Object, finalizers, is_deleting, text, uid, without_finalizer},
    selector::{owner_references, without_owner},
};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

pub(super) fn reconcile(objects: &dyn ClusterObjects) -> ControllerPlan {
    let kinds = objects.kinds();
    let all: Vec<(&String, Object)> = kinds
        .iter()
        .flat_map(|kind| objects.list(kind).into_iter().map(move |one| (kind, one)))
        .collect();
    let mut plan = ControllerPlan::default();
    let ends = |object: &Value| is_deleting(object) && finalizers(object).next().is_some();
    let owned = |object: &Value| !owner_references(object).is_empty();
    if !all.iter().any(|(_, object)| owned(object) || ends(object)) {
        return plan;
    }
    let graph = Graph {
        owners: all.iter().map(|(_, object)| (uid(object), object)).collect(),
        kinds: kinds.iter().map(String::as_str).collect(),
    };
    for (kind, object) in &all {
        if owned(object) && !is_deleting(object) {
            graph.collect(kind, object, &mut plan);
        }
    }
    for (kind, object) in all.iter().filter(|(_, object)| ends(object)) {
        if finalizers(object).any(|one| one == ORPHAN) {
            orphan(kind, object, &all, &mut plan);
        } else if finalizers(object).any(|one| one == FOREGROUND) {
            finish_foreground(kind, object, &all, &mut plan);
        }
    }
    plan
}

struct Graph<'a> {
    owners: HashMap<&'a str, &'a Object>,
    kinds: HashSet<&'a str>,
}

impl Graph<'_> {
    /// Deletes an object whose owners are all gone, and removes the references to those that are gone from another.
    /// An owner of a kind that is not served is never taken for gone.
    fn collect(&self, kind: &str, object: &Value, plan: &mut ControllerPlan) {
        let (mut solid, mut waits) = (false, false);
        let mut gone = Vec::new();
        for reference in owner_references(object) {
            let owner_uid = text(reference, "/uid");
            match self.owners.get(owner_uid) {
                Some(owner) if is_waiting(owner) => {
                    waits = true;
                    gone.push(owner_uid);
                }
                Some(_) => solid = true,
                None if self.kinds.contains(text(reference, "/kind")) => gone.push(owner_uid),
                None => solid = true,
            }
        }
        if gone.is_empty() {
            return;
        }
        if solid {
            plan.update(kind, without_owner(object, &gone));
        } else if waits {
            plan.delete_by(kind, object, Propagation::Foreground);
        } else {
            plan.delete(kind, object);
        }
    }
}

/// Reports whether an owner is deleted in the foreground: it waits for its dependents.
fn is_waiting(owner: &Value) -> bool {
    is_deleting(owner) && finalizers(owner).any(|one| one == FOREGROUND)
}

fn dependents<'a>(
    owner: &'a Value,
    all: &'a [(&'a String, Object)],
) -> impl Iterator<Item = (&'a String, &'a Object, &'a Value)> {
    let owner = uid(owner);
    all.iter().filter_map(move |(kind, object)| {
        let references = owner_references(object);
        let reference = references.iter().find(|reference| reference["uid"] == owner)?;
        Some((*kind, object, reference))
    })
}

fn orphan(kind: &str, owner: &Value, all: &[(&String, Object)], plan: &mut ControllerPlan) {
    let mut left = false;
    for (kind, object, _) in dependents(owner, all) {
        left = true;
        plan.update(kind, without_owner(object, &[uid(owner)]));
    }
    if !left {
        plan.update(kind, without_finalizer(owner, ORPHAN));
    }
}

fn finish_foreground(kind: &str, owner: &Value, all: &[(&String, Object)], plan: &mut ControllerPlan) {
    let blocks = |(_, _, reference): (&String, &Object, &Value)| reference["blockOwnerDeletion"] == true;
    if !dependents(owner, all).any(blocks) {
        plan.update(kind, without_finalizer(owner, FOREGROUND));
    }
}
