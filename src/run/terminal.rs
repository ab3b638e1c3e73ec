//! The terminal: the command's group is in the foreground while it runs, so it can read and gets Ctrl-C once.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, IsTerminal as _},
    os::unix::fs::FileTypeExt,
};

use nix::{
    sys::signal::{SigSet, Signal},
    unistd::{Pid, getpgrp, getpid, tcgetpgrp, tcsetpgrp},
};

use super::signals::is_ignored;

/// The controlling terminal of this process, whatever its standard input is.
const CONTROLLING: &str = "/dev/tty";

/// The controlling terminal of this process, with the group of this process in the foreground.
#[derive(Debug)]
pub(super) struct Terminal {
    tty: File,
    own: Pid,
}

impl Terminal {
    /// Returns `None` without a terminal, in the background, and in a pipeline: the rest of it, such as a pager, is in
    /// the group of this process and needs the terminal. A script starts a job in the background in its own group, with
    /// SIGINT ignored.
    pub(super) fn held() -> Option<Self> {
        // In the group of another process, such as `make -j`, only a command that reads the terminal gets it.
        let own = getpgrp();
        let is_leader = own == getpid();
        if is_ignored(Signal::SIGINT) || !(is_leader || io::stdin().is_terminal()) {
            return None;
        }
        let tty = OpenOptions::new().read(true).write(true).open(CONTROLLING).ok()?;
        let piped = |number: u8| {
            let file = fs::metadata(format!("/proc/self/fd/{number}"));
            file.is_ok_and(|file| file.file_type().is_fifo())
        };
        let foreground = tcgetpgrp(&tty) == Ok(own);
        (foreground && !piped(0) && !piped(1)).then_some(Self { tty, own })
    }

    /// Moves a group to the foreground, if the group of this process is there.
    pub(super) fn give(&self, group: Pid) {
        self.pass(self.own, group);
    }

    /// Moves the group of this process back to the foreground, if the other group is there.
    pub(super) fn take_back(&self, group: Pid) {
        self.pass(group, self.own);
    }

    fn pass(&self, from: Pid, to: Pid) {
        if tcgetpgrp(&self.tty) != Ok(from) {
            return;
        }
        // From the background, the call would stop this process unless SIGTTOU is blocked.
        let mut background = SigSet::empty();
        background.add(Signal::SIGTTOU);
        let _ = background.thread_block();
        let _ = tcsetpgrp(&self.tty, to);
        let _ = background.thread_unblock();
    }
}
