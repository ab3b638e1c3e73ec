//! Which objects of one kind a list held: what a list that came in whole did not hold is gone.

use std::collections::BTreeSet;

use super::{object::ObjectKey, observe::Observation};

#[derive(Debug, Default)]
pub(super) struct Roll {
    /// While a list comes in: what it held so far.
    listed: Option<BTreeSet<ObjectKey>>,
    synced: bool,
}

impl Roll {
    /// Returns what is gone by this observation, out of what is `known`.
    pub(super) fn call<'a, K: kube::ResourceExt>(
        &mut self,
        observation: &Observation<K>,
        known: impl Iterator<Item = &'a ObjectKey>,
    ) -> Vec<ObjectKey> {
        match observation {
            Observation::Seen(_) | Observation::Malformed(..) => {
                if let (Some(listed), Some(key)) = (&mut self.listed, observation.key()) {
                    listed.insert(key);
                }
                Vec::new()
            }
            Observation::Gone(key) => vec![key.clone()],
            Observation::Restarted => {
                self.listed = Some(BTreeSet::new());
                Vec::new()
            }
            Observation::Synced => {
                self.synced = true;
                match self.listed.take() {
                    Some(listed) => known.filter(|key| !listed.contains(*key)).cloned().collect(),
                    None => Vec::new(),
                }
            }
            Observation::Failed(_) => Vec::new(),
        }
    }

    /// The first list was complete.
    pub(super) fn synced(&self) -> bool {
        self.synced
    }
}
