//! Passes what a master reports without a request to its listener.

use redlock_core::LockName;
use tokio::sync::mpsc;

/// An unsolicited notice about the masters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// This master published that a lock was released.
    Released { master: usize, lock: LockName },
    /// A master connected, disconnected or was sealed: the number of masters that can vote has changed.
    VotersChanged,
    /// A majority of the masters is sealed for another quorum: every lease that was won before is lost.
    SealedForAnother,
}

impl Notice {
    /// The notices that wait for a listener. A second of the releases of a master, of which no more are passed on.
    pub(crate) const QUEUE: usize = 16_384;
    /// The notices of one kind that wait while others fill the queue. A further one repeats what they state.
    const RESERVED: usize = 64;

    /// Sends the notice, unless the queue is full: by releases, which a standby finds by its next observation, or by
    /// notices of the same effect that the listener has not received yet.
    pub(crate) fn send(self, listener: &mpsc::Sender<Self>) {
        let left_to_others = match self {
            Self::Released { .. } => 2 * Self::RESERVED,
            Self::VotersChanged => Self::RESERVED,
            Self::SealedForAnother => 0,
        };
        if listener.capacity() > left_to_others {
            // A set that is used without an elector has no listener.
            let _ = listener.try_send(self);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(notice: &Notice, listener: &mpsc::Sender<Notice>) -> usize {
        let before = listener.capacity();
        (0..=Notice::QUEUE).for_each(|_| notice.clone().send(listener));
        before - listener.capacity()
    }

    #[tokio::test]
    async fn a_flood_of_releases_leaves_room_for_the_notices_that_end_leases() {
        let (listener, mut notices) = mpsc::channel(Notice::QUEUE);
        let released = Notice::Released {
            master: 0,
            lock: LockName::internal("test", "lock").unwrap(),
        };
        assert_eq!(taken(&released, &listener), Notice::QUEUE - 128);
        assert_eq!(taken(&Notice::VotersChanged, &listener), 64);
        assert_eq!(taken(&Notice::SealedForAnother, &listener), 64);
        assert_eq!(notices.recv().await, Some(released.clone()));
        assert_eq!(taken(&released, &listener), 0);
        drop(notices);
        released.send(&listener);
    }
}
