//! Passes signals on to the command, and follows the stops that its terminal causes.

use nix::{
    sys::signal::{Signal, raise},
    unistd::Pid,
};

use super::Work;
use crate::run::group::{Group, reap_orphans};

impl Work<'_> {
    /// Passes a signal on to the group, other than SIGCHLD.
    pub(super) fn on_signal(&mut self, signal: Signal, group: &Group) {
        match signal {
            Signal::SIGCHLD => {
                reap_orphans(&[self.wrapper.guard.process(), Some(group.id())]);
                if let Some(stop) = group.leader_stopped() {
                    self.on_stop(stop, group.id());
                }
            }
            Signal::SIGCONT => {
                if let Some(terminal) = &self.wrapper.terminal {
                    terminal.give(group.id());
                }
                group.signal(signal);
            }
            Signal::SIGTSTP => {
                group.signal(signal);
                let _ = raise(Signal::SIGSTOP);
            }
            _ => {
                group.signal(signal);
                if self.wrapper.is_asked_to_end_by(signal) {
                    self.wrapper.asked_to_end.get_or_insert(signal);
                    // A stopped process cannot handle the signal before it continues.
                    if group.leader_is_stopped() {
                        group.signal(Signal::SIGCONT);
                    }
                }
            }
        }
    }

    /// Stops this process when the terminal stops the command, or the shell would not get its terminal back. The lease is
    /// not renewed meanwhile. A command that the terminal stops in the background holds the lock until a signal asks it to
    /// end. It then continues once: if the terminal stops it again, it gets the stop signal and its grace.
    fn on_stop(&mut self, signal: Signal, group: Pid) {
        match (&self.wrapper.terminal, signal) {
            (Some(terminal), Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU) => {
                terminal.take_back(group);
                let _ = raise(Signal::SIGSTOP);
            }
            (None, Signal::SIGTTIN | Signal::SIGTTOU) if self.wrapper.asked_to_end.is_some() => {
                self.stuck = true;
            }
            (None, Signal::SIGTTIN | Signal::SIGTTOU) => self.wrapper.progress.warn(&format!(
                "{signal} stopped the command, which holds the lock: it uses the terminal, which it does not have in a \
                 pipeline or in the background; Ctrl-C or SIGTERM ends it; start redlock in the foreground without a pipe"
            )),
            _ => {}
        }
    }
}
