//! What the HTTP side sees: handles, replaced as a whole at every change. Every answer is computed from them when it
//! is asked for.

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::ArcSwap;

use crate::{
    elector::Elector,
    lease::{ClusterId, HolderIdentity, LockName},
    masters::Masters,
    telemetry::{QuorumMeter, Source, Telemetry},
};

#[derive(Debug)]
pub(super) struct State {
    pub(super) identity: HolderIdentity,
    pub(super) cluster: ClusterId,
    pub(super) telemetry: Arc<Telemetry>,
    pub(super) in_use: ArcSwap<InUse>,
}

impl State {
    pub(super) fn scrape(&self) -> Result<String, prometheus::Error> {
        let in_use = self.in_use.load_full();
        let sources: Vec<_> = in_use.quorums.iter().map(InUseQuorum::source).collect();
        self.telemetry.scrape(&sources)
    }

    /// To be called about every second, see [`Telemetry::look`].
    pub(super) fn look(&self) {
        let in_use = self.in_use.load_full();
        let sources: Vec<_> = in_use.quorums.iter().map(InUseQuorum::source).collect();
        self.telemetry.look(&sources);
    }
}

#[derive(Debug, Default)]
pub(super) struct InUse {
    pub(super) quorums: Vec<InUseQuorum>,
    /// Declared, valid, and not running at this moment: being opened anew.
    pub(super) opening: Vec<String>,
    pub(super) problems: Vec<String>,
    pub(super) stopping: bool,
}

#[derive(Clone, Debug)]
pub(super) struct InUseQuorum {
    pub(super) name: String,
    pub(super) masters: Masters,
    pub(super) elector: Elector,
    pub(super) meter: Arc<QuorumMeter>,
    /// Namespace and name of the object that declares each lock.
    pub(super) locks: Arc<BTreeMap<LockName, (String, String)>>,
}

impl InUseQuorum {
    pub(super) fn source(&self) -> Source<'_> {
        Source {
            meter: &self.meter,
            masters: &self.masters,
            elector: &self.elector,
        }
    }
}
