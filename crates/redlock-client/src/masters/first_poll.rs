//! Waits until every master has been polled once, for commands that read the masters and exit.

use std::time::Duration;

use super::{MasterStatus, Masters, Notices};

/// The interval of checks. A local master is polled within a millisecond; a user does not notice this
/// interval.
const TICK: Duration = Duration::from_millis(5);

impl MasterStatus {
    /// Reports whether the master was polled, or failed with a known error.
    #[must_use]
    pub fn known(&self) -> bool {
        self.trouble.is_some() || self.answers()
    }

    /// Reports whether the master is connected and was polled.
    #[must_use]
    pub fn answers(&self) -> bool {
        self.connected && self.trouble.is_none() && self.facts.is_some()
    }
}

impl Masters {
    /// Longer than the wait for a connection with the default command timeout.
    pub const FIRST_POLL_TIMEOUT: Duration = Duration::from_secs(2);

    /// Waits until every master is known or `enough` holds, for at most `bound`; returns the statuses at that
    /// time.
    pub async fn wait_for_first_poll(
        &self,
        bound: Duration,
        enough: impl Fn(&[MasterStatus]) -> bool,
    ) -> Vec<MasterStatus> {
        self.wait_until(bound, enough, async || tokio::time::sleep(TICK).await)
            .await
    }

    /// Waits in the same way, but also wakes at each notice. Consumes the notices of that time.
    pub(super) async fn first_poll_notified(
        &self,
        notices: &mut Notices,
        bound: Duration,
        enough: impl Fn(&[MasterStatus]) -> bool,
    ) -> Vec<MasterStatus> {
        let notified = async || {
            // An unreachable master sends no notice.
            let _ = tokio::time::timeout(TICK, notices.recv()).await;
        };
        self.wait_until(bound, enough, notified).await
    }

    async fn wait_until(
        &self,
        bound: Duration,
        enough: impl Fn(&[MasterStatus]) -> bool,
        mut again: impl AsyncFnMut(),
    ) -> Vec<MasterStatus> {
        let wait = async {
            loop {
                let all = self.status();
                if all.iter().all(MasterStatus::known) || enough(&all) {
                    return;
                }
                again().await;
            }
        };
        // After the bound, the statuses are returned as they are.
        let _ = tokio::time::timeout(bound, wait).await;
        self.status()
    }
}
