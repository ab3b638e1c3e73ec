//! How one lock stands, as this process sees it.

use std::time::Duration;

use crate::lease::{Authority, BootInstant, FencingToken, Holder, Marks, Nonce, Participation, Takeover};

/// A value, replaced at every change. It is good to ask at any time: authority ends by itself.
#[derive(Clone, Debug)]
pub struct LockView {
    authority: Option<Authority>,
    /// Who else holds it, by the last look.
    pub holder: Option<Holder>,
    /// Changes of the holder that this process saw.
    pub transitions: u64,
    /// Time since 1970 of the last acquisition by this process.
    pub acquired: Option<Duration>,
    /// What the last acquisition by this process came after.
    pub takeover: Option<Takeover>,
    /// And how long after the end of that.
    pub takeover_gap: Option<Duration>,
    /// When the last renewal (or acquisition) was won.
    pub renewed: Option<BootInstant>,
    pub participation: Participation,
    /// The registers as they were when this process acquired the lock last.
    pub marks: Marks,
    /// The last other holder that was seen, also after its end.
    pub last_holder: Option<Holder>,
    /// The one before that.
    pub former_holder: Option<Holder>,
    /// The leases up to this token were acquired before the last step of the local clock.
    stepped_after: Option<FencingToken>,
    last_token: Option<FencingToken>,
    last_seen: Option<Nonce>,
    /// Of the last lease of this process.
    own: Option<Nonce>,
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
            last_holder: None,
            former_holder: None,
            stepped_after: None,
            last_token: None,
            last_seen: None,
            own: None,
        }
    }

    /// The authority of this process at `now`, if any. Ask after the last `await` before a write.
    #[must_use]
    pub fn authority_at(&self, now: BootInstant) -> Option<Authority> {
        self.authority?.at(now)
    }

    /// Who else holds it at `now`. One whose lease has ended holds nothing, also before the next look says so.
    #[must_use]
    pub fn holder_at(&self, now: BootInstant) -> Option<&Holder> {
        self.holder.as_ref().filter(|holder| now < holder.ends)
    }

    /// The greatest token that this process held or saw.
    #[must_use]
    pub fn last_token(&self) -> Option<FencingToken> {
        self.last_token
    }

    /// Whether the local clock stepped after this process acquired the lease with this token, also when the lease had been
    /// lost before: it may have ended earlier than its `valid_until` said.
    #[must_use]
    pub fn clock_stepped_after(&self, token: FencingToken) -> bool {
        self.stepped_after >= Some(token)
    }

    /// Whether this is the last lease that this process had. Its token does not say: a look may find another grant number
    /// at most masters than the largest, which became the token.
    #[must_use]
    pub fn is_own(&self, holder: &Holder) -> bool {
        self.own == Some(holder.nonce)
    }

    pub(super) fn active(&mut self, authority: Authority, own: Option<Nonce>, now: BootInstant) {
        self.own = own.or(self.own);
        if self.last_token.is_none_or(|last| last < authority.token) {
            self.changed(authority.token);
            self.last_seen = None;
        }
        self.authority = Some(authority);
        self.holder = None;
        self.renewed = Some(now);
    }

    /// No lease that was acquired before gives authority.
    pub(super) fn clock_stepped(&mut self) {
        self.authority = None;
        self.stepped_after = self.last_token;
    }

    /// True if the holder is another than before.
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
