use serde_json::json;

use super::{
    super::{
        ClusterObjects,
        object::{is_deleting, is_pod_ready, uid},
    },
    job,
    store::Cluster,
    workload,
};

fn running() -> Cluster {
    let mut cluster = Cluster::new();
    let mut object = workload(2);
    object["spec"]["template"]["metadata"]["annotations"] = json!({"world/stop-seconds": "5"});
    cluster.create("Deployment", "web", object);
    cluster.until(|cluster| cluster.pods().iter().filter(|pod| is_pod_ready(pod)).count() == 2);
    cluster
}

#[test]
fn dependents_of_a_deleted_owner_go_in_the_background() {
    let mut cluster = running();
    cluster.delete("Deployment", "web", None);
    assert!(cluster.names("Deployment").is_empty());
    cluster.until(|cluster| cluster.names("ReplicaSet").is_empty());
    cluster.until(|cluster| cluster.pods().is_empty());
    cluster.is_at_rest();
}

#[test]
fn an_owner_that_is_deleted_in_the_foreground_goes_last() {
    let mut cluster = running();
    cluster.delete("Deployment", "web", Some("foregroundDeletion"));
    cluster.seconds(3.0);
    assert_eq!(cluster.names("Deployment").len(), 1);
    assert!(cluster.pods().len() == 2 && cluster.pods().iter().all(|pod| is_deleting(pod)));
    cluster.until(|cluster| cluster.names("Deployment").is_empty());
    assert!(cluster.pods().is_empty() && cluster.names("ReplicaSet").is_empty());
    cluster.is_at_rest();
}

#[test]
fn the_orphans_of_an_owner_stay() {
    let mut cluster = running();
    cluster.delete("Deployment", "web", Some("orphan"));
    cluster.until(|cluster| cluster.names("Deployment").is_empty());
    cluster.is_at_rest();
    assert_eq!((cluster.pods().len(), cluster.names("ReplicaSet").len()), (2, 1));
}

#[test]
fn an_object_with_another_owner_or_one_of_an_unknown_kind_stays() {
    let mut cluster = running();
    let deployment = cluster.get("Deployment", "web");
    let owner =
        |kind: &str, uid: &str| json!({"apiVersion": "x/v1", "kind": kind, "name": "web", "uid": uid});
    for (name, owners) in [
        (
            "both",
            json!([owner("Deployment", uid(&deployment)), owner("Job", "gone")]),
        ),
        ("unknown", json!([owner("Widget", "gone")])),
        ("gone", json!([owner("Job", "gone")])),
    ] {
        cluster.create(
            "ConfigMap",
            name,
            json!({"metadata": {"ownerReferences": owners}}),
        );
    }
    cluster.seconds(1.0);
    assert_eq!(cluster.names("ConfigMap"), ["both", "unknown"]);
    let both = cluster.get("ConfigMap", "both");
    assert_eq!(both["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
    cluster.is_at_rest();
}

#[test]
fn a_deleted_namespace_goes_after_its_content() {
    let mut cluster = running();
    let space = json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["kubernetes"]}});
    assert!(cluster.store.create("Namespace", space, cluster.now));
    cluster.create(
        "ConfigMap",
        "held",
        json!({"metadata": {"finalizers": ["example.com/hold"]}}),
    );
    cluster.create("Job", "load", job(false));
    cluster.seconds(2.0);
    assert!(
        cluster
            .store
            .delete(("Namespace", "", "n"), None, None, cluster.now)
    );
    cluster.seconds(20.0);
    assert!(cluster.pods().is_empty() && cluster.names("Deployment").is_empty());
    assert!(cluster.names("Job").is_empty());
    assert_eq!(cluster.names("Namespace").len(), 1, "until the finalizer is gone");
    cluster.store.edit("ConfigMap", "held", |object| {
        object["metadata"]["finalizers"] = json!([])
    });
    cluster.seconds(2.0);
    assert!(cluster.names("ConfigMap").is_empty() && cluster.names("Namespace").is_empty());
    assert!(cluster.store.list("Pod").is_empty());
}
