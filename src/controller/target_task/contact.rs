//! What becomes of what is known of the targets when the API server does not answer.

use super::TargetTask;

impl TargetTask {
    /// What was seen of the targets may be otherwise by now: it is unknown until each was looked at again.
    pub(super) fn heed_contact(&mut self) {
        self.quiet = None;
        if *self.config.lost.borrow_and_update() {
            for switch in self.switches.iter_mut().chain(&mut self.removed) {
                switch.distrust();
            }
        }
    }
}
