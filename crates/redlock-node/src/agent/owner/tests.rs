use std::{fs, path::Path};

use redlock_core::{
    FencingToken,
    fence::{Effect, Lineage, Permit, Release, Run},
};
use redlock_testkit::eventually;

use super::*;
use crate::{
    agent::placement::Placement,
    ending::EndReason,
    resolver::FileResolver,
    table::{EntryState, Found, GuardianReport, ReleasedRun, tests::entry},
};

const LINEAGE: Lineage = Lineage {
    first: FencingToken(5),
    token: FencingToken(7),
};

fn shared(folder: &Path) -> Shared {
    let state_dir = folder.to_owned();
    Shared {
        table: Table::open(&state_dir).unwrap(),
        turns: Turns::claim(&state_dir, clock::now()).unwrap(),
        options: Options {
            cgroup_root: state_dir.clone(),
            state_dir,
            kubelet_dir: None,
        },
        resolver: Arc::new(FileResolver::new(folder.join("locks.json"))),
        ready: watch::channel(false).0,
        changes: broadcast::Sender::new(1),
    }
}

/// Creates a directory with the name of the cgroup of a pod.
fn make_cgroup(folder: &Path, uid: &str) -> PathBuf {
    let cgroup = folder.join(format!("pod{uid}"));
    fs::create_dir(&cgroup).unwrap();
    fs::write(cgroup.join("cgroup.freeze"), "0").unwrap();
    cgroup
}

/// Writes the entry of a released pod.
fn store_released(shared: &Shared, uid: &str, cgroup: &Path) {
    let release = Release {
        lineage: Some(LINEAGE),
        seen: FencingToken(9),
    };
    let state = EntryState::Released(ReleasedRun::new(release, "INC-42".to_owned()));
    let mut released = entry(&shared.table, state, 1);
    (released.pod.uid, released.cgroup) = (uid.to_owned(), cgroup.to_owned());
    let bytes = serde_json::to_vec(&released).unwrap();
    fs::write(shared.table.entries().join(uid), bytes).unwrap();
}

fn start(shared: &mut Shared) -> Owner<'_> {
    let turn = shared.turns.take(clock::now()).unwrap().unwrap();
    Owner::start(shared, turn).unwrap()
}

#[tokio::test]
async fn an_agent_whose_freezer_has_ended_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut shared = shared(folder.path());
    let mut owner = start(&mut shared);
    // Stands for the end of the thread, which holds the sender.
    owner.freezer_reports = mpsc::unbounded_channel().1;
    let (_commands, mut received) = mpsc::unbounded_channel();
    let ended = tokio::time::timeout(Duration::from_secs(60), owner.run(&mut received)).await;
    assert!(matches!(ended, Ok(Err(AgentError::FreezerEnded))));
}

/// Otherwise a restarted agent and the guardian would find the release again, which has no end.
#[tokio::test]
async fn the_entry_of_a_release_is_removed_where_the_next_one_cannot_be_written() {
    let until = clock::now();
    let ended_by = [
        Effect::StoreKilled(None),
        Effect::Store(Run {
            lineage: LINEAGE,
            until,
        }),
    ];
    for effect in ended_by {
        let folder = tempfile::tempdir().unwrap();
        let mut shared = shared(folder.path());
        // The name of the file that is renamed would be longer than a file name may be.
        let uid = "a".repeat(250);
        store_released(&shared, &uid, &make_cgroup(folder.path(), &uid));
        let mut owner = start(&mut shared);
        assert!(owner.pods[&uid].is_released());
        owner.effect(&uid, effect.clone());
        let stored = owner.pods[&uid].stored.as_ref().unwrap();
        assert!(stored.bytes.is_empty(), "{effect:?}");
        assert_eq!(owner.shared.table.read(&uid), Found::Missing, "{effect:?}");
    }
}

#[tokio::test]
async fn the_entry_of_a_release_stays_where_it_cannot_be_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut shared = shared(folder.path());
    let uid = "a".repeat(250);
    store_released(&shared, &uid, &make_cgroup(folder.path(), &uid));
    let mut owner = start(&mut shared);
    let release = Release {
        lineage: None,
        seen: FencingToken(9),
    };
    owner.effect(&uid, Effect::StoreReleased(release));
    assert!(matches!(owner.shared.table.read(&uid), Found::Entry { .. }));
}

