//! Bounds what a master can make this process keep: by the requests, and by the end of each value.
//!
//! The parser of the client library buffers a value until its end, however long it is, and reads a line from its
//! beginning for every read. So it receives whole values only, which it then reads once.

use std::{
    collections::VecDeque,
    io,
    mem::{self, MaybeUninit},
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use redlock_core::{
    Unknown,
    script::{REGISTERS, SCAN, Script},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    frame::{FrameExcess, FrameLimits, Scanner},
    messages::{MessageCounter, ValueKind},
};

/// The bytes of one read, as the client library reads.
const READ: usize = 8 * 1024;

/// The bytes of a reply without regard to its request. The facts of a server have less than 8 KiB.
const REPLY: usize = 64 * 1024;
/// The bytes of a reply for each argument of its request. A lock has at least two, its keys. Its part of a reply has a lease
/// value and a reservation, of 3 KiB together at most; the scripts cut foreign values at 4 KiB each.
const ARGUMENT: usize = 4 * 1024;
/// The bytes of a reply of the scripts that list keys or registers, whose number no request states. A page of 1,000 has at most
/// 1 MiB.
const LISTING: usize = 4 * 1024 * 1024;
/// The bytes of a reply for each of its values. The parser makes about as many of a value of four bytes. A register has more.
const VALUE: usize = 64;
/// A reply of few bytes may have as many values: an answer to a renewal has four bytes.
const VALUES: usize = 1024;

/// A message names the channel and a lock, of which the longest has 2 KiB.
const MESSAGE: FrameLimits = FrameLimits {
    of: "message",
    bytes: 4 * 1024,
    values: 16,
};

/// The state that the callers and the stream of one connection share.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplyBounds(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// The calls under way whose replies list keys or registers.
    listings: AtomicUsize,
    refused: OnceLock<FrameExcess>,
}

impl ReplyBounds {
    /// Permits the reply of this script. Returns whether [`Self::answered`] is to be called.
    pub(super) fn request(&self, script: &Script) -> bool {
        let lists = [SCAN.name, REGISTERS.name].contains(&script.name);
        if lists {
            self.0.listings.fetch_add(1, Relaxed);
        }
        lists
    }

    /// Ends what [`Self::request`] permitted. A call without a reply does not call this: its reply may still arrive.
    pub(super) fn answered(&self) {
        self.0.listings.fetch_sub(1, Relaxed);
    }

    /// Returns the reason why the bytes of the master are no longer read.
    pub(super) fn refused(&self) -> Option<Unknown> {
        let refused = self.0.refused.get()?;
        Some(Unknown::Reply(format!(
            "the master sent {refused}; the connection was closed: check which server answers at its url"
        )))
    }

    fn reply(&self, arguments: usize) -> FrameLimits {
        let listing = self.0.listings.load(Relaxed) > 0;
        let bytes = if listing {
            LISTING
        } else {
            REPLY + arguments.saturating_mul(ARGUMENT)
        };
        FrameLimits {
            of: "reply",
            bytes,
            values: VALUES + bytes / VALUE,
        }
    }
}

/// The requests that were written and have no reply yet.
#[derive(Debug)]
struct Requests {
    scanner: Scanner,
    /// The number of arguments of each, in the order of the replies. Each belongs to a request that the client library keeps
    /// as well.
    arguments: VecDeque<usize>,
}

impl Requests {
    fn written(&mut self, mut bytes: &[u8]) -> Result<(), FrameExcess> {
        while let Some(length) = self.scanner.read(bytes, &FrameLimits::NONE)? {
            self.arguments.push_back(self.scanner.items());
            bytes = &bytes[length..];
        }
        Ok(())
    }
}

/// A stream of which only whole values are read, within the bounds of the requests (P-7).
#[derive(Debug)]
pub(super) struct BoundedStream<S> {
    stream: S,
    bounds: ReplyBounds,
    requests: Requests,
    messages: MessageCounter,
    replies: Scanner,
    /// The limits of the value that began, while it has no end.
    limits: Option<FrameLimits>,
    /// Whether the master sent an error to no request: before it closes a connection that it does not accept.
    error_without_request: bool,
    /// The bytes of the value that began.
    partial: Vec<u8>,
    /// Whole values, and the number of their bytes that were passed on.
    whole: Vec<u8>,
    passed: usize,
}

