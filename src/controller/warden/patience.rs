//! Whether the pods of a target get the time that they ask for.

use futures_util::future::join_all;
use tokio::time;

use super::{Warden, target::PATIENCE};
use crate::{
    api::plan::{TargetPlan, TargetWork},
    targets::{Note, STOP_BESIDE_GRACE, grace},
};

impl Warden {
    /// Says once of each target when its pods may take longer than the lock waits for them: near the end of the lease
    /// they are deleted with what is left. What is written down as stopSeconds was meant.
    pub(super) async fn check_patience(&mut self) {
        if std::mem::replace(&mut self.patience_checked, true) {
            return;
        }
        let plan = self.post.plan.clone();
        let derived = plan.targets.iter().filter(|target| !target.stop_given);
        let all = join_all(derived.map(|target| self.longer(target))).await;
        for text in all.into_iter().flatten() {
            let note = Note {
                reason: "StopTooShort",
                text,
                warning: true,
            };
            // It has the other end itself.
            let _ = self.notes.0.send(note);
        }
    }

    async fn longer(&self, target: &TargetPlan) -> Option<String> {
        let (TargetWork::Scale { object, .. } | TargetWork::Suspend { object }) = &target.work else {
            return None;
        };
        let grace = grace(&self.post.client, &self.post.plan.namespace, object);
        let grace = time::timeout(PATIENCE, grace).await.ok()?.ok()??;
        let wanted = grace + STOP_BESIDE_GRACE;
        (wanted > target.stop).then(|| {
            format!(
                "target {}: its pods may take {} s to end, and are given {} s: set stopSeconds: {}, which makes the lease \
                 longer",
                target.name,
                grace.as_secs(),
                target.stop.as_secs(),
                wanted.as_secs()
            )
        })
    }
}
