//! Decides which object owns a name or a target: the oldest one that claims it.

use std::collections::{BTreeMap, BTreeSet};

use crate::controller::object::ObjectKey;
use crate::lease::LockName;

/// A lock name on the masters of a quorum.
pub(in crate::controller) type Name = (String, LockName);
/// The sort key of an object; see [`super::object::age`].
pub(in crate::controller) type Age = (i64, String, String);

/// The claims of objects on names or targets, each of which only one object may own.
#[derive(Debug)]
pub(in crate::controller) struct OwnershipIndex<N> {
    claimants: BTreeMap<N, BTreeSet<(Age, ObjectKey)>>,
    by_object: BTreeMap<ObjectKey, (BTreeSet<N>, Age)>,
}

impl<N> Default for OwnershipIndex<N> {
    fn default() -> Self {
        Self {
            claimants: BTreeMap::new(),
            by_object: BTreeMap::new(),
        }
    }
}

impl<N: Ord + Clone> OwnershipIndex<N> {
    /// Sets the claims of an object. Returns the other objects with one of the previous or present claims:
    /// the owner may have changed.
    pub(in crate::controller) fn set(
        &mut self,
        key: &ObjectKey,
        names: BTreeSet<N>,
        age: Age,
    ) -> Vec<ObjectKey> {
        let before = self.by_object.get(key);
        if before.map_or(names.is_empty(), |before| before.0 == names && before.1 == age) {
            return Vec::new();
        }
        let mut touched = BTreeSet::new();
        if let Some((names, age)) = self.by_object.remove(key) {
            for name in names {
                if let Some(claimants) = self.claimants.get_mut(&name) {
                    claimants.remove(&(age.clone(), key.clone()));
                    touched.extend(claimants.iter().map(|(_, other)| other.clone()));
                    if claimants.is_empty() {
                        self.claimants.remove(&name);
                    }
                }
            }
        }
        for name in &names {
            let claimants = self.claimants.entry(name.clone()).or_default();
            touched.extend(claimants.iter().map(|(_, other)| other.clone()));
            claimants.insert((age.clone(), key.clone()));
        }
        if !names.is_empty() {
            self.by_object.insert(key.clone(), (names, age));
        }
        touched.into_iter().collect()
    }

    /// Returns the objects that claim a name, the oldest first.
    pub(in crate::controller) fn of(&self, name: &N) -> impl Iterator<Item = &ObjectKey> {
        self.claimants.get(name).into_iter().flatten().map(|(_, key)| key)
    }

    /// Returns the object that owns a name.
    pub(in crate::controller) fn first(&self, name: &N) -> Option<&ObjectKey> {
        self.of(name).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey {
            namespace: "n".into(),
            name: name.into(),
        }
    }

    #[test]
    fn the_oldest_has_the_name_until_it_gives_it_up() {
        let mut claims = OwnershipIndex::<&str>::default();
        let mut set = |object: &str, created: i64, names: &[&'static str]| {
            let age = (created, "n".into(), object.into());
            let touched = claims.set(&key(object), names.iter().copied().collect(), age);
            let touched: Vec<String> = touched.into_iter().map(|key| key.name).collect();
            (touched, claims.first(&"x").map(|key| key.name.clone()))
        };
        let first = |name: &str| Some(name.to_owned());
        assert_eq!(set("young", 9, &["x"]), (vec![], first("young")));
        // Observed later, but older.
        assert_eq!(set("old", 5, &["w", "x"]), (vec!["young".into()], first("old")));
        assert_eq!(set("old", 5, &["w", "x"]), (vec![], first("old")), "nothing new");
        assert_eq!(set("old", 5, &["w", "y"]), (vec!["young".into()], first("young")));
        assert_eq!(set("young", 9, &[]), (vec![], None));
        assert_eq!(set("young", 9, &[]), (vec![], None));
    }
}
