use std::{collections::BTreeSet, fs};

use redlock_core::{
    FencingToken,
    fence::{Lineage, Run},
};

use super::*;
use crate::table::{GuardianReport, PodName, tests};

/// A table, and a folder with the frozen cgroups of two pods.
struct Node {
    folder: tempfile::TempDir,
    table: Table,
}

impl Node {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for uid in ["uid-1", "uid-2"] {
            let cgroup = folder.path().join(format!("pod{uid}"));
            fs::create_dir(&cgroup).unwrap();
            for (name, text) in [
                ("cgroup.freeze", "1"),
                ("cgroup.kill", ""),
                ("cgroup.events", "populated 1\nfrozen 1\n"),
            ] {
                fs::write(cgroup.join(name), text).unwrap();
            }
        }
        let table = Table::open(&folder.path().join("state")).unwrap();
        Self { folder, table }
    }

    /// Returns the file `cgroup.freeze` of pod `uid-1`.
    fn freeze_file(&self) -> PathBuf {
        self.folder.path().join("poduid-1/cgroup.freeze")
    }

    /// Returns the value of `cgroup.freeze` of pod `uid-1`.
    fn freeze(&self) -> String {
        fs::read_to_string(self.freeze_file()).unwrap()
    }

    fn state(&self, uid: &str) -> EntryState {
        let Found::Entry { entry, .. } = self.table.read(uid) else {
            panic!("no entry of {uid}")
        };
        entry.state
    }

    fn state_dir(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn store(&self, uid: &str, state: EntryState) {
        let like = tests::entry(&self.table, state.clone(), 1);
        let pod = PodName {
            uid: uid.to_owned(),
            ..like.pod
        };
        let cgroup = self.folder.path().join(format!("pod{uid}"));
        let of = (pod, cgroup, BTreeSet::new());
        let entry = self
            .table
            .entry(of, (like.declared, like.lock), state, clock::now());
        self.table.store(&entry).unwrap();
    }

    fn make(&self, pod: &str) -> Result<Plan, String> {
        Plan::make(&self.state_dir(), pod).map_err(|error| error.to_string())
    }
}

fn permitted(until: BootInstant) -> EntryState {
    let lineage = Lineage {
        first: FencingToken(5),
        token: FencingToken(7),
    };
    EntryState::Permitted(Run { lineage, until }.into())
}

#[test]
fn a_pod_is_released_where_neither_agent_nor_guardian_runs() {
    for state in [
        EntryState::Killed { start: None, seen: 9 },
        permitted(BootInstant::default()),
    ] {
        let node = Node::new();
        node.store("uid-1", state);
        let plan = node.make("team/report-0").unwrap();
        let done = plan.carry_out("INC-42").unwrap();
        let expected = Released {
            by: By::Command,
            guardian: Guardian::NotRunning,
            thawed: true,
        };
        assert_eq!(done, expected);
        let state = node.state("uid-1");
        assert!(matches!(&state, EntryState::Released(run) if run.reason == "INC-42"));
        assert!(!node.table.has_request("uid-1"));
        let again = node.make("uid-1").unwrap_err();
        assert!(again.contains("is released already: INC-42"), "{again}");
    }
}

#[test]
fn a_pod_that_is_unknown_or_has_a_permit_is_not_released() {
    let node = Node::new();
    let unknown = node.make("report-0").unwrap_err();
    assert!(
        unknown.contains("no record of a pod \"report-0\"; it has: none"),
        "{unknown}"
    );
    node.store("uid-1", permitted(clock::now() + Duration::from_secs(60)));
    let permitted = node.make("report-0").unwrap_err();
    assert!(
        permitted.contains("team/report-0 has a permit, which ends in"),
        "{permitted}"
    );
    let start = Some(
        match super::tests::permitted(clock::now() + Duration::from_secs(60)) {
            EntryState::Permitted(run) => run,
            other => panic!("{other:?}"),
        },
    );
    node.store("uid-1", EntryState::Killed { start, seen: 9 });
    assert!(node.make("report-0").unwrap_err().contains("has a permit"));
    let missing = node.make("report-1").unwrap_err();
    assert!(missing.contains("it has: team/report-0"), "{missing}");
    node.store("uid-2", EntryState::Killed { start: None, seen: 9 });
    let several = node.make("report-0").unwrap_err();
    assert!(several.contains("one of the UIDs uid-1, uid-2"), "{several}");
    fs::write(node.table.entries().join("uid-2"), "{").unwrap();
    assert!(node.make("uid-2").unwrap_err().contains("cannot be read"));
    node.store("uid-1", EntryState::Ended);
    assert!(node.make("uid-1").unwrap_err().contains("it has: none"));
    let nowhere = Plan::make(&node.folder.path().join("none"), "a").unwrap_err();
    assert!(nowhere.to_string().contains("none/pods"), "{nowhere}");
}

