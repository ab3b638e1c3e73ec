//! Tests that no reply of a master causes a panic, by changing, inserting and removing bytes of real replies.

use std::{fs, path::Path, sync::LazyLock};

use proptest::{prelude::*, sample::Index};

use redlock_core::{Answer, BootInstant, MasterFacts, Operation, Reply, Unknown, reply::answer, timing};

use super::link::of_library;

/// The name and the bytes of each reply.
static CORPUS: LazyLock<Vec<(String, Vec<u8>)>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/replies");
    let mut all: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (name, fs::read(path).unwrap())
        })
        .collect();
    all.sort();
    all
});

/// Returns the operation of which this reply of the corpus is, and whether the locks are fenced.
fn asked(name: &str) -> (Operation, bool) {
    match name {
        "many" => (Operation::Renew, true),
        "ours" => (Operation::Observe, false),
        "slot" => (Operation::Slots, false),
        _ => (Operation::Grant, false),
    }
}

/// Parses a reply in every way that the library does.
fn read(bytes: &[u8], asked: (Operation, bool)) -> Option<(Reply, Vec<Answer>)> {
    let reply = Reply::parse(of_library(redis::parse_redis_value(bytes).ok()?).ok()?).ok()?;
    let now = BootInstant::from_nanos(1);
    let longest = timing::DEFAULT_LONGEST_LEASE;
    let answers = reply.items.iter().map(|item| answer(item, asked, now, longest));
    let answers = answers.collect();
    let _ = MasterFacts::parse(reply.counter, &reply.items, None);
    Some((reply, answers))
}

#[test]
fn the_replies_of_the_corpus_match_their_names() {
    for (name, bytes) in CORPUS.iter() {
        let found = read(bytes, asked(name));
        let answers = found.as_ref().map_or(&[][..], |(_, answers)| answers);
        let unknown = |answer: &Answer| matches!(answer, Answer::Unknown(Unknown::Reply(_)));
        match name.as_str() {
            "loading" => assert!(found.is_none()),
            "facts" => {
                let (reply, _) = found.unwrap();
                assert!(
                    MasterFacts::parse(reply.counter, &reply.items, None)
                        .unwrap()
                        .sealed()
                );
            }
            "late" | "unsealed" | "probe-found" => assert_eq!(answers.len(), 0, "{name}"),
            _ => assert!(
                !answers.is_empty() && !answers.iter().any(unknown),
                "{name}: {answers:?}"
            ),
        }
    }
}

proptest! {
    #[test]
    fn no_reply_panics(
        file in any::<Index>(),
        changes in proptest::collection::vec((any::<Index>(), any::<u8>(), 0..4_u8), 0..6),
    ) {
        let (_, mut bytes) = file.get(&CORPUS).clone();
        for (place, byte, how) in changes {
            if bytes.is_empty() {
                break;
            }
            let place = place.index(bytes.len());
            match how {
                0 => bytes[place] = byte,
                1 => bytes.insert(place, byte),
                2 => _ = bytes.remove(place),
                // Replaces a digit with a digit, for lengths and numbers that are well-formed but wrong.
                _ if bytes[place].is_ascii_digit() => bytes[place] = b'0' + byte % 10,
                _ => bytes.truncate(place),
            }
        }
        for operation in Operation::ALL {
            let _ = (read(&bytes, (operation, false)), read(&bytes, (operation, true)));
        }
    }
}
