//! Waits for the signals that end the process.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
#[cfg(test)]
use tokio::sync::mpsc;

pub(crate) struct Signals(Source);

enum Source {
    Process {
        terminate: Signal,
        interrupt: Signal,
    },
    #[cfg(test)]
    Channel(mpsc::UnboundedReceiver<&'static str>),
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self(Source::Process {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        }))
    }

    /// Returns signals that a test sends by their name. After the sender is dropped, no signal arrives.
    #[cfg(test)]
    pub(crate) fn channel() -> (mpsc::UnboundedSender<&'static str>, Self) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (sender, Self(Source::Channel(receiver)))
    }

    /// Waits for the next signal and returns its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        match &mut self.0 {
            Source::Process { terminate, interrupt } => tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            },
            #[cfg(test)]
            Source::Channel(signals) => match signals.recv().await {
                Some(name) => name,
                None => std::future::pending().await,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_test_sends_signals_by_their_name() {
        let (sender, mut signals) = Signals::channel();
        sender.send("SIGTERM").unwrap();
        assert_eq!(signals.next().await, "SIGTERM");
    }
}
