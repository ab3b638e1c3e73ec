//! Bounds the bytes that one poll of a connection takes from its socket.
//!
//! The client library reads until the socket is empty. A peer that fills the socket as fast as it is read
//! would keep the driver, and with it all other connections, in one poll.

use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Number of reads in one poll, of 8 KiB each. Enough for the replies to all calls under way at a master
/// under load, because those take precedence over a deadline.
const READS: usize = 64;

/// The remaining reads of one poll. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Reads(Arc<AtomicUsize>);

impl Reads {
    /// Permits each poll of `future` to do [`READS`] reads.
    pub(super) async fn renewed_for<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|cx| {
            self.0.store(READS, Relaxed);
            future.as_mut().poll(cx)
        })
        .await
    }
}

/// A stream that returns pending, and wakes its task, once no reads are left.
#[derive(Debug)]
pub(super) struct Paced<S> {
    pub(super) stream: S,
    pub(super) reads: Reads,
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let left = self.reads.0.load(Relaxed);
        if left == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        // An empty socket is read again for each call that is written.
        if read.is_ready() {
            self.reads.0.store(left - 1, Relaxed);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use futures_util::task::{ArcWake, waker};
    use redis::{AsyncConnectionConfig, RedisConnectionInfo, aio::MultiplexedConnection};

    use super::*;

    /// Far more reads than one poll may do.
    const FLOOD: usize = 100 * READS;

    const MESSAGE: &[u8] = b"+OK\r\n";

    /// A server from which a read always gets a message or a part of one, [`FLOOD`] times.
    #[derive(Debug)]
    struct Flood {
        reads: Arc<AtomicUsize>,
        /// The number of bytes sent.
        sent: usize,
    }

    impl AsyncRead for Flood {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if self.reads.fetch_add(1, Relaxed) < FLOOD {
                for _ in 0..MESSAGE.len().min(buf.remaining()) {
                    buf.put_slice(&[MESSAGE[self.sent % MESSAGE.len()]]);
                    self.sent += 1;
                }
            }
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Flood {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(buf.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[derive(Debug, Default)]
    struct Count(AtomicUsize);

    impl ArcWake for Count {
        fn wake_by_ref(count: &Arc<Self>) {
            count.0.fetch_add(1, Relaxed);
        }
    }

    #[tokio::test]
    async fn a_flood_ends_the_poll_of_its_connection_which_is_polled_again() {
        let (done, reads) = (Arc::new(AtomicUsize::new(0)), Reads::default());
        let stream = Paced {
            stream: Flood {
                reads: done.clone(),
                sent: 0,
            },
            reads: reads.clone(),
        };
        let info = RedisConnectionInfo::default();
        let opening = MultiplexedConnection::new_with_config(&info, stream, AsyncConnectionConfig::new());
        let (_connection, carried) = reads.clone().renewed_for(opening).await.unwrap();
        let mut carried = pin!(reads.renewed_for(carried));

        let woken = Arc::new(Count::default());
        let waker: Waker = waker(woken.clone());
        let mut before = done.load(Relaxed);
        for polls in 1..=3 {
            let polled = carried.as_mut().poll(&mut Context::from_waker(&waker));
            let read = done.load(Relaxed) - before;
            assert_eq!((polled, read), (Poll::Pending, READS));
            assert!(woken.0.load(Relaxed) >= polls);
            before += read;
        }
    }
}
