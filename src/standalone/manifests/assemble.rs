//! Turns the objects of all files into plans, by the rules of each object and the rules between objects. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::Loaded;
use super::parse::{Document, Object};
use super::problem::{Place, Problem};
use crate::api::LeaderLock;
use crate::api::plan::{LockPlan, QuorumPlan};
use crate::api::redis_quorum::{FirstStart, RedisQuorum};
use crate::api::validate::{
    Graces, LockNames, duplicate_lock_names, shared_masters, validate_lock, validate_quorum,
};

/// Returns the plans of the valid objects. Of two objects that conflict, the first one stays. `problems` holds those of
/// the parser; all problems are returned in the order of their places.
pub(super) fn assemble(documents: Vec<Document>, mut problems: Vec<Problem>) -> Loaded {
    let (documents, twice) = once_each(documents);
    problems.extend(twice);

    let files = documents
        .iter()
        .filter_map(|document| Some((document.place.object.clone()?, document.place.file.clone())));
    let files = files.collect();

    let mut quorum_objects = Vec::new();
    let mut lock_objects = Vec::new();
    for Document { place, object } in documents {
        match object {
            Object::Quorum(quorum) => quorum_objects.push((place, quorum)),
            Object::Lock(lock) => lock_objects.push((place, lock)),
        }
    }

    let declared: BTreeSet<String> = quorum_objects
        .iter()
        .filter_map(|(_, quorum)| quorum.metadata.name.clone())
        .collect();
    let quorums = quorums(quorum_objects, &mut problems);
    let locks = locks(lock_objects, &quorums, &declared, &mut problems);
    problems.sort_by(|a, b| (&a.file, a.document).cmp(&(&b.file, b.document)));
    Loaded {
        quorums,
        locks,
        files,
        problems,
    }
}

/// Keeps the first declaration of each object. In a cluster a second one would replace it, but here the intended one is
/// not known.
fn once_each(documents: Vec<Document>) -> (Vec<Document>, Vec<Problem>) {
    let mut seen: BTreeMap<String, Place> = BTreeMap::new();
    let mut problems = Vec::new();
    let mut kept = Vec::new();
    for document in documents {
        // An object without a name is reported as another problem.
        let named = match &document.object {
            Object::Quorum(quorum) => quorum.metadata.name.is_some(),
            Object::Lock(lock) => lock.metadata.name.is_some(),
        };
        let name = document.place.object.clone().filter(|_| named);
        match name.as_ref().and_then(|name| seen.get(name)) {
            Some(first) => {
                let reason = format!(
                    "is already declared in {}, document {}: remove one",
                    first.file, first.document
                );
                problems.push(document.place.problem_at("metadata.name", reason));
            }
            None => {
                seen.extend(name.map(|name| (name, document.place.clone())));
                kept.push(document);
            }
        }
    }
    (kept, problems)
}

fn quorums(objects: Vec<(Place, Box<RedisQuorum>)>, problems: &mut Vec<Problem>) -> Vec<QuorumPlan> {
    let mut valid = Vec::new();
    for (place, object) in objects {
        match validate_quorum(&object) {
            Ok(plan) if plan.first_start == FirstStart::Immediate => {
                let reason = "Immediate is not possible with --standalone, where no status records the \
                    initialisation: remove it and run \"redlock init\" once";
                problems.push(place.problem_at("spec.firstStart", reason));
            }
            Ok(plan) => valid.push((place, plan)),
            Err(errors) => problems.extend(place.field_problems(errors)),
        }
    }
    let refused = shared_masters(valid.iter().map(|(_, plan)| plan));
    without(valid, refused, problems)
}

fn locks(
    objects: Vec<(Place, Box<LeaderLock>)>,
    quorums: &[QuorumPlan],
    declared: &BTreeSet<String>,
    problems: &mut Vec<Problem>,
) -> Vec<LockPlan> {
    let by_name: BTreeMap<&str, &QuorumPlan> =
        quorums.iter().map(|plan| (plan.name.as_str(), plan)).collect();
    let mut valid = Vec::new();
    for (place, object) in objects {
        let wanted = &object.spec.quorum_ref.name;
        let Some(quorum) = by_name.get(wanted.as_str()) else {
            let reason = if declared.contains(wanted) {
                format!("RedisQuorum {wanted:?} cannot be used: see its own problems")
            } else {
                format!("RedisQuorum {wanted:?} is not declared in this folder: declare it or name another")
            };
            problems.push(place.problem_at("spec.quorumRef.name", reason));
            continue;
        };
        match validate_lock(&object, quorum, LockNames::Any, &Graces::default()) {
            Ok(plan) => valid.push((place, plan)),
            Err(errors) => problems.extend(place.field_problems(errors)),
        }
    }
    let refused = duplicate_lock_names(valid.iter().map(|(_, plan)| plan));
    without(valid, refused, problems)
}

/// Returns the plans that the rules between objects do not refuse.
fn without<T>(
    plans: Vec<(Place, T)>,
    refused: Vec<(usize, crate::api::validate::FieldError)>,
    problems: &mut Vec<Problem>,
) -> Vec<T> {
    let mut refused: BTreeMap<usize, _> = refused.into_iter().collect();
    let mut kept = Vec::new();
    for (index, (place, plan)) in plans.into_iter().enumerate() {
        match refused.remove(&index) {
            Some(error) => problems.extend(place.field_problems(vec![error])),
            None => kept.push(plan),
        }
    }
    kept
}