/// Since the release, the freezing thread has no end for the pod.
#[tokio::test]
async fn a_permit_that_ended_a_release_and_has_ended_since_freezes_the_pod() {
    let folder = tempfile::tempdir().unwrap();
    let cgroup = make_cgroup(folder.path(), "uid-1");
    let mut shared = shared(folder.path());
    store_released(&shared, "uid-1", &cgroup);
    let mut owner = start(&mut shared);
    let until = clock::now();
    owner.effect(
        "uid-1",
        Effect::Store(Run {
            lineage: LINEAGE,
            until,
        }),
    );
    eventually(
        Duration::from_secs(60),
        "the thread freezes the pod",
        async || {
            let text = fs::read_to_string(cgroup.join("cgroup.freeze")).unwrap();
            if text == "1" { Ok(()) } else { Err(text) }
        },
    )
    .await;
}

/// The call to publish the volume was not answered, so no process of the pod may run.
#[tokio::test]
async fn a_start_that_was_interrupted_does_not_count_as_a_pod_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mut shared = shared(folder.path());
    let run = Run {
        lineage: LINEAGE,
        until: clock::now() + Duration::from_secs(60),
    };
    let cgroup = make_cgroup(folder.path(), "uid-1");
    for (state, runs) in [
        (EntryState::Starting(run.into()), false),
        (EntryState::Permitted(run.into()), true),
    ] {
        let mut interrupted = entry(&shared.table, state, 1);
        interrupted.cgroup.clone_from(&cgroup);
        shared.table.store(&interrupted).unwrap();
        let owner = start(&mut shared);
        let pod = &owner.pods["uid-1"];
        assert_eq!((pod.is_running(), pod.is_lost()), (runs, !runs));
    }
}

/// Returns an agent with an acknowledged pod `uid-1` under a permit.
fn with_a_pod<'a>(shared: &'a mut Shared, folder: &Path) -> Owner<'a> {
    let until = clock::now() + Duration::from_secs(60);
    let run = Run {
        lineage: LINEAGE,
        until,
    };
    let mut permitted = entry(&shared.table, EntryState::Permitted(run.into()), 1);
    permitted.cgroup = make_cgroup(folder, "uid-1");
    shared.table.store(&permitted).unwrap();
    let mut owner = start(shared);
    let pod = owner.pods.get_mut("uid-1").unwrap();
    pod.stored.as_mut().unwrap().acknowledged = true;
    owner
}

fn report_guardian(shared: &Shared, unable: Option<&str>) {
    let unable = unable.map(|uid| (uid.to_owned(), "Read-only file system".to_owned()));
    let report = GuardianReport {
        unable: unable.into_iter().collect(),
        ..GuardianReport::default()
    };
    shared.table.write_heartbeat(report, clock::now()).unwrap();
}

/// A permit that another cluster has ended must not last until its end.
#[tokio::test]
async fn evidence_against_a_permit_counts_for_a_pod_that_no_freeze_reaches() {
    for finding in [Finding::Unheld, Finding::ClockStoodStill] {
        let folder = tempfile::tempdir().unwrap();
        let mut shared = shared(folder.path());
        let mut owner = with_a_pod(&mut shared, folder.path());
        let pod = owner.pods.get_mut("uid-1").unwrap();
        pod.placement = Placement::Elsewhere;
        let (lock, until) = (pod.lock.clone().unwrap(), pod.record.permitted_until());
        let later = Permit {
            until: clock::now() + Duration::from_secs(600),
            sent: clock::now(),
            first: LINEAGE.first,
            token: LINEAGE.token,
            closed: false,
        };
        owner.on_findings(vec![(lock.clone(), Finding::Permit(later))]);
        assert_eq!(owner.pods["uid-1"].record.permitted_until(), until);
        owner.on_findings(vec![(lock, finding)]);
        assert!(!owner.pods["uid-1"].is_running());
    }
}

