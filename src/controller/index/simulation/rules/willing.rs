//! Remembers which clusters the masters showed to take part in a lock.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    controller::{index::Input, object::ObjectKey},
    lease::{BootInstant, ClusterId},
    masters::TakesPart,
};

/// The age up to which an answer counts.
const FRESH: Duration = Duration::from_secs(30);

/// The last answer about each lock and cluster.
#[derive(Debug, Default)]
pub(super) struct WillingSeen(BTreeMap<(ObjectKey, String), (BootInstant, TakesPart)>);

impl WillingSeen {
    pub(super) fn see(&mut self, input: &Input) {
        let Input::Willing(_, answers) = input else { return };
        for (question, taken) in answers {
            for (cluster, takes_part) in question.clusters.iter().zip(taken) {
                let about = (question.key.clone(), cluster.uid().to_owned());
                self.0.insert(about, (question.asked, *takes_part));
            }
        }
    }

    fn last(&self, key: &ObjectKey, cluster: &ClusterId, now: BootInstant) -> TakesPart {
        let last = self.0.get(&(key.clone(), cluster.uid().to_owned()));
        let fresh = last.filter(|(asked, _)| now.since(*asked) <= FRESH);
        fresh.map_or(TakesPart::Unknown, |(_, takes_part)| *takes_part)
    }

    /// Reports whether the cluster was shown to be willing.
    pub(super) fn contains(&self, key: &ObjectKey, cluster: &ClusterId, now: BootInstant) -> bool {
        self.last(key, cluster, now) == TakesPart::Willing
    }

    /// Reports whether the cluster was shown not to take a lock that is not reserved for it.
    pub(super) fn lacks(&self, key: &ObjectKey, cluster: &ClusterId, now: BootInstant) -> bool {
        match self.last(key, cluster, now) {
            TakesPart::NotShown | TakesPart::Abstaining | TakesPart::Declining => true,
            TakesPart::Willing | TakesPart::Unknown => false,
        }
    }

    /// Reports whether the cluster was shown not to take a lock that is reserved for it. `chosen` locks are shown by each
    /// cluster that takes part.
    pub(super) fn declines(&self, key: &ObjectKey, to: &ClusterId, chosen: bool, now: BootInstant) -> bool {
        match self.last(key, to, now) {
            TakesPart::Declining => true,
            TakesPart::NotShown => chosen,
            TakesPart::Willing | TakesPart::Abstaining | TakesPart::Unknown => false,
        }
    }
}
