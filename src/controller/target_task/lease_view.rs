//! Captures a lock's state as the elector shows it at one moment. Pure.

use super::goal::Other;
use crate::{
    elector::LockView,
    lease::{BootInstant, ClusterId, FencingToken, Holder, Marks},
};

/// The state of a lock at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::controller) struct LeaseView {
    /// The token and the end of this process's lease.
    pub(super) held: Option<(FencingToken, BootInstant)>,
    /// The lease of another process. A lost lease of this process that is running out does not count as a sibling's:
    /// the targets it guarded must be stopped by its end.
    pub(super) other: Option<OtherLease>,
    /// The last other holder observed, even after the end of its lease.
    pub(super) last: Option<(Other, FencingToken)>,
    /// The registers at this process's last acquisition of the lock.
    pub(super) marks: Marks,
    /// Whether, for a fenced lock, the mark on the masters shows that a lease of this cluster preceded that
    /// acquisition.
    pub(super) succeeds_sibling: bool,
}

/// A lease that another process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) struct OtherLease {
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
            succeeds_sibling: view.succession.is_some_and(|succession| succession.is_sibling()),
        }
    }

    /// Returns the view in which this process holds the lock until this time under this lease, or no process does.
    #[cfg(test)]
    pub(in crate::controller) fn own(token: Option<FencingToken>, until: BootInstant) -> Self {
        Self {
            held: token.map(|token| (token, until)),
            ..Self::default()
        }
    }

    /// Returns the token under which this process holds the lock.
    pub(super) fn token(&self) -> Option<FencingToken> {
        self.held.map(|(token, _)| token)
    }

    pub(super) fn holder(&self) -> Option<Other> {
        self.other.map(|lease| lease.of)
    }

    /// Returns the token of another cluster's lease.
    pub(super) fn elsewhere(&self) -> Option<FencingToken> {
        let other = self.other.filter(|lease| lease.of == Other::Elsewhere);
        other.map(|lease| lease.token)
    }
}
