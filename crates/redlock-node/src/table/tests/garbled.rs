//! Tests entries without one of the values that agent and guardian need, and files that are not those of an entry.

use std::{os::unix::fs::symlink, time::Duration};

use nix::{sys::stat::Mode, unistd::mkfifo};
use redlock_client::clock;

use super::*;

/// A time that is longer than that of every lease.
const TOO_FAR: Duration = Duration::from_secs(2 * 86_400);

fn assert_shows_nothing(table: &Table, uid: &str, reason: &str) {
    let found = table.read_guarded(uid);
    assert!(
        matches!(found, FoundGuarded::Unreadable { .. }),
        "the guardian reads {reason}: {found:?}"
    );
    let found = table.read(uid);
    assert!(
        matches!(found, Found::Unreadable { .. }),
        "the agent reads {reason}: {found:?}"
    );
}

#[test]
fn an_entry_that_lacks_or_garbles_a_needed_value_shows_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let table = Table::open(folder.path()).unwrap();
    let good = OF_THIS_VERSION.replace("BOOT", &table.boot_id);
    let far = (clock::now() + TOO_FAR).as_nanos().to_string();
    let cgroup = |path: &str| good.replace(CGROUP, path);
    for bad in [
        good.replace("\"end\"", "\"ends\""),
        good.replace("bootNanoseconds\":10000000},\n", "aKindOfTheNextVersion\":1},\n"),
        good.replace("10000000},\n", "-1},\n"),
        good.replace("10000000},\n", "\"1\"},\n"),
        good.replace("10000000", &far),
        good.replace("\"cgroup\"", "\"group\""),
        cgroup(""),
        cgroup("kubepods/poduid-1"),
        cgroup("/kubepods/../poduid-1"),
        cgroup("/kubepods/poduid-2"),
        cgroup("/kubepods/kubepods-poduid_2.slice"),
        cgroup(&format!("/{}/poduid-1", "a".repeat(5_000))),
        good.replace("\"bootId\"", "\"boot\""),
        good.replace(&table.boot_id, "another boot"),
        good.replace("\"uid\":\"uid-1\"", "\"name\":\"uid-1\""),
        good.replace("\"uid\":\"uid-1\"", "\"uid\":1"),
        good.replace("\"uid\":\"uid-1\"", "\"uid\":\"uid-2\""),
        good[..good.len() / 2].to_owned(),
        format!("{good}{}", " ".repeat(2 << 20)),
    ] {
        assert_ne!(bad, good);
        fs::write(table.entries().join("uid-1"), &bad).unwrap();
        assert_shows_nothing(&table, "uid-1", &bad.chars().take(900).collect::<String>());
    }
    let slice = cgroup("/kubepods.slice/kubepods-poduid_1.slice");
    fs::write(table.entries().join("uid-1"), slice).unwrap();
    assert!(matches!(table.read_guarded("uid-1"), FoundGuarded::Pod(_)));
    assert!(matches!(table.read("uid-1"), Found::Entry { .. }));
}

/// A guardian follows the end alone, and the agent the state: they would freeze the pod at different times.
#[test]
fn an_entry_whose_end_is_not_that_of_its_state_shows_nothing_to_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    let table = Table::open(folder.path()).unwrap();
    let permitted = EntryState::Permitted(run(10));
    let killed = EntryState::Killed { start: None, seen: 7 };
    let ends = [
        PermitEnd::of(&permitted),
        PermitEnd::of(&killed),
        PermitEnd::Never,
        PermitEnd::Unpublished,
    ];
    for state in [permitted, killed, EntryState::Ended] {
        for end in ends {
            let mut entry = entry(&table, state.clone(), 1);
            let agrees = entry.end == end;
            entry.end = end;
            table.store(&entry).unwrap();
            let found = table.read("uid-1");
            let is_read = matches!(found, Found::Entry { .. });
            assert_eq!(is_read, agrees, "{state:?} with {end:?}: {found:?}");
        }
    }
}

#[test]
fn a_file_that_is_not_a_regular_one_shows_nothing_and_holds_up_no_reader() {
    let folder = tempfile::tempdir().unwrap();
    let table = Table::open(folder.path()).unwrap();
    table
        .store(&entry(&table, EntryState::Permitted(run(10)), 1))
        .unwrap();
    let path = |uid: &str| table.entries().join(uid);
    mkfifo(&path("pipe"), Mode::S_IRWXU).unwrap();
    fs::create_dir(path("directory")).unwrap();
    symlink(path("uid-1"), path("link")).unwrap();
    for uid in ["pipe", "directory", "link"] {
        assert_shows_nothing(&table, uid, uid);
    }
    let mut read: Vec<String> = table.load().unwrap().into_keys().collect();
    read.sort();
    assert_eq!(read, ["directory", "link", "pipe", "uid-1"]);
    assert!(matches!(table.read("uid-1"), Found::Entry { .. }));
    for name in [
        heartbeat::HEARTBEAT,
        "waiting",
        "acknowledged/uid-1",
        "releases/uid-1",
    ] {
        mkfifo(&folder.path().join(name), Mode::S_IRWXU).unwrap();
    }
    assert_eq!(table.heartbeat(), None);
    assert!(table.waiting().is_empty());
    assert!(!table.is_acknowledged("uid-1", b""));
    assert_eq!(table.take_releases(at(1)).unwrap(), []);
}
