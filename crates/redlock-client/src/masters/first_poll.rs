//! Waits until every master has been polled once, for commands that read the masters and exit.

use std::time::Duration;

use super::{MasterStatus, Masters, Notices};

/// The interval of checks. A local master is polled within a millisecond; a user does not notice this
/// interval.
const TICK: Duration = Duration::from_millis(5);

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
        self.wait_until(bound, enough, None).await
    }

    /// Waits in the same way, but also wakes at each notice. Consumes the notices of that time.
    pub(super) async fn first_poll_notified(
        &self,
        notices: &mut Notices,
        bound: Duration,
        enough: impl Fn(&[MasterStatus]) -> bool,
    ) -> Vec<MasterStatus> {
        self.wait_until(bound, enough, Some(notices)).await
    }

    async fn wait_until(
        &self,
        bound: Duration,
        enough: impl Fn(&[MasterStatus]) -> bool,
        mut notices: Option<&mut Notices>,
    ) -> Vec<MasterStatus> {
        let wait = async {
            loop {
                let all = self.status();
                if all.iter().all(MasterStatus::known) || enough(&all) {
                    return;
                }
                match &mut notices {
                    // An unreachable master sends no notice.
                    Some(notices) => drop(tokio::time::timeout(TICK, notices.recv()).await),
                    None => tokio::time::sleep(TICK).await,
                }
            }
        };
        // After the bound, the statuses are returned as they are.
        let _ = tokio::time::timeout(bound, wait).await;
        self.status()
    }
}
