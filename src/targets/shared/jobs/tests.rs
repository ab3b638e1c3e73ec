use serde_json::json;

use super::*;
use crate::targets::{ObjectKey, Origin};

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