impl<S> BoundedStream<S> {
    pub(super) fn new(stream: S, bounds: ReplyBounds) -> Self {
        Self {
            stream,
            bounds,
            requests: Requests {
                scanner: Scanner::new(),
                arguments: VecDeque::new(),
            },
            messages: MessageCounter::default(),
            replies: Scanner::new(),
            limits: None,
            error_without_request: false,
            partial: Vec::new(),
            whole: Vec::new(),
            passed: 0,
        }
    }

    /// Divides the bytes that were read into values.
    fn received(&mut self, mut bytes: &[u8]) -> Result<(), FrameExcess> {
        while let Some(&first) = bytes.first() {
            let limits = match self.limits {
                Some(limits) => limits,
                None => self.begin(first)?,
            };
            self.limits = Some(limits);
            let Some(length) = self.replies.read(bytes, &limits)? else {
                self.partial.extend_from_slice(bytes);
                return Ok(());
            };
            let (value, further) = bytes.split_at(length);
            bytes = further;
            self.limits = None;
            if self.partial.is_empty() {
                self.ended(value)?;
            } else {
                let mut whole = mem::take(&mut self.partial);
                whole.extend_from_slice(value);
                self.ended(&whole)?;
                // The memory of a long reply is not kept.
                if whole.capacity() <= REPLY {
                    whole.clear();
                    self.partial = whole;
                }
            }
        }
        Ok(())
    }

    /// Returns the limits of a value that begins with this byte.
    fn begin(&mut self, first: u8) -> Result<FrameLimits, FrameExcess> {
        if first == b'>' {
            return Ok(MESSAGE);
        }
        if let Some(arguments) = self.requests.arguments.front() {
            return Ok(self.bounds.reply(*arguments));
        }
        if first != b'-' || self.error_without_request {
            return Err(FrameExcess::NotRequested);
        }
        self.error_without_request = true;
        Ok(self.bounds.reply(0))
    }

    /// Keeps a whole value for the parser, unless it is a message without a use.
    fn ended(&mut self, value: &[u8]) -> Result<(), FrameExcess> {
        let kind = ValueKind::of(value);
        match kind {
            ValueKind::Reply => drop(self.requests.arguments.pop_front()),
            // The client library counts it as the reply to a request, and remembers the channel.
            ValueKind::Confirmation => {
                let requested = self.requests.arguments.pop_front();
                requested.ok_or(FrameExcess::NotRequested)?;
            }
            ValueKind::Message | ValueKind::Other => {
                if !self.messages.received(kind)? {
                    return Ok(());
                }
            }
        }
        self.whole.extend_from_slice(value);
        Ok(())
    }

    /// Passes whole values on.
    fn pass(&mut self, buf: &mut ReadBuf<'_>) {
        let length = buf.remaining().min(self.whole.len() - self.passed);
        buf.put_slice(&self.whole[self.passed..self.passed + length]);
        self.passed += length;
        if self.passed == self.whole.len() {
            self.passed = 0;
            self.whole.clear();
            self.whole.shrink_to(REPLY);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if !self.whole.is_empty() {
                self.pass(buf);
                return Poll::Ready(Ok(()));
            }
            if let Some(refused) = self.bounds.0.refused.get() {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, refused.clone())));
            }
            let mut read = [MaybeUninit::uninit(); READ];
            let mut read = ReadBuf::uninit(&mut read);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            if let Err(excess) = self.received(read.filled()) {
                self.partial = Vec::new();
                // Set once: the stream is not read afterwards.
                let _ = self.bounds.0.refused.set(excess);
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        let requested = self.requests.written(&buf[..written]);
        Poll::Ready(match requested {
            Ok(()) => Ok(written),
            Err(excess) => Err(io::Error::new(io::ErrorKind::InvalidInput, excess)),
        })
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
