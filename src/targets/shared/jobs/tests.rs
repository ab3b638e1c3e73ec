use serde_json::json;

use super::*;

fn job(name: &str, maker: Option<&str>, suspend: bool) -> Job {
    let owner = maker.map(|maker| {
        json!([{"apiVersion": "batch/v1", "kind": "CronJob", "name": maker, "uid": "c", "controller": true}])
    });
    let metadata = json!({"name": name, "uid": name, "ownerReferences": owner});
    serde_json::from_value(json!({"metadata": metadata, "spec": {"suspend": suspend}})).unwrap()
}

#[test]
fn jobs_are_found_by_their_cron_job() {
    let mut content = Content::default();
    let (of_a, of_b) = (watch::channel(0), watch::channel(0));
    content.followers.insert("a".into(), of_a.0);
    content.followers.insert("b".into(), of_b.0);
    let counts = || (*of_a.1.borrow(), *of_b.1.borrow());
    content.see(Event::Init);
    content.see(Event::InitApply(job("a-1", Some("a"), false)));
    content.see(Event::InitApply(job("x", None, false)));
    assert!(content.known.is_none());
    content.see(Event::InitDone);
    assert_eq!(counts(), (1, 1), "the list is complete");
    let known = |content: &Content| {
        let known = content.known.as_ref().unwrap();
        (
            known.of("a").len(),
            known.is_of("a", "a-1"),
            known.is_of("a", "x"),
        )
    };
    assert_eq!(known(&content), (1, Some(true), Some(false)));
    content.see(Event::Apply(job("a-1", Some("a"), false)));
    content.see(Event::Apply(job("x", None, true)));
    assert_eq!(counts(), (1, 1), "nothing of theirs changed");
    content.see(Event::Apply(job("a-1", Some("a"), true)));
    content.see(Event::Apply(job("b-1", Some("b"), true)));
    assert_eq!(counts(), (2, 2));
    // Made anew under its name.
    content.see(Event::Apply(job("a-1", Some("b"), true)));
    assert_eq!(counts(), (3, 3));
    assert_eq!(known(&content), (0, Some(false), Some(false)));
    content.see(Event::Delete(job("a-1", Some("b"), true)));
    assert_eq!(counts(), (3, 4));
    // One that ended is known by its maker alone.
    let mut ended = job("b-1", Some("b"), true);
    ended.status =
        serde_json::from_value(json!({"conditions": [{"type": "Failed", "status": "True"}]})).unwrap();
    content.see(Event::Apply(ended));
    assert_eq!(counts(), (3, 5));
    let known_b = content.known.as_ref().unwrap();
    assert_eq!(
        (known_b.of("b").len(), known_b.is_of("b", "b-1")),
        (0, Some(true))
    );
    assert_eq!(known(&content), (0, None, Some(false)));
}

#[test]
fn list_that_breaks_off_changes_nothing() {
    let mut content = Content::default();
    content.see(Event::Init);
    content.see(Event::InitApply(job("a-1", Some("a"), false)));
    content.see(Event::InitDone);
    content.see(Event::Init);
    content.see(Event::InitApply(job("a-2", Some("a"), false)));
    assert_eq!(content.known.as_ref().unwrap().of("a").len(), 1);
    content.see(Event::Init);
    content.see(Event::InitDone);
    assert!(content.known.as_ref().unwrap().of("a").is_empty());
}
