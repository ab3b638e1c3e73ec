//! Waiting until the masters have been looked at once, for those who ask and then leave.

use std::time::Duration;

use super::{MasterStatus, Masters, Notices};

/// A local master is looked at within a millisecond; nobody who looks notices more.
const TICK: Duration = Duration::from_millis(5);

impl MasterStatus {
    /// Looked at, or in a trouble that has a name.
    #[must_use]
    pub fn known(&self) -> bool {
        self.trouble.is_some() || self.answers()
    }

    /// Connected, and it told of itself.
    #[must_use]
    pub fn answers(&self) -> bool {
        self.connected && self.trouble.is_none() && self.facts.is_some()
    }
}

impl Masters {
    /// Longer than a connection is waited for, with the command timeout that is the default.
    pub const FIRST_LOOK: Duration = Duration::from_secs(2);

    /// Waits until something is known of every master or it is `enough`, at most `bound`; returns what is known then.
    pub async fn first_look(
        &self,
        bound: Duration,
        enough: impl Fn(&[MasterStatus]) -> bool,
    ) -> Vec<MasterStatus> {
        self.look_when(bound, enough, async || tokio::time::sleep(TICK).await)
            .await
    }

    /// The same for those who hear the notices, and need no others of that time: nothing is waited for in vain.
    pub(super) async fn first_look_heard(
        &self,
        notices: &mut Notices,
        bound: Duration,
        enough: impl Fn(&[MasterStatus]) -> bool,
    ) -> Vec<MasterStatus> {
        let heard = async || {
            // A master that is not reached is told by no notice.
            let _ = tokio::time::timeout(TICK, notices.recv()).await;
        };
        self.look_when(bound, enough, heard).await
    }

    async fn look_when(
        &self,
        bound: Duration,
        enough: impl Fn(&[MasterStatus]) -> bool,
        mut again: impl AsyncFnMut(),
    ) -> Vec<MasterStatus> {
        let look = async {
            loop {
                let all = self.status();
                if all.iter().all(MasterStatus::known) || enough(&all) {
                    return;
                }
                again().await;
            }
        };
        // Whatever is not known by then is told as it is.
        let _ = tokio::time::timeout(bound, look).await;
        self.status()
    }
}
