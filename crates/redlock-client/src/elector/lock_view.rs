//! Describes the state of one lock, as this process sees it.

use std::{sync::Arc, time::Duration};

use crate::{
    lease::{
        Authority, BootInstant, FencingToken, Holder, Marks, Nonce, Participation, Takeover,
        fence::Succession,
    },
    masters::LeaseAttempt,
};

/// A snapshot, replaced at every change. Its methods take the time, so an old snapshot gives no authority
/// past its end.
#[derive(Clone, Debug)]
pub struct LockView {
    authority: Option<Authority>,
    /// The other holder that the last observation showed.
    pub holder: Option<Holder>,
    /// The number of changes of the holder that this process saw.
    pub transitions: u64,
    /// The time of the last acquisition by this process, since 1970.
    pub acquired: Option<Duration>,
    /// The end of the lease that the last acquisition of this process followed.
    pub takeover: Option<Takeover>,
    /// The time from that end to the acquisition.
    pub takeover_gap: Option<Duration>,
    /// The time at which the last renewal (or acquisition) was won.
    pub renewed: Option<BootInstant>,
    pub participation: Participation,
    /// The registers at the last acquisition by this process.
    pub marks: Marks,
    /// The earlier holders of a fenced lock, as that acquisition showed them.
    pub succession: Option<Succession>,
    /// The last other holder that was seen, even after its lease has ended.
    pub last_holder: Option<Holder>,
    /// The holder before `last_holder`.
    pub former_holder: Option<Holder>,
    /// The greatest token of a lease from before the last step of the local clock.
    stepped_after: Option<FencingToken>,
    last_token: Option<FencingToken>,
    last_seen: Option<Nonce>,
    /// The last lease of this process.
    own: Option<Arc<LeaseAttempt>>,
}

impl LockView {
    pub(super) fn new(participation: Participation) -> Self {
        Self {
            authority: None,
            holder: None,
            transitions: 0,
            acquired: None,
            takeover: None,
            takeover_gap: None,
            renewed: None,
            participation,
            marks: Marks::default(),
            succession: None,
            last_holder: None,
            former_holder: None,
            stepped_after: None,
            last_token: None,
            last_seen: None,
            own: None,
        }
    }

    /// Returns the authority of this process at `now`, if any. Call it after the last `await` before a write.
    #[must_use]
    pub fn authority_at(&self, now: BootInstant) -> Option<Authority> {
        self.authority?.at(now)
    }

    /// Returns the other holder at `now`. A holder whose lease has ended holds nothing, even before the next
    /// observation.
    #[must_use]
    pub fn holder_at(&self, now: BootInstant) -> Option<&Holder> {
        self.holder.as_ref().filter(|holder| now < holder.ends)
    }

    /// Returns the greatest token that this process held or saw.
    #[must_use]
    pub fn last_token(&self) -> Option<FencingToken> {
        self.last_token
    }

    /// Reports whether the local clock stepped after this process acquired the lease with this token. This includes a
    /// lease that had been lost before: it may have ended earlier than its `valid_until`.
    #[must_use]
    pub fn clock_stepped_after(&self, token: FencingToken) -> bool {
        self.stepped_after >= Some(token)
    }

    /// Reports whether `holder` has the last lease that this process had. The token cannot decide this: on
    /// most masters, an observation may find a smaller grant number than the largest one, which became the
    /// token.
    #[must_use]
    pub fn is_own(&self, holder: &Holder) -> bool {
        let own = self.own.as_ref();
        own.is_some_and(|own| own.stem.nonce() == holder.nonce)
    }

    /// Reports whether the fenced lease of this process with this token is marked, so that pods may have
    /// started under it.
    #[must_use]
    pub fn is_marked(&self, token: FencingToken) -> bool {
        let fence = self.own.as_ref().and_then(|own| own.fence());
        let mark = fence.and_then(|fence| fence.mark());
        mark.is_some_and(|mark| mark.token == token)
    }

    pub(super) fn active(&mut self, authority: Authority, own: Option<Arc<LeaseAttempt>>, now: BootInstant) {
        self.own = own.or(self.own.take());
        if self.last_token.is_none_or(|last| last < authority.token) {
            self.changed(authority.token);
            self.last_seen = None;
        }
        self.authority = Some(authority);
        self.holder = None;
        self.renewed = Some(now);
    }

    /// Ends the authority of every lease that was acquired before the step.
    pub(super) fn clock_stepped(&mut self) {
        self.authority = None;
        self.stepped_after = self.last_token;
    }

    /// Records the observed holder; returns true if the holder is new.
    pub(super) fn standby(&mut self, holder: Option<Holder>) -> bool {
        self.authority = None;
        let new = holder.as_ref().is_some_and(|h| self.last_seen != Some(h.nonce));
        if holder.is_some() {
            if new {
                self.former_holder = self.last_holder.take();
            }
            self.last_holder.clone_from(&holder);
        }
        if let Some(holder) = &holder
            && new
        {
            self.changed(holder.token);
            self.last_seen = Some(holder.nonce);
        }
        self.holder = holder;
        new
    }

    fn changed(&mut self, token: FencingToken) {
        self.transitions += u64::from(self.last_token.is_some());
        self.last_token = self.last_token.max(Some(token));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(token: u64) -> Authority {
        Authority {
            token: FencingToken(token),
            valid_until: BootInstant::NEVER,
        }
    }

    #[test]
    fn clock_step_concerns_the_leases_before_it_alone() {
        let now = BootInstant::default();
        let mut view = LockView::new(Participation::Contend);
        view.clock_stepped();
        view.active(authority(5), None, now);
        assert!(!view.clock_stepped_after(FencingToken(5)), "acquired after it");

        view.standby(None);
        view.clock_stepped();
        assert!(view.clock_stepped_after(FencingToken(5)), "lost before it");

        view.active(authority(6), None, now);
        assert!(
            view.clock_stepped_after(FencingToken(5)),
            "also after the next one"
        );
        assert!(!view.clock_stepped_after(FencingToken(6)));

        view.clock_stepped();
        assert!(view.clock_stepped_after(FencingToken(6)));
        assert!(view.authority_at(now).is_none());
    }
}
