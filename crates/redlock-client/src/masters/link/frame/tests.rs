use std::{fs, sync::LazyLock};

use proptest::{collection::vec, prelude::*, sample::Index};
use redis::Parser;

use super::*;

/// The replies of real servers.
static CORPUS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/replies");
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths.into_iter().map(|path| fs::read(path).unwrap()).collect()
});

const LIMITS: FrameLimits = FrameLimits {
    of: "reply",
    bytes: 1_000,
    values: 100,
};

/// Returns the ends of values in a stream that is read in pieces, and the reason why no further byte is read.
fn ends<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    limits: &FrameLimits,
) -> (Vec<usize>, Option<FrameExcess>) {
    let (mut scanner, mut ends, mut before) = (Scanner::new(), Vec::new(), 0);
    for piece in pieces {
        let mut at = 0;
        while at < piece.len() {
            match scanner.read(&piece[at..], limits) {
                Ok(Some(length)) => at += length,
                Ok(None) => break,
                Err(excess) => return (ends, Some(excess)),
            }
            ends.push(before + at);
        }
        before += piece.len();
    }
    (ends, None)
}

fn pieces<'a>(bytes: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

fn joined(head: String, parts: &[Vec<u8>]) -> Vec<u8> {
    let mut all = head.into_bytes();
    parts.iter().for_each(|part| all.extend(part));
    all
}

/// Returns values of all types, as a server writes them.
pub(in crate::masters::link) fn value() -> impl Strategy<Value = Vec<u8>> {
    let lines = ("[+\\-(]", "[ -~]{0,20}").prop_map(|(kind, text)| format!("{kind}{text}\r\n").into_bytes());
    let number = any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes());
    let bulk = (prop::sample::select(vec!["$", "!"]), vec(any::<u8>(), 0..40));
    let bulk = bulk.prop_map(|(kind, content)| {
        joined(
            format!("{kind}{}\r\n", content.len()),
            &[content, b"\r\n".to_vec()],
        )
    });
    let fixed = prop::sample::select(vec![
        &b"_\r\n"[..],
        b"$-1\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"%0\r\n",
        b"#t\r\n",
        b",1.5\r\n",
        b"=5\r\ntxt:a\r\n",
    ]);
    let leaf = prop_oneof![lines, number, bulk, fixed.prop_map(<[u8]>::to_vec)];
    leaf.prop_recursive(3, 40, 6, |inner| {
        let array = (prop::sample::select(vec!["*", "~"]), vec(inner.clone(), 0..6));
        let map = vec((inner.clone(), inner.clone()), 0..3);
        let attribute = (vec((inner.clone(), inner.clone()), 1..3), inner);
        let flat = |pairs: Vec<(Vec<u8>, Vec<u8>)>| -> Vec<Vec<u8>> {
            pairs.into_iter().flat_map(|(k, v)| [k, v]).collect()
        };
        prop_oneof![
            array.prop_map(|(kind, parts)| joined(format!("{kind}{}\r\n", parts.len()), &parts)),
            map.prop_map(move |pairs| joined(format!("%{}\r\n", pairs.len()), &flat(pairs))),
            attribute.prop_map(move |(pairs, described)| {
                let mut parts = flat(pairs);
                let head = format!("|{}\r\n", parts.len() / 2);
                parts.push(described);
                joined(head, &parts)
            }),
        ]
    })
}

/// Returns a stream of values of which some bytes may be changed, added or removed.
fn broken() -> impl Strategy<Value = Vec<u8>> {
    let changes = vec(
        (
            any::<Index>(),
            prop::sample::select(b"*$%>+-:_|=\r\n019a".to_vec()),
            0..3_u8,
        ),
        0..4,
    );
    let real = any::<Index>().prop_map(|file| file.get(&CORPUS).clone());
    let streams = prop_oneof![vec(value(), 1..4), vec(real, 1..4)];
    (streams, changes).prop_map(|(values, changes)| {
        let mut bytes = values.concat();
        for (place, byte, how) in changes {
            let place = place.index(bytes.len().max(1));
            match how {
                0 if place < bytes.len() => bytes[place] = byte,
                1 if place < bytes.len() => _ = bytes.remove(place),
                _ => bytes.insert(place.min(bytes.len()), byte),
            }
        }
        bytes
    })
}

