//! Which object has a lock name: the oldest of those that may have it.

use std::collections::{BTreeMap, BTreeSet};

use super::object::ObjectKey;
use crate::lease::LockName;

/// A lock name on the masters of a quorum.
pub(super) type Name = (String, LockName);
/// See [`super::object::age`].
pub(super) type Age = (i64, String, String);

#[derive(Debug, Default)]
pub(super) struct Claims {
    by_name: BTreeMap<Name, BTreeSet<(Age, ObjectKey)>>,
    by_object: BTreeMap<ObjectKey, (Name, Age)>,
}

impl Claims {
    /// The object may have this name, or (`None`) none. Returns the other objects for which that changes something.
    pub(super) fn set(&mut self, key: &ObjectKey, claim: Option<(Name, Age)>) -> Vec<ObjectKey> {
        if self.by_object.get(key) == claim.as_ref() {
            return Vec::new();
        }
        let mut touched = Vec::new();
        if let Some((name, age)) = self.by_object.remove(key)
            && let Some(claimants) = self.by_name.get_mut(&name)
        {
            claimants.remove(&(age, key.clone()));
            touched.extend(claimants.iter().map(|(_, other)| other.clone()));
            if claimants.is_empty() {
                self.by_name.remove(&name);
            }
        }
        if let Some((name, age)) = claim {
            let claimants = self.by_name.entry(name.clone()).or_default();
            touched.extend(claimants.iter().map(|(_, other)| other.clone()));
            claimants.insert((age.clone(), key.clone()));
            self.by_object.insert(key.clone(), (name, age));
        }
        touched
    }

    /// The object that has the name.
    pub(super) fn first(&self, name: &Name) -> Option<&ObjectKey> {
        self.by_name.get(name)?.first().map(|(_, key)| key)
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

    fn claim(lock: &str, created: i64, name: &str) -> Option<(Name, Age)> {
        let lock = LockName::parse(lock).unwrap();
        Some((("q".into(), lock), (created, "n".into(), name.into())))
    }

    #[test]
    fn the_oldest_has_the_name_until_it_gives_it_up() {
        let mut claims = Claims::default();
        let name = claim("x", 0, "").unwrap().0;
        assert_eq!(claims.set(&key("young"), claim("x", 9, "young")), []);
        assert_eq!(claims.first(&name), Some(&key("young")));
        // Seen later, but older.
        assert_eq!(claims.set(&key("old"), claim("x", 5, "old")), [key("young")]);
        assert_eq!(claims.first(&name), Some(&key("old")));
        assert_eq!(claims.set(&key("old"), claim("x", 5, "old")), [], "nothing new");
        assert_eq!(claims.set(&key("old"), claim("y", 5, "old")), [key("young")]);
        assert_eq!(claims.first(&name), Some(&key("young")));
        assert_eq!(claims.set(&key("young"), None), []);
        assert_eq!(claims.first(&name), None);
    }
}
