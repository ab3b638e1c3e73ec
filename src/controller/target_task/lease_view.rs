//! A lock as the elector shows it at one moment. Pure.

use super::goal::Other;
use crate::{
    elector::LockView,
    lease::{BootInstant, ClusterId, FencingToken, Holder, Marks},
};

/// A lock as the elector shows it at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeaseView {
    /// The lease of this process, and its end.
    pub(super) held: Option<(FencingToken, BootInstant)>,
    /// The lease of another process. The own one, lost and left to run out, is no sibling's: what it guarded must be gone
    /// by its end.
    pub(super) other: Option<OtherLease>,
    /// The last other holder that was seen, also after its end.
    pub(super) last: Option<(Other, FencingToken)>,
    /// The registers when this process acquired the lock last.
    pub(super) marks: Marks,
}

/// A lease that another process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OtherLease {
    pub(super) of: Other,
    pub(super) token: FencingToken,
    pub(super) ends: BootInstant,
}

impl LeaseView {
    pub(super) fn of(view: &LockView, cluster: &ClusterId, now: BootInstant) -> Self {
        let whose = |holder: &Holder| {
            if holder.cluster.uid() == cluster.uid() {
                Other::Sibling
            } else {
                Other::Elsewhere
            }
        };
        let authority = view.authority_at(now);
        let other = view.holder_at(now).filter(|holder| !view.is_own(holder));
        let last = view.last_holder.as_ref();
        Self {
            held: authority.map(|authority| (authority.token, authority.valid_until)),
            other: other.map(|holder| OtherLease {
                of: whose(holder),
                token: holder.token,
                ends: holder.ends,
            }),
            last: last.map(|holder| (whose(holder), holder.token)),
            marks: view.marks,
        }
    }

    /// The token under which this process holds the lock.
    pub(super) fn token(&self) -> Option<FencingToken> {
        self.held.map(|(token, _)| token)
    }

    pub(super) fn holder(&self) -> Option<Other> {
        self.other.map(|lease| lease.of)
    }

    /// The token of the lease that another cluster has.
    pub(super) fn elsewhere(&self) -> Option<FencingToken> {
        let other = self.other.filter(|lease| lease.of == Other::Elsewhere);
        other.map(|lease| lease.token)
    }
}
