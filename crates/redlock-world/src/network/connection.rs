//! A connection: two pipes, one for each direction.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, Waker},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

use super::link::Link;

/// The number of bytes in flight at which a writer waits.
const CAPACITY: usize = 256 * 1024;

/// One direction of a connection.
#[derive(Debug)]
pub(super) struct Pipe {
    link: Arc<Link>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    segments: VecDeque<Segment>,
    /// The number of bytes in `segments`.
    length: usize,
    /// The arrival of the latest segment: none overtakes another.
    last: Option<Instant>,
    written_all: bool,
    reader_gone: bool,
    reset: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

#[derive(Debug)]
struct Segment {
    arrives: Instant,
    /// Empty for the end of the stream.
    bytes: Vec<u8>,
    read: usize,
}

impl State {
    fn send(&mut self, bytes: Vec<u8>, arrives: Instant) {
        let arrives = self.last.map_or(arrives, |last| last.max(arrives));
        self.last = Some(arrives);
        self.length += bytes.len();
        self.segments.push_back(Segment {
            arrives,
            bytes,
            read: 0,
        });
        self.wake_reader();
    }

    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn wake_both(&mut self) {
        self.wake_reader();
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }
}

impl Pipe {
    fn new(link: &Arc<Link>) -> Arc<Self> {
        let pipe = Arc::new(Self {
            link: link.clone(),
            state: Mutex::default(),
        });
        link.add(&pipe);
        pipe
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(super) fn reset(&self) {
        let mut state = self.state();
        state.reset = true;
        state.wake_both();
    }

    /// Delivers the bytes that a cut held, not before `arrives`.
    pub(super) fn healed(&self, arrives: Instant) {
        let mut state = self.state();
        for segment in &mut state.segments {
            segment.arrives = segment.arrives.max(arrives);
        }
        state.last = state.last.map(|last| last.max(arrives));
        state.wake_both();
    }

    fn write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let cut = self.link.cut().is_some();
        let mut state = self.state();
        if state.reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if state.written_all || (state.reader_gone && !cut) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let space = CAPACITY.saturating_sub(state.length).min(bytes.len());
        if space == 0 && !bytes.is_empty() {
            state.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if space > 0 {
            let arrives = self.link.arrival(&bytes[..space]);
            state.send(bytes[..space].to_vec(), arrives);
        }
        Poll::Ready(Ok(space))
    }

    /// Sends the end of the stream.
    fn end(&self) {
        let mut state = self.state();
        if !std::mem::replace(&mut state.written_all, true) {
            let arrives = self.link.arrival(&[]);
            state.send(Vec::new(), arrives);
        }
    }

    fn reader_is_gone(&self) {
        let mut state = self.state();
        state.reader_gone = true;
        state.segments.clear();
        state.length = 0;
        state.wake_both();
    }

    /// Reads the bytes that have arrived. Returns the time of the next arrival if it is known.
    fn read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let cut = self.link.cut().is_some();
        let mut state = self.state();
        if state.reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let now = Instant::now();
        let mut copied = false;
        while let Some(first) = state
            .segments
            .front_mut()
            .filter(|first| !cut && first.arrives <= now)
        {
            if first.bytes.is_empty() {
                // The end stays: each further read also returns no byte.
                return Poll::Ready(Ok(()));
            }
            let count = (first.bytes.len() - first.read).min(buf.remaining());
            if count == 0 {
                break;
            }
            buf.put_slice(&first.bytes[first.read..first.read + count]);
            first.read += count;
            copied = true;
            if first.read == first.bytes.len() {
                let length = first.bytes.len();
                state.segments.pop_front();
                state.length -= length;
                if let Some(writer) = state.writer.take() {
                    writer.wake();
                }
            }
        }
        if copied {
            return Poll::Ready(Ok(()));
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Returns the arrival of the first segment, unless it is held by a cut.
    fn next_arrival(&self) -> Option<Instant> {
        if self.link.cut().is_some() {
            return None;
        }
        self.state().segments.front().map(|first| first.arrives)
    }
}

/// One end of a connection. Drop closes it.
#[derive(Debug)]
pub struct Connection {
    incoming: Arc<Pipe>,
    outgoing: Arc<Pipe>,
    arrival: Option<Pin<Box<Sleep>>>,
}

/// Creates the two ends of a connection. The first one sends over `there`.
pub(super) fn pair(there: &Arc<Link>, back: &Arc<Link>) -> (Connection, Connection) {
    let (there, back) = (Pipe::new(there), Pipe::new(back));
    let end = |incoming: &Arc<Pipe>, outgoing: &Arc<Pipe>| Connection {
        incoming: incoming.clone(),
        outgoing: outgoing.clone(),
        arrival: None,
    };
    (end(&back, &there), end(&there, &back))
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let read = self.incoming.read(cx, buf);
            if read.is_ready() {
                self.arrival = None;
                return read;
            }
            let Some(next) = self.incoming.next_arrival() else {
                self.arrival = None;
                return Poll::Pending;
            };
            match &mut self.arrival {
                Some(arrival) if arrival.deadline() == next => {}
                Some(arrival) => arrival.as_mut().reset(next),
                None => self.arrival = Some(Box::pin(sleep_until(next))),
            }
            let arrived = self.arrival.as_mut().map(|arrival| arrival.as_mut().poll(cx));
            if !matches!(arrived, Some(Poll::Ready(()))) {
                return Poll::Pending;
            }
            self.arrival = None;
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.outgoing.write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outgoing.end();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.outgoing.end();
        self.incoming.reader_is_gone();
    }
}
