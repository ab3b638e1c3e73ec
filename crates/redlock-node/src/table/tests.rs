//! Tests the table: whole entries, and entries that show nothing.

use redlock_core::{
    FencingToken,
    fence::{Lineage, Release, Run},
};

use super::*;
use crate::spec::{ClusterSpec, MasterSpec, QuorumSpec};

const CGROUP: &str = "/kubepods/poduid-1";

pub(crate) fn at(ms: u64) -> BootInstant {
    BootInstant::from_nanos(ms * 1_000_000)
}

pub(crate) fn lock() -> LockSpec {
    LockSpec {
        name: "team/report".into(),
        cluster: ClusterSpec {
            name: "here".into(),
            uid: "uid-here".into(),
        },
        lease_milliseconds: 15_000,
        retry_milliseconds: 2_000,
        quorum: QuorumSpec {
            name: "main".into(),
            masters: vec![MasterSpec {
                name: "m0".into(),
                url: "redis://m0:6379".into(),
            }],
            key_prefix: "redlock".into(),
            longest_lease_milliseconds: 60_000,
            acquire_limit_milliseconds: 2_000,
            command_timeout_milliseconds: 500,
            authenticated: false,
            id: None,
        },
    }
}

fn run(until: u64) -> PermittedRun {
    Run {
        lineage: Lineage {
            first: FencingToken(5),
            token: FencingToken(7),
        },
        until: at(until),
    }
    .into()
}

pub(crate) fn entry(table: &Table, state: EntryState, now: u64) -> Entry {
    let pod = PodName {
        uid: "uid-1".into(),
        namespace: "team".into(),
        name: "report-0".into(),
    };
    table.entry(
        (pod, CGROUP.into(), BTreeSet::new()),
        ("team/report".into(), lock()),
        state,
        at(now),
    )
}

#[test]
fn an_acknowledgement_is_that_of_one_entry() {
    let folder = tempfile::tempdir().unwrap();
    let table = Table::open(folder.path()).unwrap();
    let first = table
        .store(&entry(&table, EntryState::Permitted(run(10)), 1))
        .unwrap();
    let Found::Entry { entry: found, bytes } = table.read("uid-1") else {
        panic!("{:?}", table.read("uid-1"))
    };
    assert_eq!((found.until(), &bytes), (Some(at(10)), &first));
    assert!(!table.is_acknowledged("uid-1", &first));
    table.acknowledge("uid-1", &bytes).unwrap();
    assert!(table.is_acknowledged("uid-1", &first));
    // The same permit, stored once more: a guardian that has died since has not read it.
    let second = table
        .store(&entry(&table, EntryState::Permitted(run(10)), 2))
        .unwrap();
    assert!(!table.is_acknowledged("uid-1", &second));
    table.remove("uid-1").unwrap();
    table.remove("uid-1").unwrap();
    assert_eq!(table.read("uid-1"), Found::Missing);
    assert!(table.load().unwrap().is_empty());
}

#[test]
fn an_entry_that_cannot_be_read_or_is_of_another_boot_or_version_shows_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let table = Table::open(folder.path()).unwrap();
    let good = entry(&table, EntryState::Permitted(run(10)), 1);
    let text = serde_json::to_string(&good).unwrap();
    let other_boot = Table {
        boot_id: "another".into(),
        ..table.clone()
    };
    let mut bad = vec![
        String::new(),
        text[..text.len() / 2].to_owned(),
        text.replace("\"version\":1", "\"version\":2"),
        text.replace("\"uid\":\"uid-1\"", "\"uid\":\"uid-2\""),
        text.replace("untilBootNanoseconds", "until"),
    ];
    bad.push(serde_json::to_string(&entry(&other_boot, EntryState::Ended, 1)).unwrap());
    for bad in bad {
        fs::write(table.entries().join("uid-1"), &bad).unwrap();
        let found = table.read("uid-1");
        assert!(matches!(found, Found::Unreadable { .. }), "{bad}: {found:?}");
    }
    fs::write(table.entries().join("uid-1"), &text).unwrap();
    // Files that are about to be renamed are not entries.
    fs::write(table.entries().join(".uid-3.1"), &text).unwrap();
    assert_eq!(table.load().unwrap().into_keys().collect::<Vec<_>>(), ["uid-1"]);
}

