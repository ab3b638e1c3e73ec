use serde_json::json;

use super::{
    super::{
        ControllerKind,
        object::{FieldPath, is_deleting, is_pod_ready, text},
    },
    job,
    store::Cluster,
    workload,
};

fn running() -> (Cluster, String) {
    let mut cluster = Cluster::new();
    cluster.create("StatefulSet", "web", workload(1));
    cluster.until(|cluster| cluster.pods().iter().any(|pod| is_pod_ready(pod)));
    let node = text(&cluster.pods()[0], "/spec/nodeName").to_owned();
    (cluster, node)
}

#[test]
fn pods_of_a_lost_node_run_on_and_are_not_removed() {
    let (mut cluster, node) = running();
    cluster.controllers.lose_node(&node, cluster.now);
    cluster.seconds(39.0);
    assert!(is_pod_ready(&cluster.pods()[0]));
    cluster.seconds(2.0);
    assert!(!is_pod_ready(&cluster.pods()[0]));
    cluster.seconds(400.0);
    assert!(is_deleting(&cluster.pods()[0]), "evicted");
    assert_eq!(cluster.controllers.running_pods(cluster.now).count(), 1);
    cluster.is_at_rest();
    cluster.controllers.return_node(&node);
    cluster.until(|cluster| {
        cluster
            .pods()
            .iter()
            .any(|pod| is_pod_ready(pod) && !is_deleting(pod))
    });
    assert_eq!(cluster.controllers.running_pods(cluster.now).count(), 1);
    cluster.is_at_rest();
}

#[test]
fn a_pod_is_ready_again_when_its_node_returns_in_time() {
    let (mut cluster, node) = running();
    cluster.controllers.lose_node(&node, cluster.now);
    cluster.seconds(60.0);
    cluster.controllers.return_node(&node);
    cluster.seconds(1.0);
    assert!(is_pod_ready(&cluster.pods()[0]));
    cluster.is_at_rest();
}

#[test]
fn a_deployment_replaces_the_pod_of_a_lost_node() {
    let mut cluster = Cluster::new();
    cluster.create("Deployment", "web", workload(1));
    cluster.until(|cluster| cluster.pods().iter().any(|pod| is_pod_ready(pod)));
    let node = text(&cluster.pods()[0], "/spec/nodeName").to_owned();
    cluster.controllers.lose_node(&node, cluster.now);
    cluster.seconds(400.0);
    assert_eq!(cluster.pods().len(), 2);
    assert_eq!(
        cluster.controllers.running_pods(cluster.now).count(),
        2,
        "two at once"
    );
    cluster.controllers.return_node(&node);
    cluster.until(|cluster| cluster.pods().len() == 1);
    assert_eq!(cluster.controllers.running_pods(cluster.now).count(), 1);
}

#[test]
fn the_containers_of_a_crashed_node_start_again_with_it() {
    let (mut cluster, node) = running();
    cluster.controllers.crash_node(&node, cluster.now);
    cluster.seconds(10.0);
    assert_eq!(cluster.controllers.running_pods(cluster.now).count(), 0);
    assert_eq!(text(&cluster.pods()[0], "/status/phase"), "Running");
    cluster.controllers.return_node(&node);
    cluster.until(|cluster| cluster.controllers.running_pods(cluster.now).count() == 1);
    cluster.until(|cluster| is_pod_ready(&cluster.pods()[0]));
    let restarts = cluster.pods()[0]
        .at("/status/containerStatuses/0/restartCount")
        .cloned();
    assert_eq!(restarts, Some(json!(1)));
    cluster.is_at_rest();
}

#[test]
fn a_crashed_node_ends_a_pod_that_is_being_deleted() {
    let (mut cluster, node) = running();
    cluster.controllers.stop(ControllerKind::StatefulSet);
    cluster.delete("Pod", "web-0", None);
    cluster.controllers.crash_node(&node, cluster.now);
    cluster.seconds(10.0);
    assert_eq!(cluster.pods().len(), 1);
    cluster.controllers.return_node(&node);
    cluster.until(|cluster| cluster.pods().is_empty());
}

#[test]
fn a_crashed_pod_is_started_again() {
    let (mut cluster, _) = running();
    let uid = cluster.controllers.running_pods(cluster.now).next().unwrap().uid;
    assert!(cluster.controllers.crash_pod(&uid, cluster.now));
    cluster.seconds(0.01);
    assert!(!is_pod_ready(&cluster.pods()[0]));
    assert_eq!(cluster.controllers.running_pods(cluster.now).count(), 0);
    cluster.until(|cluster| is_pod_ready(&cluster.pods()[0]));
    assert_eq!(
        cluster.controllers.running_pods(cluster.now).next().unwrap().uid,
        uid
    );
    cluster.is_at_rest();
}

#[test]
fn a_job_that_ends_on_a_lost_node_is_reported_at_its_return() {
    let mut cluster = Cluster::new();
    let mut object = job(false);
    object["spec"]["template"]["spec"]["restartPolicy"] = json!("OnFailure");
    cluster.create("Job", "load", object);
    cluster.until(|cluster| cluster.controllers.running_pods(cluster.now).count() == 1);
    let node = text(&cluster.pods()[0], "/spec/nodeName").to_owned();
    cluster.controllers.lose_node(&node, cluster.now);
    cluster.seconds(30.0);
    assert_eq!(cluster.controllers.running_pods(cluster.now).count(), 0);
    assert_eq!(text(&cluster.pods()[0], "/status/phase"), "Running");
    cluster.controllers.return_node(&node);
    cluster.seconds(2.0);
    assert_eq!(text(&cluster.pods()[0], "/status/phase"), "Succeeded");
}

#[test]
fn a_pod_that_never_started_on_a_crashed_node_has_not_succeeded() {
    let mut cluster = Cluster::new();
    cluster.create("Job", "load", job(false));
    cluster.until(|cluster| {
        cluster
            .pods()
            .iter()
            .any(|pod| !text(pod, "/spec/nodeName").is_empty())
    });
    cluster.seconds(0.01);
    assert_eq!(cluster.controllers.running_pods(cluster.now).count(), 0);
    let pod = cluster.names("Pod").remove(0);
    let node = text(&cluster.pods()[0], "/spec/nodeName").to_owned();
    cluster.controllers.crash_node(&node, cluster.now);
    cluster.controllers.return_node(&node);
    cluster.seconds(1.0);
    assert_eq!(text(&cluster.get("Pod", &pod), "/status/phase"), "Failed");
    assert_eq!(cluster.pods().len(), 2, "another pod");
    cluster.delete("Pod", &pod, None);
    cluster.until(|cluster| cluster.store.get("Pod", "n", &pod).is_none());
}
