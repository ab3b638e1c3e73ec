use std::{collections::BTreeSet, fs};

use redlock_core::{
    FencingToken,
    fence::{Lineage, Run},
};

use super::*;
use crate::table::{PodName, tests};

/// A table, and a folder with the files of a frozen cgroup.
struct Node {
    folder: tempfile::TempDir,
    table: Table,
}

impl Node {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("cgroup.freeze", "1"),
            ("cgroup.kill", ""),
            ("cgroup.events", "populated 1\nfrozen 1\n"),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let table = Table::open(&folder.path().join("state")).unwrap();
        Self { folder, table }
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
        let of = (pod, self.folder.path().to_owned(), BTreeSet::new());
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
        EntryState::Killed { start: None },
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
        let Found::Entry { entry, .. } = node.table.read("uid-1") else {
            panic!("no entry")
        };
        assert!(matches!(&entry.state, EntryState::Released(run) if run.reason == "INC-42"));
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
    node.store("uid-1", EntryState::Killed { start });
    assert!(node.make("report-0").unwrap_err().contains("has a permit"));
    let missing = node.make("report-1").unwrap_err();
    assert!(missing.contains("it has: team/report-0"), "{missing}");
    node.store("uid-2", EntryState::Killed { start: None });
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
fn an_agent_that_takes_the_request_and_does_not_release_has_refused() {
    let node = Node::new();
    node.store("uid-1", EntryState::Killed { start: None });
    let plan = node.make("uid-1").unwrap();
    let _agent = Vacant::take(&node.state_dir()).unwrap().unwrap();
    let table = node.table.clone();
    let agent = thread::spawn(move || {
        while table.take_releases(clock::now()).unwrap().is_empty() {
            thread::sleep(POLL);
        }
    });
    let refused = plan.carry_out("x");
    agent.join().unwrap();
    assert!(matches!(refused, Err(ReleaseError::Refused)), "{refused:?}");
    let text = fs::read_to_string(node.folder.path().join("cgroup.freeze")).unwrap();
    assert_eq!(text, "1");
}
