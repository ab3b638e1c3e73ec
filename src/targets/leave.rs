//! The leave to start something: the lease under which it is asked for.

use tokio::sync::watch;

use crate::{clock, elector::Standing, lease::FencingToken};

/// Good for one lease, and for no longer than that one is held.
#[derive(Clone, Debug)]
pub(crate) struct Leave {
    standing: watch::Receiver<Standing>,
    token: FencingToken,
}

impl Leave {
    pub(crate) const fn new(standing: watch::Receiver<Standing>, token: FencingToken) -> Self {
        Self { standing, token }
    }

    /// Ask after the last await before the write.
    pub(crate) fn holds(&self) -> bool {
        let authority = self.standing.borrow().authority_at(clock::now());
        authority.is_some_and(|authority| authority.token == self.token)
    }

    pub(crate) const fn token(&self) -> FencingToken {
        self.token
    }
}