#[test]
fn the_outcome_is_unknown_where_an_agent_takes_the_request_and_stores_no_release() {
    let node = Node::new();
    node.store("uid-1", EntryState::Killed { start: None, seen: 9 });
    let plan = node.make("uid-1").unwrap();
    let _agent = Vacant::take(&node.state_dir()).unwrap().unwrap();
    let table = node.table.clone();
    let agent = thread::spawn(move || {
        while table.take_releases(clock::now()).unwrap().is_empty() {
            thread::sleep(POLL);
        }
    });
    let unknown = plan.carry_out("x").unwrap_err();
    agent.join().unwrap();
    assert!(
        matches!(unknown, ReleaseError::OutcomeUnknown)
            && unknown.to_string().contains("`redlock fence list`"),
        "{unknown:?}"
    );
    assert_eq!(node.freeze(), "1");
}

#[test]
fn a_command_that_stood_still_releases_nothing() {
    let node = Node::new();
    node.store("uid-1", EntryState::Killed { start: None, seen: 9 });
    let plan = node.make("uid-1").unwrap();
    let now = clock::now();
    node.table.request_release("uid-1", "x", now).unwrap();
    // No agent acts, and an hour has passed.
    let late = plan.follow("x", now);
    assert!(matches!(late, Err(ReleaseError::NotTaken)), "{late:?}");
    assert!(!node.table.has_request("uid-1"));
    // The command stood still once more, after it had found the turn free.
    let vacant = Vacant::take(&node.state_dir()).unwrap().unwrap();
    let late = plan.by_command(&vacant, "x", now);
    assert!(matches!(late, Err(ReleaseError::NotTaken)), "{late:?}");
    assert_eq!(node.state("uid-1"), EntryState::Killed { start: None, seen: 9 });
    assert_eq!(node.freeze(), "1");
}

/// The agent has released the pod, has killed it by a later mark of another cluster, and has ended.
#[test]
fn a_command_does_not_release_a_pod_whose_record_has_changed_since() {
    let node = Node::new();
    node.store("uid-1", permitted(BootInstant::default()));
    let plan = node.make("uid-1").unwrap();
    node.store("uid-1", EntryState::Killed { start: None, seen: 9 });
    let changed = plan.carry_out("x");
    assert!(
        matches!(changed, Err(ReleaseError::Changed { .. })),
        "{changed:?}"
    );
    assert_eq!(node.state("uid-1"), EntryState::Killed { start: None, seen: 9 });
    assert_eq!(node.freeze(), "1");
    assert!(!node.table.has_request("uid-1"));
}

#[test]
fn the_thaw_is_repeated_where_the_guardian_freezes_by_the_entry_before() {
    let node = Node::new();
    node.store("uid-1", permitted(BootInstant::default()));
    node.table
        .write_heartbeat(GuardianReport::default(), clock::now())
        .unwrap();
    let plan = node.make("uid-1").unwrap();
    let (table, file) = (node.table.clone(), node.freeze_file());
    let guardian = thread::spawn(move || {
        // The guardian has read the entry, stands still, and continues after the first thaw.
        while fs::read_to_string(&file).unwrap() != "0" {
            thread::sleep(Duration::from_millis(1));
        }
        fs::write(&file, "1").unwrap();
        let Found::Entry { bytes, .. } = table.read("uid-1") else {
            panic!("no entry")
        };
        table
            .write_heartbeat(GuardianReport::default(), clock::now())
            .unwrap();
        table.acknowledge("uid-1", &bytes).unwrap();
    });
    let done = plan.carry_out("x").unwrap();
    guardian.join().unwrap();
    let expected = Released {
        by: By::Command,
        guardian: Guardian::Acknowledged,
        thawed: true,
    };
    assert_eq!((done, &*node.freeze()), (expected, "0"));
}

/// The command that stored the release was killed before it thawed the pod.
#[test]
fn a_released_pod_that_is_frozen_is_released_once_more() {
    let node = Node::new();
    let release = redlock_core::fence::Release {
        lineage: None,
        seen: FencingToken(9),
    };
    let state = || EntryState::Released(ReleasedRun::new(release, "first".to_owned()));
    node.store("uid-1", state());
    let done = node.make("uid-1").unwrap().carry_out("second").unwrap();
    assert!(done.thawed && done.by == By::Command, "{done:?}");
    let again = node.state("uid-1");
    assert!(
        matches!(&again, EntryState::Released(run) if run.release() == release),
        "{again:?}"
    );
    assert!(node.make("uid-1").unwrap_err().contains("is released already"));
}

/// Otherwise, the mark that killed the pod would end the release once an agent is started again.
#[test]
fn a_release_by_the_command_keeps_what_was_seen_before_the_kill() {
    let node = Node::new();
    node.store("uid-1", EntryState::Killed { start: None, seen: 9 });
    node.make("uid-1").unwrap().carry_out("x").unwrap();
    let state = node.state("uid-1");
    assert!(
        matches!(&state, EntryState::Released(run) if run.release().seen == FencingToken(9)),
        "{state:?}"
    );
}
