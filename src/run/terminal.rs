//! The terminal: the command's group is in the foreground while it runs, so it can read and gets Ctrl-C once.

use std::{
    fs,
    io::{self, IsTerminal},
    os::unix::fs::FileTypeExt,
};

use nix::{
    sys::signal::{SigSet, Signal},
    unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp},
};

/// The terminal that this process reads from, with this process in the foreground.
#[derive(Debug)]
pub(super) struct Terminal {
    own: Pid,
}

impl Terminal {
    /// Returns `None` without a terminal, in the background, and if the output is a pipe: the rest of the
    /// pipeline, such as a pager, is in the group of this process and needs the terminal.
    pub(super) fn held() -> Option<Self> {
        let own = getpgrp();
        let foreground = io::stdin().is_terminal() && tcgetpgrp(io::stdin()) == Ok(own);
        let stdout = fs::metadata("/proc/self/fd/1");
        let piped = stdout.is_ok_and(|stdout| stdout.file_type().is_fifo());
        (foreground && !piped).then_some(Self { own })
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
        if tcgetpgrp(io::stdin()) != Ok(from) {
            return;
        }
        // From the background, the call would stop this process unless SIGTTOU is blocked.
        let mut background = SigSet::empty();
        background.add(Signal::SIGTTOU);
        let _ = background.thread_block();
        let _ = tcsetpgrp(io::stdin(), to);
        let _ = background.thread_unblock();
    }
}
