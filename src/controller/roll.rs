//! Which objects of one kind a list held: what a list that came in whole did not hold is gone.

use std::collections::BTreeSet;

use super::{
    object::ObjectKey,
    observe::{Observation, Trouble},
};

#[derive(Debug, Default)]
pub(super) struct Roll {
    /// While a list comes in: what it held so far.
    listed: Option<BTreeSet<ObjectKey>>,
    synced: bool,
    trouble: Option<Trouble>,
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
                self.trouble = None;
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
                self.trouble = None;
                match self.listed.take() {
                    Some(listed) => known.filter(|key| !listed.contains(*key)).cloned().collect(),
                    None => Vec::new(),
                }
            }
            Observation::Failed(trouble) => {
                self.trouble = Some(trouble.clone());
                Vec::new()
            }
        }
    }

    /// The first list was complete.
    pub(super) fn synced(&self) -> bool {
        self.synced
    }

    /// Why the objects cannot be followed now.
    pub(super) fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }
}