proptest! {
    #[test]
    fn the_ends_of_values_are_found_however_the_stream_is_split(
        values in vec(value(), 0..6),
        cuts in vec(any::<Index>(), 0..12),
    ) {
        let expected: Vec<usize> = values
            .iter()
            .scan(0, |end, value| { *end += value.len(); Some(*end) })
            .collect();
        let bytes = values.concat();
        prop_assert_eq!(ends(pieces(&bytes, &cuts), &FrameLimits::NONE), (expected.clone(), None));
        prop_assert_eq!(ends(bytes.chunks(1), &FrameLimits::NONE), (expected, None));
    }

    #[test]
    fn a_split_does_not_change_what_is_refused(bytes in broken(), cuts in vec(any::<Index>(), 0..12)) {
        let limits = FrameLimits { bytes: 60, values: 8, ..LIMITS };
        let whole = ends([&bytes[..]], &limits);
        prop_assert_eq!(&ends(pieces(&bytes, &cuts), &limits), &whole);
        prop_assert_eq!(&ends(bytes.chunks(1), &limits), &whole);
    }

    /// The parser of the client library would wait for more bytes, or take the rest for the next value.
    #[test]
    fn the_parser_ends_each_value_where_the_scanner_does(bytes in broken()) {
        let mut start = 0;
        for end in ends([&bytes[..]], &FrameLimits::NONE).0 {
            let mut parser = Parser::new();
            let incomplete = |error: redis::RedisError| error.is_io_error();
            match parser.parse_value(&bytes[start..end]) {
                Ok(_) => prop_assert!(parser.parse_value(&[][..]).is_err_and(incomplete)),
                Err(error) => prop_assert!(!incomplete(error)),
            }
            start = end;
        }
    }
}

fn refused(bytes: &[u8]) -> Option<FrameExcess> {
    ends([bytes], &LIMITS).1
}

#[test]
fn a_declared_length_is_refused_before_its_bytes() {
    let bytes = Some(too_long(&LIMITS));
    let values = Some(too_many(&LIMITS));
    assert_eq!(refused(b"$1000\r\n"), bytes);
    assert_eq!(refused(b"$9223372036854775807\r\n"), bytes);
    assert_eq!(refused(b"*1\r\n!995\r\n"), bytes);
    assert_eq!(refused(b"*100\r\n"), values);
    assert_eq!(refused(b"%9223372036854775807\r\n"), values);
    assert_eq!(refused(b"*2\r\n*50\r\n"), None);
    assert_eq!(refused(b"*2\r\n*98\r\n"), values);
    assert_eq!(refused(b"$900\r\n"), None);
}

#[test]
fn lengths_that_are_no_numbers_are_refused() {
    for bytes in [
        &b"$\r\n"[..],
        b"$-\r\n",
        b"$--1\r\n",
        b"$1-\r\n",
        b"$+1\r\n",
        b"$ 1\r\n",
        b"$1\r1",
        b"$1\n",
        b"$00000000000000000001\r\n",
        b">-1\r\n",
        b"%-1\r\n",
        b"=-1\r\n",
        b"$1\r\nab\r\n",
        b"$1\r\na\n",
        b"HTTP/1.1 200 OK\r\n",
        b"\r\n",
    ] {
        let found = refused(bytes);
        assert!(
            matches!(found, Some(FrameExcess::Malformed(_))),
            "{bytes:?} {found:?}"
        );
    }
}

#[test]
fn lines_and_nesting_end() {
    let line = |length| {
        ends(
            [&[b"+", &vec![b'a'; length][..], b"\r\n"].concat()[..]],
            &FrameLimits::NONE,
        )
    };
    assert_eq!(line(LINE - 1).1, None);
    assert_eq!(line(LINE + 1).1, Some(FrameExcess::Line));
    let nested = |levels: usize| refused(&[&b"*1\r\n".repeat(levels)[..], b":1\r\n"].concat());
    assert_eq!(nested(DEPTH), None);
    assert_eq!(nested(DEPTH + 1), Some(FrameExcess::Depth));
    let wide = [&b"*9\r\n"[..], &b":1\r\n".repeat(9)].concat();
    assert_eq!(ends([&wide[..]], &LIMITS), (vec![wide.len()], None));
}

#[test]
fn the_arguments_of_a_request_are_counted() {
    let mut scanner = Scanner::new();
    let request = redis::cmd("EVALSHA")
        .arg("sha")
        .arg(1)
        .arg("key")
        .arg("*9\r\n")
        .get_packed_command();
    assert_eq!(
        scanner.read(&request, &FrameLimits::NONE),
        Ok(Some(request.len()))
    );
    assert_eq!(scanner.items(), 5);
}
