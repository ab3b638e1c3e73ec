//! Every signal that a process can pass on, and requests to end by other signals.

use std::{fs, io, task::Poll};

use nix::{libc, sys::signal::Signal};
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
    ///
    /// A real-time signal would end this process. It counts as SIGTERM: container runtimes ask a container to stop by
    /// SIGRTMIN+3 where its image requests that.
    pub(super) fn listen() -> io::Result<Self> {
        let ignored = ignored();
        let wanted = Signal::iterator()
            .filter(|signal| !OWN.contains(signal))
            .map(|signal| (signal, signal as i32));
        // The last number is beyond the table of tokio.
        let real_time = (libc::SIGRTMIN()..libc::SIGRTMAX()).map(|number| (Signal::SIGTERM, number));
        let heard = wanted
            .chain(real_time)
            .filter(|(signal, number)| *signal == Signal::SIGCHLD || ignored & bit(*number) == 0);
        let listeners =
            heard.map(|(signal, number)| Ok((signal, unix::signal(SignalKind::from_raw(number))?)));
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

/// Reports whether the signal asks a service to end.
pub(super) fn ends_service(signal: Signal) -> bool {
    matches!(signal, Signal::SIGTERM | Signal::SIGINT)
}

/// Reports whether this process ignores the signal since its start.
pub(super) fn is_ignored(signal: Signal) -> bool {
    ignored() & bit(signal as i32) != 0
}

fn bit(number: i32) -> u64 {
    1 << (number - 1)
}

fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