#[test]
fn a_restarted_agent_restores_the_stored_table() {
    let folder = tempfile::tempdir().unwrap();
    let table = Table::open(folder.path()).unwrap();
    let released = Release {
        lineage: Some(run(10).run().lineage),
        seen: FencingToken(9),
    };
    for (state, stored, until) in [
        (
            EntryState::Permitted(run(10)),
            Stored::Run(run(10).run()),
            Some(at(10)),
        ),
        (
            EntryState::Killed { start: None, seen: 9 },
            Stored::Killed {
                seen: FencingToken(9),
            },
            Some(at(0)),
        ),
        (
            EntryState::Killed {
                start: Some(run(10)),
                seen: 9,
            },
            Stored::Killed {
                seen: FencingToken(9),
            },
            Some(at(10)),
        ),
        (
            EntryState::Released(ReleasedRun::new(released, "INC-42".to_owned())),
            Stored::Released(released),
            Some(BootInstant::NEVER),
        ),
        (EntryState::Ended, Stored::Unknown, None),
    ] {
        table.store(&entry(&table, state.clone(), 1)).unwrap();
        let Found::Entry { entry, .. } = table.read("uid-1") else {
            panic!("{state:?}")
        };
        assert_eq!((entry.stored(), entry.until()), (stored, until), "{state:?}");
    }
}

#[test]
fn a_request_is_carried_out_at_most_once_and_never_later() {
    let folder = tempfile::tempdir().unwrap();
    let table = Table::open(folder.path()).unwrap();
    table.request_release("uid-1", "INC-42", at(1_000)).unwrap();
    assert!(table.has_request("uid-1"));
    let requests = table.take_releases(at(2_000)).unwrap();
    let taken: Vec<_> = requests
        .iter()
        .map(|request| (&*request.uid, &*request.reason))
        .collect();
    assert_eq!(taken, [("uid-1", "INC-42")]);
    assert!(requests[0].is_awaited(at(10_999)) && !requests[0].is_awaited(at(11_000)));
    assert_eq!(table.take_releases(at(2_000)).unwrap(), []);
    assert!(!table.has_request("uid-1") && !table.withdraw_release("uid-1").unwrap());
    // The administrator no longer waits, or the request is for another boot or another pod.
    table.request_release("uid-1", "x", at(1_000)).unwrap();
    assert_eq!(table.take_releases(at(11_000)).unwrap(), []);
    let other_boot = Table {
        boot_id: "another".into(),
        ..table.clone()
    };
    other_boot.request_release("uid-1", "x", at(1_000)).unwrap();
    fs::write(table.requests().join("uid-2"), "{").unwrap();
    assert_eq!(table.take_releases(at(2_000)).unwrap(), []);
    table.request_release("uid-1", "x", at(1_000)).unwrap();
    fs::rename(table.requests().join("uid-1"), table.requests().join("uid-2")).unwrap();
    assert_eq!(table.take_releases(at(2_000)).unwrap(), []);
    assert!(
        !table.has_request("uid-2"),
        "what is not carried out is removed, too"
    );
}

#[test]
fn two_guardians_with_the_same_process_id_write_through_different_files() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = [(); 2].map(|()| Table::open(folder.path()).unwrap());
    let path = folder.path().join(heartbeat::HEARTBEAT);
    assert_ne!(one.temporary(&path), other.temporary(&path));
}

