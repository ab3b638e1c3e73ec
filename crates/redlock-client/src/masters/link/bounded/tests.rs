use std::task::Waker;

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::masters::link::frame::tests::value;

/// A server that sends these pieces, one for each read, and accepts every request.
#[derive(Debug, Default)]
struct Pieces(VecDeque<Vec<u8>>);

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(mut piece) = self.0.pop_front() else {
            return Poll::Pending;
        };
        let length = piece.len().min(buf.remaining());
        buf.put_slice(&piece[..length]);
        if length < piece.len() {
            self.0.push_front(piece.split_off(length));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pieces {
    /// Accepts requests in parts.
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(buf.len().min(7)))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

struct Bench(BoundedStream<Pieces>);

impl Bench {
    /// Returns a connection on which these requests have no reply yet, each of two arguments.
    fn new(requests: usize) -> Self {
        let mut bench = Self(BoundedStream::new(Pieces::default(), ReplyBounds::default()));
        for _ in 0..requests {
            bench.request(&redis::cmd("GET").arg("key").get_packed_command());
        }
        bench
    }

    fn request(&mut self, mut request: &[u8]) {
        let mut context = Context::from_waker(Waker::noop());
        while !request.is_empty() {
            match Pin::new(&mut self.0).poll_write(&mut context, request) {
                Poll::Ready(written) => request = &request[written.unwrap()..],
                Poll::Pending => panic!("a write that waits"),
            }
        }
    }

    fn send(&mut self, piece: &[u8]) {
        self.0.stream.0.push_back(piece.to_vec());
    }

    /// Returns what the parser receives, read by read of this many bytes, and the error of the last one.
    fn receive(&mut self, at_once: usize) -> (Vec<u8>, Option<String>) {
        let mut context = Context::from_waker(Waker::noop());
        let (mut all, mut bytes) = (Vec::new(), vec![0; at_once]);
        loop {
            let mut buf = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.0).poll_read(&mut context, &mut buf) {
                Poll::Ready(Ok(())) => all.extend_from_slice(buf.filled()),
                Poll::Ready(Err(error)) => return (all, Some(error.to_string())),
                Poll::Pending => return (all, None),
            }
        }
    }

    fn kept(&self) -> usize {
        self.0.partial.capacity() + self.0.whole.capacity()
    }
}

const OK: &[u8] = b"+OK\r\n";
const SUBSCRIBED: &[u8] = b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n";
const RELEASED: &[u8] = b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$3\r\na/b\r\n";
const NOT_REQUESTED: &str = "a reply to no request";

proptest! {
    #[test]
    fn the_parser_receives_the_values_that_the_server_sent(
        values in vec(value(), 1..8),
        size in 1..40_usize,
        at_once in 1..40_usize,
    ) {
        let mut bench = Bench::new(values.len());
        let bytes = values.concat();
        bytes.chunks(size).for_each(|piece| bench.send(piece));
        prop_assert_eq!(bench.receive(at_once), (bytes, None));
        prop_assert!(bench.0.partial.is_empty() && bench.0.whole.is_empty());
    }

    #[test]
    fn a_part_of_a_value_is_kept_from_the_parser(value in value(), at in any::<prop::sample::Index>()) {
        let mut bench = Bench::new(1);
        let (first, rest) = value.split_at(at.index(value.len()));
        bench.send(first);
        prop_assert_eq!(bench.receive(100), (Vec::new(), None));
        bench.send(rest);
        prop_assert_eq!(bench.receive(100), (value.clone(), None));
    }

    /// Whatever a server sends without an end.
    #[test]
    fn memory_is_bounded_by_the_request(
        beginning in vec(any::<u8>(), 0..8),
        kind in prop::sample::select(b"*$%>+-:_|=~!,#(".to_vec()),
        repeated in vec(any::<u8>(), 1..40),
    ) {
        let mut bench = Bench::new(1);
        bench.send(&[&[kind][..], &beginning].concat());
        let piece = repeated.repeat(READ / repeated.len());
        // The capacity of a buffer is up to twice its content.
        let most = 2 * bench.0.bounds.reply(2).bytes + 4 * READ;
        for _ in 0..most / piece.len() {
            bench.send(&piece);
            let (_, refused) = bench.receive(READ);
            prop_assert!(bench.kept() <= most, "{} bytes", bench.kept());
            if refused.is_some() {
                return Ok(());
            }
        }
        prop_assert!(false, "accepted without an end");
    }
}

