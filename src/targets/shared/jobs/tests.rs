use serde_json::json;

use super::*;
use crate::targets::{ObjectKey, Origin, slim};

fn job(name: &str, maker: Option<&str>, suspend: bool) -> Job {
    let owner = maker.map(|maker| {
        json!([{"apiVersion": "batch/v1", "kind": "CronJob", "name": maker, "uid": "c", "controller": true}])
    });
    let metadata = json!({"name": name, "uid": name, "ownerReferences": owner});
    serde_json::from_value(json!({"metadata": metadata, "spec": {"suspend": suspend}})).unwrap()
}

fn seen(job: Job) -> Change<Job> {
    Change::Seen(job, Origin::Watch)
}

fn gone(name: &str) -> Change<Job> {
    Change::Gone(ObjectKey {
        namespace: "n".into(),
        name: name.into(),
    })
}

fn see(content: &mut Content, change: Change<Job>) {
    content.see(change, "following jobs");
}

#[test]
fn jobs_are_found_by_their_cron_job() {
    let mut content = Content::default();
    let (of_a, of_b) = (watch::channel(0), watch::channel(0));
    content.followers.insert("a".into(), of_a.0);
    content.followers.insert("b".into(), of_b.0);
    let counts = || (*of_a.1.borrow(), *of_b.1.borrow());
    see(&mut content, seen(job("a-1", Some("a"), false)));
    see(&mut content, seen(job("x", None, false)));
    assert!(content.known().is_none());
    see(&mut content, Change::Synced);
    assert_eq!(counts(), (1, 1), "the list is complete");
    let known = |content: &Content| {
        let known = content.known().unwrap();
        (
            known.of("a").len(),
            known.is_of("a", "a-1"),
            known.is_of("a", "x"),
        )
    };
    assert_eq!(known(&content), (1, Some(true), Some(false)));
    see(&mut content, seen(job("a-1", Some("a"), false)));
    see(&mut content, seen(job("x", None, true)));
    assert_eq!(counts(), (1, 1), "nothing of theirs changed");
    see(&mut content, seen(job("a-1", Some("a"), true)));
    see(&mut content, seen(job("b-1", Some("b"), true)));
    assert_eq!(counts(), (2, 2));
    // Another Job of the same name was created.
    see(&mut content, seen(job("a-1", Some("b"), true)));
    assert_eq!(counts(), (3, 3));
    assert_eq!(known(&content), (0, Some(false), Some(false)));
    see(&mut content, gone("a-1"));
    assert_eq!(counts(), (3, 4));
    // Of a Job that has ended, only the creator is known.
    let mut ended = job("b-1", Some("b"), true);
    ended.status =
        serde_json::from_value(json!({"conditions": [{"type": "Failed", "status": "True"}]})).unwrap();
    see(&mut content, seen(ended));
    assert_eq!(counts(), (3, 5));
    let known_b = content.known().unwrap();
    assert_eq!(
        (known_b.of("b").len(), known_b.is_of("b", "b-1")),
        (0, Some(true))
    );
    assert_eq!(known(&content), (0, None, Some(false)));
}

/// A deletion of a CronJob with `--cascade=orphan` leaves its Jobs without a controller.
#[test]
fn orphaned_job_of_a_schedule_is_found_by_its_name_and_annotation() {
    let orphan = |name: &str, scheduled: bool| {
        let mut job = job(name, None, false);
        let annotation = (slim::SCHEDULED.to_owned(), "2026-07-20T10:00:00Z".to_owned());
        job.metadata.annotations = scheduled.then(|| [annotation].into());
        job
    };
    let mut content = Content::default();
    let of_a = watch::channel(0);
    content.followers.insert("a".into(), of_a.0);
    see(&mut content, seen(job("a-29743800", Some("a"), false)));
    see(&mut content, Change::Synced);
    see(&mut content, seen(orphan("a-29743800", true)));
    assert_eq!(*of_a.1.borrow(), 2, "the Job has changed");
    let known = content.known().unwrap();
    assert_eq!(known.of("a").len(), 1);
    assert_eq!(known.is_of("a", "a-29743800"), Some(true));
    content.index.answer(orphan("a-29743800", true));
    assert_eq!(content.known().unwrap().of("a").len(), 1);
    let mut owned = orphan("a-29743801", true);
    owned.metadata.owner_references = job("x", Some("b"), false).metadata.owner_references;
    let mut of_set = orphan("a-29743802", true);
    of_set.metadata.owner_references = owned.metadata.owner_references.clone();
    of_set.metadata.owner_references.as_mut().unwrap()[0].kind = "JobSet".into();
    for foreign in [
        owned,
        of_set,
        orphan("a-29743803", false),
        orphan("a-x29743804", true),
        orphan("a-", true),
        orphan("aa-29743805", true),
    ] {
        let name = foreign.metadata.name.clone().unwrap();
        see(&mut content, seen(foreign));
        assert_eq!(content.known().unwrap().is_of("a", &name), Some(false), "{name}");
    }
    assert_eq!(content.known().unwrap().of("a").len(), 1);
}

/// A list would not remove a Job that the watch has never shown.
#[test]
fn answer_to_a_write_does_not_bring_a_deleted_job_back() {
    let version = |version: &str, suspend| {
        let mut job = job("a-1", Some("a"), suspend);
        job.metadata.resource_version = Some(version.to_owned());
        job
    };
    let mut content = Content::default();
    see(&mut content, seen(version("7", true)));
    see(&mut content, Change::Synced);
    let suspended = |content: &Content| {
        let jobs = content.known().unwrap().of("a");
        jobs.first()
            .map(|job| job.spec.as_ref().unwrap().suspend.unwrap())
    };
    content.index.answer(version("8", false));
    assert_eq!(suspended(&content), Some(false));
    content.index.answer(version("6", true));
    assert_eq!(suspended(&content), Some(false), "older");
    see(&mut content, gone("a-1"));
    content.index.answer(version("9", true));
    assert_eq!(suspended(&content), None);
}