/// The entry as this version writes it. A guardian of a later version must read it as well: change the reader, and not this
/// text.
const OF_THIS_VERSION: &str = r#"{"version":1,"bootId":"BOOT","generation":1000000,
    "pod":{"uid":"uid-1","namespace":"team","name":"report-0"},"cgroup":"/kubepods/poduid-1","end":{"bootNanoseconds":10000000},
    "starts":false,"targets":[],"declared":"team/report","lock":{"name":"team/report",
    "cluster":{"name":"here","uid":"uid-here"},"leaseMilliseconds":15000,"retryMilliseconds":2000,
    "quorum":{"name":"main","masters":[{"name":"m0","url":"redis://m0:6379"}],"keyPrefix":"redlock",
    "longestLeaseMilliseconds":60000,"acquireLimitMilliseconds":2000,"commandTimeoutMilliseconds":500,
    "authenticated":false}},
    "state":{"permitted":{"first":5,"token":7,"untilBootNanoseconds":10000000}}}"#;

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_guardian_of_a_later_version_reads_the_entries_of_this_version() {
    let folder = tempfile::tempdir().unwrap();
    let table = Table::open(folder.path()).unwrap();
    let written = entry(&table, EntryState::Permitted(run(10)), 1);
    let text = OF_THIS_VERSION.replace("BOOT", &table.boot_id);
    assert_eq!(serde_json::to_value(&written).unwrap(), json(&text));
    fs::write(table.entries().join("uid-1"), &text).unwrap();
    let Found::Entry { entry: found, .. } = table.read("uid-1") else {
        panic!("{:?}", table.read("uid-1"))
    };
    assert_eq!(*found, written, "an agent of a later version");
    for (state, until, starts) in [
        (EntryState::Starting(run(10)), Some(at(10)), true),
        (EntryState::Permitted(run(10)), Some(at(10)), false),
        (EntryState::Killed { start: None, seen: 9 }, Some(at(0)), false),
        (
            EntryState::Killed {
                start: Some(run(10)),
                seen: 9,
            },
            Some(at(10)),
            true,
        ),
        (EntryState::Ended, None, false),
    ] {
        let bytes = table.store(&entry(&table, state.clone(), 1)).unwrap();
        let guarded = GuardedPod {
            cgroup: CGROUP.into(),
            until,
            starts,
            bytes,
        };
        assert_eq!(
            table.read_guarded("uid-1"),
            FoundGuarded::Pod(guarded),
            "{state:?}"
        );
    }
}

#[test]
fn a_guardian_of_this_version_reads_the_entries_of_a_later_version() {
    let folder = tempfile::tempdir().unwrap();
    let table = Table::open(folder.path()).unwrap();
    let mut later = json(&OF_THIS_VERSION.replace("BOOT", &table.boot_id));
    later["version"] = 2.into();
    later["state"] = json(r#"{"aStateOfTheNextVersion":{"first":5}}"#);
    later["aFieldOfTheNextVersion"] = json(r#"{"x":[1]}"#);
    later["pod"]["node"] = "n1".into();
    later["lock"]["quorum"]["masters"][0]["weight"] = 1.into();
    later["lock"]["graceMilliseconds"] = 1.into();
    let bytes = serde_json::to_vec(&later).unwrap();
    fs::write(table.entries().join("uid-1"), &bytes).unwrap();
    let guarded = GuardedPod {
        cgroup: CGROUP.into(),
        until: Some(at(10)),
        starts: false,
        bytes,
    };
    assert_eq!(table.read_guarded("uid-1"), FoundGuarded::Pod(guarded));
    // The agent restores a pod only where it knows the state.
    assert!(matches!(table.read("uid-1"), Found::Unreadable { .. }));
    later["version"] = 1.into();
    later["state"] = json(OF_THIS_VERSION)["state"].clone();
    fs::write(table.entries().join("uid-1"), later.to_string()).unwrap();
    assert!(matches!(table.read("uid-1"), Found::Entry { .. }));
}

#[test]
fn reports_and_requests_of_a_later_version_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let table = Table::open(folder.path()).unwrap();
    let report = GuardianReport {
        pods: 3,
        ..GuardianReport::default()
    };
    table.write_heartbeat(report, at(5)).unwrap();
    table.request_release("uid-1", "INC-42", at(1_000)).unwrap();
    for name in [heartbeat::HEARTBEAT, "releases/uid-1"] {
        let path = folder.path().join(name);
        let mut later = json(&fs::read_to_string(&path).unwrap());
        later["aFieldOfTheNextVersion"] = json(r#"{"x":[1]}"#);
        fs::write(&path, later.to_string()).unwrap();
    }
    assert_eq!(table.heartbeat().map(|heartbeat| heartbeat.pods), Some(3));
    assert_eq!(table.take_releases(at(1_000)).unwrap().len(), 1);
}

mod garbled;
