//! How one lock stands, as this process sees it.

use std::time::Duration;

use crate::lease::{Authority, FencingToken, Holder, Moment, Participation, Takeover};

/// A value, replaced at every change. It is good to ask at any time: authority ends by itself.
#[derive(Clone, Debug)]
pub struct Standing {
    authority: Option<Authority>,
    /// Who else holds it, by the last look.
    pub holder: Option<Holder>,
    /// Changes of the holder that this process saw.
    pub transitions: u64,
    /// Time since 1970 of the last acquisition by this process.
    pub acquired: Option<Duration>,
    /// What the last acquisition by this process came after.
    pub takeover: Option<Takeover>,
    /// When the last renewal (or acquisition) was won.
    pub renewed: Option<Moment>,
    pub participation: Participation,
    last_token: Option<FencingToken>,
}

impl Standing {
    pub(super) fn new(participation: Participation) -> Self {
        Self {
            authority: None,
            holder: None,
            transitions: 0,
            acquired: None,
            takeover: None,
            renewed: None,
            participation,
            last_token: None,
        }
    }

    /// The authority of this process at `now`, if any. Ask after the last `await` before a write.
    #[must_use]
    pub fn authority_at(&self, now: Moment) -> Option<Authority> {
        self.authority?.at(now)
    }

    /// The greatest token that this process held or saw.
    #[must_use]
    pub fn last_token(&self) -> Option<FencingToken> {
        self.last_token
    }

    pub(super) fn active(&mut self, authority: Authority, now: Moment) {
        self.authority = Some(authority);
        self.holder = None;
        self.renewed = Some(now);
        self.saw(authority.token);
    }

    pub(super) fn standby(&mut self, holder: Option<Holder>) {
        self.authority = None;
        if let Some(holder) = &holder {
            self.saw(holder.token);
        }
        self.holder = holder;
    }

    fn saw(&mut self, token: FencingToken) {
        if self.last_token.is_none_or(|last| last < token) {
            self.transitions += u64::from(self.last_token.is_some());
            self.last_token = Some(token);
        }
    }
}
