//! The rules between objects, each of which is valid by itself.

use std::{collections::BTreeMap, fmt::Display};

use super::problems::{FieldError, Quoted};
use crate::api::plan::{LockPlan, QuorumPlan};

/// The locks whose name on the masters is taken by one before them in `locks`, with the reason. The first keeps it, so
/// give the oldest first.
pub fn duplicate_lock_names<'a>(locks: impl IntoIterator<Item = &'a LockPlan>) -> Vec<(usize, FieldError)> {
    let names = |lock: &&'a LockPlan| vec![(lock.quorum.as_str(), lock.lock_name.as_str())];
    refused(locks, names, |lock, first, _| {
        lock_name_taken(lock, first.object())
    })
}

/// The error of a lock whose name on the masters is that of `first`.
pub(crate) fn lock_name_taken(lock: &LockPlan, first: impl Display) -> FieldError {
    let reason = format!(
        "is already the lock name of LeaderLock {first} in RedisQuorum {}: two objects cannot share a lock",
        lock.quorum
    );
    FieldError::new("spec.lockName", Quoted(lock.lock_name.as_str()), reason)
}

/// The quorums that keep keys where one before them in `quorums` does, with the reason: one server under one prefix is
/// a master of one quorum. The first keeps it, so give the oldest first.
pub fn shared_masters<'a>(quorums: impl IntoIterator<Item = &'a QuorumPlan>) -> Vec<(usize, FieldError)> {
    let places = |quorum: &&'a QuorumPlan| {
        let addresses = quorum.addresses().into_iter();
        let prefix = quorum.key_prefix.as_str();
        addresses.map(|address| (prefix, address)).collect()
    };
    refused(quorums, places, |_, first, (prefix, address)| {
        let reason = format!(
            "is already the prefix of RedisQuorum {} on {address}: give this quorum another prefix or other masters",
            first.name
        );
        FieldError::new("spec.keyPrefix", Quoted(prefix), reason)
    })
}

/// The items of which a name belongs to one before them that was not refused.
fn refused<T: Copy, N: Ord>(
    items: impl IntoIterator<Item = T>,
    names: impl Fn(&T) -> Vec<N>,
    error: impl Fn(T, T, &N) -> FieldError,
) -> Vec<(usize, FieldError)> {
    let mut taken = BTreeMap::new();
    let mut refused = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        let names = names(&item);
        match names.iter().find_map(|name| Some((name, *taken.get(name)?))) {
            Some((name, first)) => refused.push((index, error(item, first, name))),
            None => taken.extend(names.into_iter().map(|name| (name, item))),
        }
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::leader_lock::LeaderLock;
    use crate::api::redis_quorum::RedisQuorum;
    use crate::api::validate::{Graces, LockNames, validate_lock, validate_quorum};

    fn quorum(name: &str, prefix: &str, hosts: [&str; 3]) -> QuorumPlan {
        let masters: Vec<String> = hosts
            .iter()
            .map(|h| format!("{{name: {h}, url: redis://{h}}}"))
            .collect();
        let object: RedisQuorum = serde_yaml::from_str(&format!(
            "{{apiVersion: redlock.dev/v1alpha1, kind: RedisQuorum, metadata: {{name: {name}}}, \
             spec: {{keyPrefix: {prefix}, masters: [{}]}}}}",
            masters.join(", ")
        ))
        .unwrap();
        validate_quorum(&object).unwrap()
    }

    fn lock(name: &str, lock_name: &str, quorum: &QuorumPlan) -> LockPlan {
        let object: LeaderLock = serde_yaml::from_str(&format!(
            "{{apiVersion: redlock.dev/v1alpha1, kind: LeaderLock, metadata: {{name: {name}, namespace: ns}}, \
             spec: {{quorumRef: {{name: {}}}, lockName: {lock_name}}}}}",
            quorum.name
        ))
        .unwrap();
        validate_lock(&object, quorum, LockNames::Any, &Graces::default()).unwrap()
    }

    #[test]
    fn the_later_of_two_locks_with_one_name_is_refused() {
        let (p, q) = (
            quorum("p", "p", ["a", "b", "c"]),
            quorum("q", "q", ["a", "b", "c"]),
        );
        let locks = [
            lock("a", "x", &p),
            lock("b", "y", &p),
            lock("c", "x", &q),
            lock("d", "x", &p),
            lock("e", "x", &p),
        ];
        let refused = duplicate_lock_names(&locks);
        assert_eq!(
            refused.iter().map(|(index, _)| *index).collect::<Vec<_>>(),
            [3, 4]
        );
        assert_eq!(
            refused[0].1.to_string(),
            "spec.lockName: \"x\" is already the lock name of LeaderLock ns/a in RedisQuorum p: two objects cannot \
             share a lock"
        );
    }

    #[test]
    fn one_server_and_prefix_belong_to_one_quorum() {
        let quorums = [
            quorum("p", "x", ["a", "b", "c"]),
            quorum("q", "y", ["a", "b", "c"]),
            quorum("r", "x", ["c", "d", "e"]),
            quorum("s", "x", ["d", "e", "f"]), // r was refused, so its masters are free
        ];
        let refused = shared_masters(&quorums);
        assert_eq!(refused.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [2]);
        assert!(
            refused[0].1.reason.contains("RedisQuorum p on c:6379"),
            "{}",
            refused[0].1
        );
    }
}
