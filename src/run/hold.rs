//! Holds the lock for some time after the command has ended (`--hold-at-least`).

use nix::sys::signal::Signal;

use super::{Wrapper, election::Election, group::reap_orphans};
use crate::{
    clock,
    lease::{Authority, BootInstant},
};

impl Wrapper {
    /// Keeps the lease until this moment. Returns earlier after a signal that asks this process to end, and when the
    /// lease is lost: no command runs under it any more.
    pub(super) async fn hold(&mut self, election: &mut Election, authority: Authority, until: BootInstant) {
        let left = until.left(clock::now());
        if left.is_zero() || self.asked_to_end.is_some() {
            return;
        }
        let seconds = left.as_secs_f64();
        self.progress.print(&format!(
            "the command has ended; the lock is held for {seconds:.1} s more"
        ));
        while election.authority(authority.token).is_some() {
            tokio::select! {
                () = clock::sleep_until(until) => return,
                changed = election.changed() => if changed.is_err() {
                    return;
                },
                signal = self.signals.next() => match signal {
                    Signal::SIGCHLD => reap_orphans(&[self.guard.process()]),
                    signal if self.is_asked_to_end_by(signal) => return,
                    _ => {}
                },
            }
        }
    }
}
