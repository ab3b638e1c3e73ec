use std::{collections::BTreeMap, fs};

use redlock_core::{
    FencingToken,
    fence::{Lineage, Release, Run},
};

use super::*;
use crate::table::{
    GuardianReport, PermittedRun, ReleasedRun,
    tests::{at, entry},
};

const LINEAGE: Lineage = Lineage {
    first: FencingToken(5),
    token: FencingToken(7),
};

fn run(until: BootInstant) -> PermittedRun {
    let lineage = LINEAGE;
    Run { lineage, until }.into()
}

fn named(name: &str) -> PodName {
    PodName {
        uid: format!("uid-{name}"),
        namespace: "team".to_owned(),
        name: name.to_owned(),
    }
}

fn shown(state: EntryState, why: &str, cgroup: Cgroup, now: BootInstant) -> (PodState, Option<i64>, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut entry = entry(&Table::open(folder.path()).unwrap(), state, 1);
    entry.why = why.to_owned();
    let row = of_entry(&entry, true, cgroup, now).unwrap();
    #[allow(clippy::cast_possible_truncation)]
    let permit = row.permit_ends_in_seconds.map(|seconds| seconds as i64);
    (row.state, permit, row.reason)
}

#[test]
fn an_entry_shows_its_state_the_end_of_its_permit_and_the_reason() {
    let (frozen, thawed) = (Cgroup::Frozen, Cgroup::Thawed);
    let permitted = || EntryState::Permitted(run(at(20_000)));
    assert_eq!(
        shown(permitted(), "", thawed, at(5_000)),
        (PodState::Running, Some(15), String::new())
    );
    assert_eq!(
        shown(permitted(), "few answered", frozen, at(19_500)),
        (PodState::Frozen, Some(0), "few answered".to_owned())
    );
    assert_eq!(
        shown(permitted(), "", frozen, at(30_000)),
        (
            PodState::Frozen,
            Some(-10),
            "the permit ended, and the node agent stored no reason".to_owned()
        )
    );
    // Neither the agent nor the guardian has frozen it.
    let (_, _, reason) = shown(permitted(), "w", thawed, at(30_000));
    assert_eq!(reason, "w; its cgroup is not frozen: its processes may run");
    let (state, permit, _) = shown(EntryState::Killed { start: None, seen: 9 }, "w", frozen, at(1));
    assert_eq!((state, permit), (PodState::Killed, None));
    let (_, permit, reason) = shown(permitted(), "", frozen, at(5_000));
    assert_eq!((permit, &*reason), (Some(15), "its cgroup is frozen"));
    let (_, _, reason) = shown(
        EntryState::Killed { start: None, seen: 9 },
        "w",
        Cgroup::Unknown,
        at(1),
    );
    assert_eq!(reason, "w; whether its cgroup is frozen cannot be read");
    let release = Release {
        lineage: Some(LINEAGE),
        seen: FencingToken(9),
    };
    let released = ReleasedRun::new(release, "INC-42".to_owned());
    assert_eq!(released.release(), release);
    assert_eq!(
        shown(EntryState::Released(released), "", Cgroup::Gone, at(1)),
        (
            PodState::Released,
            None,
            "released by hand: INC-42; its cgroup is gone".to_owned()
        )
    );
}

#[test]
fn pods_without_an_entry_are_shown_by_the_volumes_of_the_kubelet() {
    let folder = tempfile::tempdir().unwrap();
    let (state_dir, kubelet) = (folder.path().join("state"), folder.path().join("kubelet"));
    let options = Options {
        state_dir: state_dir.clone(),
        kubelet_dir: Some(kubelet.clone()),
    };
    let missing = read(&options).unwrap_err().to_string();
    assert!(missing.contains("state/pods"), "{missing}");
    assert!(!state_dir.exists(), "a command that reads creates nothing");
    let table = Table::open(&state_dir).unwrap();
    let unread = read(&options).unwrap();
    assert!(
        unread
            .incomplete
            .as_ref()
            .is_some_and(|why| why.contains("kubelet")),
        "{unread:?}"
    );
    assert_eq!((unread.agent_acts, unread.guardian), (Some(false), None));
    for uid in ["uid-1", "uid-a", "uid-b"] {
        let volume = kubelet.join(format!("pods/{uid}/volumes/kubernetes.io~csi/redlock"));
        fs::create_dir_all(&volume).unwrap();
        fs::write(
            volume.join("vol_data.json"),
            r#"{"driverName":"fencing.redlock.dev"}"#,
        )
        .unwrap();
    }
    let released = Release {
        lineage: None,
        seen: FencingToken(0),
    };
    let state = EntryState::Released(ReleasedRun::new(released, "x".to_owned()));
    table.store(&entry(&table, state, 1)).unwrap();
    fs::write(table.entries().join("uid-torn"), "{").unwrap();
    let waiting = Waiting {
        pod: named("a"),
        declared: "team/report".to_owned(),
        why: "us-1 holds it".to_owned(),
    };
    let gone = Waiting {
        pod: named("gone"),
        ..waiting.clone()
    };
    let all = BTreeMap::from([("uid-a".to_owned(), waiting), ("uid-gone".to_owned(), gone)]);
    table.show_waiting(&all).unwrap();
    let guardian = GuardianReport {
        degraded: vec!["no SYS_NICE".to_owned()],
        ..GuardianReport::default()
    };
    table.write_heartbeat(guardian, clock::now()).unwrap();
    let agent = Vacant::take(&state_dir).unwrap().unwrap();
    let listing = read(&options).unwrap();
    let rows: Vec<(&str, PodState)> = listing.pods.iter().map(|row| (&*row.uid, row.state)).collect();
    assert_eq!(
        rows,
        [
            ("uid-b", PodState::Waiting),
            ("uid-torn", PodState::Unknown),
            ("uid-a", PodState::Waiting),
            // The kubelet has removed its directory until the next call.
            ("uid-gone", PodState::Waiting),
            ("uid-1", PodState::Released),
        ]
    );
    assert_eq!(listing.pods[2].reason, "us-1 holds it");
    assert_eq!(listing.agent_acts, Some(true));
    drop(agent);
    let without_agent = read(&options).unwrap();
    let gone = without_agent.pods.iter().any(|row| row.uid == "uid-gone");
    assert!(!gone && without_agent.pods.len() == 4, "{without_agent:?}");
    let guardian = listing.guardian.unwrap();
    assert!(
        guardian.runs && guardian.degraded == ["no SYS_NICE"],
        "{guardian:?}"
    );
}

#[test]
fn a_disk_of_the_kubelet_that_hangs_does_not_hide_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let (state_dir, kubelet) = (folder.path().join("state"), folder.path().join("kubelet"));
    let table = Table::open(&state_dir).unwrap();
    let killed = EntryState::Killed { start: None, seen: 9 };
    table.store(&entry(&table, killed, 1)).unwrap();
    let volume = kubelet.join("pods/uid-a/volumes/kubernetes.io~csi/redlock");
    fs::create_dir_all(&volume).unwrap();
    // A read of the FIFO waits for a writer.
    let data = volume.join("vol_data.json");
    nix::unistd::mkfifo(&data, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let listing = read(&Options {
        state_dir,
        kubelet_dir: Some(kubelet),
    })
    .unwrap();
    assert_eq!(listing.pods.len(), 1);
    let why = listing.incomplete.unwrap();
    assert!(why.contains("the disk may hang"), "{why}");
    // Ends the thread.
    fs::write(data, "{}").unwrap();
}