#[test]
fn a_reply_to_no_request_is_refused_but_the_values_before_it_are_read() {
    let mut bench = Bench::new(2);
    bench.send(&OK.repeat(3));
    assert_eq!(bench.receive(64), (OK.repeat(2), Some(NOT_REQUESTED.into())));
    assert!(matches!(bench.0.bounds.refused(), Some(Unknown::Reply(_))));
    assert_eq!(bench.receive(64), (Vec::new(), Some(NOT_REQUESTED.into())));
}

#[test]
fn an_error_before_the_first_request_is_read_once() {
    const FULL: &[u8] = b"-ERR max number of clients reached\r\n";
    let mut bench = Bench::new(0);
    bench.send(&FULL.repeat(2));
    assert_eq!(bench.receive(64), (FULL.to_vec(), Some(NOT_REQUESTED.into())));
}

#[test]
fn a_confirmation_is_the_reply_to_a_request() {
    let mut bench = Bench::new(2);
    bench.send(SUBSCRIBED);
    bench.send(OK);
    assert_eq!(bench.receive(64), ([SUBSCRIBED, OK].concat(), None));
    bench.send(SUBSCRIBED);
    assert_eq!(bench.receive(64), (Vec::new(), Some(NOT_REQUESTED.into())));
}

#[test]
fn releases_need_no_request_and_other_messages_are_not_parsed() {
    let mut bench = Bench::new(1);
    for piece in [RELEASED, b">2\r\n+invalidate\r\n:1\r\n", b">0\r\n", OK] {
        bench.send(piece);
    }
    assert_eq!(bench.receive(64), ([RELEASED, OK].concat(), None));
}

#[test]
fn a_flood_of_releases_is_cut_and_then_refused() {
    let mut bench = Bench::new(0);
    let (mut received, mut refused) = (0, None);
    let started = std::time::Instant::now();
    for _ in 0..1_000 {
        bench.send(&RELEASED.repeat(100));
        let (some, error) = bench.receive(READ);
        received += some.len() / RELEASED.len();
        refused = error;
        if refused.is_some() {
            break;
        }
    }
    let Some(refused) = refused else {
        // A machine on which 100,000 messages take longer than a second.
        assert!(
            started.elapsed() > std::time::Duration::from_secs(1),
            "{received} messages"
        );
        return;
    };
    assert!(refused.contains("messages in one second"), "{refused}");
    // A second may pass meanwhile.
    assert!((10_000..40_000).contains(&received), "{received}");
}

#[test]
fn a_request_of_more_locks_permits_a_longer_reply_and_a_listing_the_longest() {
    let reply = |length: usize| [format!("${length}\r\n").as_bytes(), &vec![b'a'; length], b"\r\n"].concat();
    let accepted = |bench: &mut Bench, length| {
        bench.send(&reply(length));
        bench.receive(READ).1.is_none()
    };
    assert!(accepted(&mut Bench::new(1), REPLY));
    assert!(!accepted(&mut Bench::new(1), REPLY + 3 * ARGUMENT));
    let mut batch = Bench::new(0);
    let keys = vec!["key"; 128];
    batch.request(&redis::cmd("MGET").arg(&keys).get_packed_command());
    assert!(accepted(&mut batch, REPLY + 128 * ARGUMENT));

    let mut listing = Bench::new(2);
    assert!(!listing.0.bounds.request(&redlock_core::script::FACTS));
    assert!(listing.0.bounds.request(&SCAN));
    assert!(accepted(&mut listing, LISTING - 100));
    listing.0.bounds.answered();
    assert!(!accepted(&mut listing, REPLY + 3 * ARGUMENT));
}

/// The parser of the client library reads a line from its beginning for every read: it would take minutes.
#[test]
fn the_longest_reply_in_single_bytes_is_read_at_once() {
    let mut bench = Bench::new(1);
    let lines = b"+a line\r\n".repeat(2_000);
    let value = [b"*2000\r\n", &lines[..]].concat();
    value.chunks(1).for_each(|piece| bench.send(piece));
    let begun = std::time::Instant::now();
    assert_eq!(bench.receive(READ), (value, None));
    let took = begun.elapsed();
    assert!(took < std::time::Duration::from_secs(1), "{took:?}");
}
