use kube::runtime::watcher;
use serde_json::{Value, json};

use super::*;
use crate::{lease::BootInstant, targets::ObjectKey};

/// Returns a selector such as `app=web`.
fn selector(text: &str) -> Selector {
    let (key, value) = text.split_once('=').unwrap();
    [(key.to_owned(), value.to_owned())].into_iter().collect()
}

/// Returns the watch of a selector in a namespace that shows these pods.
pub(in crate::targets::label_pods) fn watched(pods: &[&str]) -> Watched {
    let watched = Watched::new(Arc::default(), selector("app=web"));
    for name in pods {
        let metadata = json!({"name": name, "uid": format!("uid of {name}"), "resourceVersion": "1", "labels": {"app": "web"}});
        let pod: Pod = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        take(&watched, Change::Seen(pod, Origin::Watch));
    }
    watched
}

/// Takes a change of the namespace. Reports whether the selector is concerned.
fn take(watched: &Watched, change: Change<Pod>) -> bool {
    let before = *watched.follower.changes.borrow();
    lock(&watched.follower.pods).take(change);
    *watched.follower.changes.borrow() != before
}

fn pod_with(name: &str, version: &str, ready: bool, labels: &Value) -> Pod {
    let ready = if ready { "True" } else { "False" };
    let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T12:00:00Z"});
    let pod = json!({
        "metadata": {"name": name, "uid": "u", "resourceVersion": version, "labels": labels},
        "status": {"conditions": [condition]},
    });
    serde_json::from_value(pod).unwrap()
}

fn pod(version: &str, ready: bool, labelled: bool) -> Pod {
    let labels = if labelled {
        json!({"app": "web", "redlock.dev/role": "active"})
    } else {
        json!({"app": "web"})
    };
    pod_with("a", version, ready, &labels)
}

fn listed(pod: Pod) -> Change<Pod> {
    Change::Seen(pod, Origin::List(BootInstant::default()))
}

fn seen(pod: Pod) -> Change<Pod> {
    Change::Seen(pod, Origin::Watch)
}

fn gone(name: &str) -> Change<Pod> {
    Change::Gone(ObjectKey {
        namespace: "n".into(),
        name: name.into(),
    })
}

#[test]
fn pod_event_that_changes_nothing_for_the_label_is_no_news() {
    let watched = watched(&[]);
    assert!(watched.shown().pods.is_none(), "not listed yet");
    assert!(!take(&watched, listed(pod("1", true, false))));
    assert!(take(&watched, Change::Synced));
    assert!(watched.shown().pods.is_none(), "a list is needed once");
    watched.settle();
    assert_eq!(watched.shown().pods.unwrap().len(), 1);
    assert!(!take(&watched, seen(pod("2", true, false))));
    assert!(!watched.shown().changed);
    assert_eq!(watched.shown().pods.unwrap()[0].version, "2");
    assert!(take(&watched, seen(pod("3", false, false))));
    assert!(watched.shown().changed && watched.shown().pods.is_some());
    assert!(take(&watched, seen(pod("4", true, true))));
    assert!(take(&watched, gone("a")));
    assert!(watched.shown().pods.is_none(), "it may have left the selector");
    watched.settle();
    assert!(watched.shown().pods.unwrap().is_empty());
    assert!(take(&watched, Change::Failed(watcher::Error::NoResourceVersion)));
    assert!(watched.shown().pods.is_none());
    assert!(!take(&watched, listed(pod("5", true, false))));
    assert!(watched.shown().pods.is_none(), "the list is not complete");
}

#[test]
fn pod_of_another_selector_is_no_news_and_a_pod_that_leaves_the_selector_is() {
    let watched = watched(&[]);
    take(&watched, Change::Synced);
    watched.settle();
    let other = json!({"app": "other"});
    assert!(!take(&watched, seen(pod_with("b", "1", true, &other))));
    assert!(!take(&watched, gone("b")));
    assert!(watched.shown().pods.unwrap().is_empty());
    assert!(take(&watched, seen(pod("2", true, true))));
    assert_eq!(watched.shown().pods.unwrap().len(), 1);
    assert!(take(&watched, seen(pod_with("a", "3", true, &other))));
    assert!(
        watched.shown().pods.is_none(),
        "it has left the selector with the label"
    );
    watched.settle();
    assert!(watched.shown().pods.unwrap().is_empty());
    assert!(take(&watched, seen(pod("4", true, false))), "it is back");
}

#[test]
fn later_follower_knows_the_pods_once_they_are_listed() {
    let watch = Arc::<NamespacePods>::default();
    let follow = |text| Watched::new(watch.clone(), selector(text));
    let early = follow("app=web");
    take(&early, listed(pod("1", true, false)));
    let during = follow("app=web");
    assert!(during.shown().pods.is_none());
    take(&early, Change::Synced);
    let (late, other) = (follow("app=web"), follow("app=other"));
    for (watched, count) in [(&early, 1), (&during, 1), (&late, 1), (&other, 0)] {
        assert!(
            watched.shown().pods.is_none() && watched.shown().changed,
            "a list is needed once"
        );
        watched.settle();
        assert_eq!(watched.shown().pods.unwrap().len(), count);
    }
    drop((early, during, late));
    take(&other, Change::Failed(watcher::Error::NoResourceVersion));
    assert_eq!(lock(&watch.content).followers.len(), 1);
    assert!(follow("app=web").shown().pods.is_none());
}
