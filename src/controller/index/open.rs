//! The quorums that are open, by what was ordered.

use std::collections::{BTreeMap, BTreeSet};

use crate::{api::plan::QuorumPlan, controller::object::ObjectKey, lease::LockName};

#[derive(Debug)]
pub(super) struct OpenQuorum {
    pub(super) plan: QuorumPlan,
    /// The object that each lock was put for.
    pub(super) names: BTreeMap<LockName, ObjectKey>,
}

#[derive(Debug, Default)]
pub(super) struct OpenQuorums {
    open: BTreeMap<String, OpenQuorum>,
    closing: BTreeSet<String>,
}

impl OpenQuorums {
    pub(super) fn get(&self, name: &str) -> Option<&OpenQuorum> {
        self.open.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut OpenQuorum> {
        self.open.get_mut(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.open.keys()
    }

    /// Gives its locks back; must end before it can be opened again.
    pub(super) fn is_closing(&self, name: &str) -> bool {
        self.closing.contains(name)
    }

    pub(super) fn open(&mut self, plan: QuorumPlan) {
        let names = BTreeMap::new();
        self.open.insert(plan.name.clone(), OpenQuorum { plan, names });
    }

    /// Whether it was open.
    pub(super) fn close(&mut self, name: &str) -> bool {
        let closes = self.open.remove(name).is_some();
        if closes {
            self.closing.insert(name.to_owned());
        }
        closes
    }

    pub(super) fn closed(&mut self, name: &str) {
        self.closing.remove(name);
    }

    /// It could not be opened.
    pub(super) fn remove(&mut self, name: &str) {
        self.open.remove(name);
    }
}
