//! Every signal that a process can pass on.

use std::{fs, io, task::Poll};

use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind};

/// The signals that are not passed on: those that cannot be caught, those that a process causes by a fault,
/// and those that follow from its own use of a terminal or a pipe.
const OWN: [Signal; 12] = [
    Signal::SIGKILL,
    Signal::SIGSTOP,
    Signal::SIGILL,
    Signal::SIGFPE,
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGTRAP,
    Signal::SIGSYS,
    Signal::SIGABRT,
    Signal::SIGPIPE,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
];

pub(super) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Listens for signals. Signals that were ignored when this process began stay ignored, here and in the
    /// command: `nohup`, and shells that run a job in the background, request that. The exception is SIGCHLD:
    /// without it, this process could not wait for its children.
    pub(super) fn listen() -> io::Result<Self> {
        let ignored = ignored();
        let wanted = Signal::iterator().filter(|signal| {
            !OWN.contains(signal) && (*signal == Signal::SIGCHLD || ignored & bit(*signal) == 0)
        });
        let listeners = wanted.map(|signal| Ok((signal, unix::signal(SignalKind::from_raw(signal as i32))?)));
        Ok(Self(listeners.collect::<io::Result<_>>()?))
    }

    /// Waits for the next signal, including SIGCHLD. Cancel safe.
    pub(super) async fn next(&mut self) -> Signal {
        std::future::poll_fn(|context| {
            let received = self.0.iter_mut().find_map(|(signal, listener)| {
                let came = matches!(listener.poll_recv(context), Poll::Ready(Some(())));
                came.then_some(*signal)
            });
            received.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// Reports whether the signal asks a process to end.
pub(super) fn ends(signal: Signal) -> bool {
    matches!(
        signal,
        Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP | Signal::SIGQUIT
    )
}

fn bit(signal: Signal) -> u64 {
    1 << (signal as i32 - 1)
}

fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