/// A restarted agent knows no placement: the processes of a pod with an empty cgroup may be elsewhere.
#[tokio::test]
async fn a_frozen_pod_that_never_showed_a_process_counts_as_stopped_once_no_container_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mut shared = shared(folder.path());
    let mut owner = with_a_pod(&mut shared, folder.path());
    fs::write(
        folder.path().join("poduid-1/cgroup.events"),
        "populated 0\nfrozen 1\n",
    )
    .unwrap();
    let lock = owner.pods["uid-1"].lock.clone().unwrap();
    owner.on_findings(vec![(lock, Finding::Unheld)]);
    owner.check_cgroup("uid-1");
    assert!(owner.pods["uid-1"].freeze.is_pending());
    for (shown, stopped) in [
        (ContainersShown::Unknown, false),
        (ContainersShown::Run, false),
        (ContainersShown::NoneRuns, true),
    ] {
        let uid = "uid-1".to_owned();
        owner.on_containers(&ContainersRead { uid, shown });
        assert_eq!(owner.pods["uid-1"].freeze.is_shown(), stopped, "{shown:?}");
    }
}

/// The status of a killed pod is late, and would keep it from its next start.
#[tokio::test]
async fn a_killed_pod_with_an_empty_cgroup_has_ended_unless_it_was_found_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let mut shared = shared(folder.path());
    let mut owner = with_a_pod(&mut shared, folder.path());
    fs::write(
        folder.path().join("poduid-1/cgroup.events"),
        "populated 0\nfrozen 1\n",
    )
    .unwrap();
    let lock = owner.pods["uid-1"].lock.clone().unwrap();
    let foreign = Finding::Foreign {
        token: FencingToken(9),
        cluster_uid: "uid-there".to_owned(),
    };
    owner.on_findings(vec![(lock, foreign)]);
    owner.check_cgroup("uid-1");
    assert!(owner.pods["uid-1"].freeze.is_shown());
    owner.pods.get_mut("uid-1").unwrap().placement = Placement::Elsewhere;
    owner.check_cgroup("uid-1");
    assert!(!owner.pods["uid-1"].freeze.is_shown());
    let (uid, shown) = ("uid-1".to_owned(), ContainersShown::NoneRuns);
    owner.on_containers(&ContainersRead { uid, shown });
    assert!(owner.pods["uid-1"].freeze.is_shown());
}

/// An unreadable cgroup shows neither a process nor its absence.
#[tokio::test]
async fn an_unreadable_cgroup_changes_no_placement() {
    let folder = tempfile::tempdir().unwrap();
    let mut shared = shared(folder.path());
    let mut owner = with_a_pod(&mut shared, folder.path());
    for before in [Placement::Unknown, Placement::Elsewhere] {
        owner.pods.get_mut("uid-1").unwrap().placement = before;
        fs::write(folder.path().join("poduid-1/cgroup.events"), "populated\n").unwrap();
        let uid = "uid-1".to_owned();
        owner.on_containers(&ContainersRead {
            uid,
            shown: ContainersShown::Run,
        });
        assert_eq!(owner.pods["uid-1"].placement, before);
    }
}

/// An agent that stays extends no permit, so that every pod of the node would be frozen.
#[tokio::test]
async fn a_pod_that_only_the_guardian_can_freeze_does_not_keep_an_agent_that_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut shared = shared(folder.path());
    let mut owner = with_a_pod(&mut shared, folder.path());
    owner.begin_end();
    assert_eq!(owner.may_end(), None, "no guardian has reported");
    report_guardian(owner.shared, Some("uid-1"));
    assert_eq!(owner.may_end(), None, "the guardian cannot freeze the pod");
    report_guardian(owner.shared, None);
    let pod = owner.pods.get_mut("uid-1").unwrap();
    pod.unable = Some("the node agent cannot freeze the pod".to_owned());
    assert_eq!(owner.may_end(), Some(EndReason::Succeeded));
    let pod = owner.pods.get_mut("uid-1").unwrap();
    pod.stored.as_mut().unwrap().acknowledged = false;
    assert_eq!(owner.may_end(), None, "the guardian has not read the permit");
}

#[tokio::test]
async fn a_pod_that_no_freeze_reaches_does_not_keep_an_agent_that_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut shared = shared(folder.path());
    let mut owner = with_a_pod(&mut shared, folder.path());
    owner.begin_end();
    let pod = owner.pods.get_mut("uid-1").unwrap();
    pod.placement = Placement::Elsewhere;
    assert_eq!(owner.may_end(), Some(EndReason::NoRecord), "without a guardian");
    report_guardian(owner.shared, Some("uid-1"));
    assert_eq!(owner.may_end(), Some(EndReason::Succeeded));
}
