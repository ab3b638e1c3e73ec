//! The terminal: the command's group is in its foreground while it runs, so that it can read, and Ctrl-C reaches it once.

use std::{
    fs,
    io::{self, IsTerminal},
    os::unix::fs::FileTypeExt,
};

use nix::{
    sys::signal::{SigSet, Signal},
    unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp},
};

/// This process is in the foreground of the terminal that it reads from.
#[derive(Debug)]
pub(super) struct Terminal {
    own: Pid,
}

impl Terminal {
    /// `None` without a terminal, in its background, and in front of a pipe: there the rest of the pipeline, such as a
    /// pager, is in this process' group and needs the terminal.
    pub(super) fn held() -> Option<Self> {
        let own = getpgrp();
        let foreground = io::stdin().is_terminal() && tcgetpgrp(io::stdin()) == Ok(own);
        let stdout = fs::metadata("/proc/self/fd/1");
        let piped = stdout.is_ok_and(|stdout| stdout.file_type().is_fifo());
        (foreground && !piped).then_some(Self { own })
    }

    /// Puts a group into the foreground, if this one is there.
    pub(super) fn give(&self, group: Pid) {
        self.pass(self.own, group);
    }

    /// Puts this process back, if that group is there.
    pub(super) fn take_back(&self, group: Pid) {
        self.pass(group, self.own);
    }

    fn pass(&self, from: Pid, to: Pid) {
        if tcgetpgrp(io::stdin()) != Ok(from) {
            return;
        }
        // From the background it would stop this process, unless that is blocked.
        let mut background = SigSet::empty();
        background.add(Signal::SIGTTOU);
        let _ = background.thread_block();
        let _ = tcsetpgrp(io::stdin(), to);
        let _ = background.thread_unblock();
    }
}
