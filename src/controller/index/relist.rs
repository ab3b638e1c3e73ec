//! Which objects of one kind a list held: what a list that came in whole did not hold is gone, and what it held is so
//! as it held it.

use std::collections::BTreeSet;

use crate::controller::{object::ObjectKey, observe::Observation};

#[derive(Debug, Default)]
pub(in crate::controller) struct RelistTracker {
    /// While a list comes in.
    list: Option<List>,
    synced: bool,
}

#[derive(Debug, Default)]
struct List {
    /// What it held so far.
    held: BTreeSet<ObjectKey>,
    /// Objects that this process wrote since the list was asked for: it may hold them as they were before.
    written: BTreeSet<ObjectKey>,
}

/// Where an object comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum Origin {
    /// A watch, or the list before it.
    Watch,
    /// The answer to a write of this process.
    Answer,
}

impl RelistTracker {
    /// Returns what is gone by this observation, out of what is `known`.
    pub(in crate::controller) fn observe<'a, K: kube::ResourceExt>(
        &mut self,
        observation: &Observation<K>,
        known: impl Iterator<Item = &'a ObjectKey>,
    ) -> Vec<ObjectKey> {
        match observation {
            Observation::Seen(_) | Observation::Malformed(..) => {
                if let (Some(list), Some(key)) = (&mut self.list, observation.key()) {
                    list.held.insert(key);
                }
                Vec::new()
            }
            Observation::Gone(key) => vec![key.clone()],
            Observation::Restarted => {
                self.list = Some(List::default());
                Vec::new()
            }
            Observation::Synced => {
                self.synced = true;
                match self.list.take() {
                    Some(list) => known.filter(|key| !list.held.contains(*key)).cloned().collect(),
                    None => Vec::new(),
                }
            }
            Observation::Failed(_) => Vec::new(),
        }
    }

    /// The first list was complete.
    pub(in crate::controller) fn synced(&self) -> bool {
        self.synced
    }

    /// Whether an object replaces the known one: its version is `older` than the known version or not. Notes an own write
    /// that does.
    ///
    /// A list is the state of the server. Its versions are older than known ones after etcd was restored from a backup.
    /// A single older version is only late.
    pub(in crate::controller) fn replaces(&mut self, key: &ObjectKey, origin: Origin, older: bool) -> bool {
        match (&mut self.list, origin) {
            (None, _) => !older,
            (Some(list), Origin::Answer) => {
                // An answer that is dropped must not keep the listed version out: neither would be known then.
                if !older {
                    list.written.insert(key.clone());
                }
                !older
            }
            (Some(list), Origin::Watch) => !older || !list.written.contains(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    type Observed = Observation<ConfigMap>;

    fn key(name: &str) -> ObjectKey {
        ObjectKey {
            namespace: "n".into(),
            name: name.into(),
        }
    }

    #[test]
    fn list_replaces_newer_versions_and_single_objects_do_not() {
        let mut relist = RelistTracker::default();
        let call = |relist: &mut RelistTracker, observation: Observed| {
            relist.observe(&observation, std::iter::empty())
        };
        assert!(!relist.replaces(&key("a"), Origin::Watch, true));
        call(&mut relist, Observation::Restarted);
        assert!(relist.replaces(&key("a"), Origin::Watch, true));
        call(&mut relist, Observation::Synced);
        assert!(!relist.replaces(&key("a"), Origin::Watch, true));
        assert!(relist.replaces(&key("a"), Origin::Watch, false));
    }

    #[test]
    fn answer_to_an_own_write_outlasts_the_list_that_was_under_way() {
        let mut relist = RelistTracker::default();
        let call = |relist: &mut RelistTracker, observation: Observed| {
            relist.observe(&observation, std::iter::empty())
        };
        call(&mut relist, Observation::Restarted);
        assert!(relist.replaces(&key("a"), Origin::Answer, false));
        assert!(!relist.replaces(&key("a"), Origin::Watch, true));
        assert!(relist.replaces(&key("b"), Origin::Watch, true));
        // The list failed and is asked for again: it holds the write.
        call(&mut relist, Observation::Restarted);
        assert!(relist.replaces(&key("a"), Origin::Watch, true));
    }

    #[test]
    fn answer_that_is_dropped_does_not_keep_the_listed_version_out() {
        let mut relist = RelistTracker::default();
        relist.observe(&Observed::Restarted, std::iter::empty());
        // etcd was restored: the write got an older version than the one that is known.
        assert!(!relist.replaces(&key("a"), Origin::Answer, true));
        assert!(relist.replaces(&key("a"), Origin::Watch, true));
    }
}
