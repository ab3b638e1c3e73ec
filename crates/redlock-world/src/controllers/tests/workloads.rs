use serde_json::json;

use super::{
    super::{
        ClusterObjects, ControllerKind, ControllerSettings, DelayRange,
        object::{FieldPath, count, is_deleting, is_pod_ready, is_true, label, name, text, uid},
        selector::controller_of,
    },
    store::Cluster,
    workload,
};

fn ready(cluster: &Cluster, kind: &str) -> i64 {
    count(&cluster.get(kind, "web"), "/status/readyReplicas")
}

fn scale(cluster: &mut Cluster, kind: &str, replicas: i64) {
    cluster
        .store
        .edit(kind, "web", |object| object["spec"]["replicas"] = json!(replicas));
}

#[test]
fn a_deployment_is_scaled_up_and_down() {
    let mut cluster = Cluster::new();
    cluster.create("Deployment", "web", workload(0));
    cluster.seconds(1.0);
    assert_eq!((cluster.pods().len(), cluster.names("ReplicaSet").len()), (0, 1));
    scale(&mut cluster, "Deployment", 3);
    cluster.until(|cluster| ready(cluster, "Deployment") == 3);
    let deployment = cluster.get("Deployment", "web");
    assert!(is_true(&deployment, "Available") && is_true(&deployment, "Progressing"));
    for field in ["replicas", "updatedReplicas", "availableReplicas"] {
        assert_eq!(count(&deployment, &format!("/status/{field}")), 3, "{field}");
    }
    assert_eq!(count(&deployment, "/status/observedGeneration"), 2);
    let pod = cluster.pods().remove(0);
    assert!(label(&pod, "pod-template-hash").is_some());
    assert_eq!(controller_of(&pod).unwrap()["kind"], "ReplicaSet");
    cluster.is_at_rest();
    scale(&mut cluster, "Deployment", 0);
    cluster.until(|cluster| cluster.pods().is_empty());
    cluster.seconds(1.0);
    let deployment = cluster.get("Deployment", "web");
    assert_eq!(deployment.at("/status/replicas"), None, "a zero is omitted");
    assert_eq!(count(&deployment, "/status/observedGeneration"), 3);
    cluster.is_at_rest();
}

#[test]
fn a_rollout_surges_and_keeps_the_minimum() {
    let mut cluster = Cluster::new();
    cluster.create("Deployment", "web", workload(4));
    cluster.until(|cluster| ready(cluster, "Deployment") == 4);
    cluster.store.edit("Deployment", "web", |object| {
        object["spec"]["template"]["spec"]["containers"][0]["image"] = json!("web:2");
    });
    let is_new = |pod: &serde_json::Value| text(pod, "/spec/containers/0/image") == "web:2";
    for _ in 0..3_000 {
        cluster.seconds(0.01);
        let active = cluster.pods().iter().filter(|pod| !is_deleting(pod)).count();
        assert!(active <= 5, "surge");
        assert!(cluster.pods().iter().filter(|pod| is_pod_ready(pod)).count() >= 3);
        if active == 4 && cluster.pods().iter().all(|pod| is_new(pod) && is_pod_ready(pod)) {
            break;
        }
    }
    cluster.seconds(2.0);
    let deployment = cluster.get("Deployment", "web");
    assert_eq!(count(&deployment, "/status/updatedReplicas"), 4);
    assert_eq!(cluster.names("ReplicaSet").len(), 2, "the history");
    let revision = &deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
    assert_eq!(revision, "2");
    cluster.is_at_rest();
}

#[test]
fn a_recreation_waits_for_the_end_of_the_old_pods() {
    let mut cluster = Cluster::new();
    let mut object = workload(2);
    object["spec"]["strategy"] = json!({"type": "Recreate"});
    object["spec"]["template"]["metadata"]["annotations"] = json!({"world/stop-seconds": "9"});
    cluster.create("Deployment", "web", object);
    cluster.until(|cluster| ready(cluster, "Deployment") == 2);
    cluster.store.edit("Deployment", "web", |object| {
        object["spec"]["template"]["spec"]["containers"][0]["image"] = json!("web:2");
    });
    cluster.seconds(8.0);
    assert!(cluster.pods().iter().all(|pod| is_deleting(pod)), "only old pods");
    cluster.until(|cluster| ready(cluster, "Deployment") == 2);
    assert!(
        cluster
            .pods()
            .iter()
            .all(|pod| text(pod, "/spec/containers/0/image") == "web:2")
    );
}

#[test]
fn a_deployment_that_is_created_again_does_not_wait_for_the_old_pods() {
    let mut cluster = Cluster::new();
    let mut object = workload(1);
    object["spec"]["template"]["metadata"]["annotations"] = json!({"world/stop-seconds": "20"});
    cluster.create("Deployment", "web", object.clone());
    cluster.until(|cluster| ready(cluster, "Deployment") == 1);
    cluster.controllers.stop(ControllerKind::GarbageCollector);
    cluster.delete("Deployment", "web", None);
    cluster.create("Deployment", "web", object);
    cluster.until(|cluster| ready(cluster, "Deployment") == 1);
    assert_eq!(cluster.names("ReplicaSet").len(), 2);
    cluster.controllers.start(ControllerKind::GarbageCollector);
    cluster.until(|cluster| cluster.pods().len() == 1);
    assert_eq!(cluster.names("ReplicaSet").len(), 1);
    cluster.is_at_rest();
}

#[test]
fn pods_that_are_not_ready_or_cheap_are_deleted_first() {
    let mut cluster = Cluster::new();
    cluster.create("Deployment", "web", workload(3));
    cluster.until(|cluster| ready(cluster, "Deployment") == 3);
    let [first, second, third] = cluster.names("Pod").try_into().unwrap();
    cluster.store.edit("Pod", &second, |pod| {
        pod["metadata"]["annotations"]["world/ready"] = json!("false");
    });
    cluster.store.edit("Pod", &first, |pod| {
        pod["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"] = json!("-5");
    });
    cluster.seconds(1.0);
    scale(&mut cluster, "Deployment", 2);
    cluster.seconds(2.0);
    assert_eq!(cluster.names("Pod"), [first, third.clone()]);
    scale(&mut cluster, "Deployment", 1);
    cluster.seconds(2.0);
    assert_eq!(cluster.names("Pod"), [third]);
}

#[test]
fn a_deleted_pod_is_replaced_while_it_stops() {
    let mut cluster = Cluster::new();
    let mut object = workload(1);
    object["spec"]["template"]["metadata"]["annotations"] = json!({"world/stop-seconds": "20"});
    cluster.create("Deployment", "web", object);
    cluster.until(|cluster| ready(cluster, "Deployment") == 1);
    let pod = cluster.names("Pod").remove(0);
    cluster.delete("Pod", &pod, None);
    cluster.seconds(10.0);
    assert_eq!(cluster.pods().len(), 2);
    assert_eq!(cluster.controllers.running_pods(cluster.now).count(), 2);
}

#[test]
fn a_set_of_an_orphaned_deployment_is_adopted() {
    let mut cluster = Cluster::new();
    cluster.create("Deployment", "web", workload(2));
    cluster.until(|cluster| ready(cluster, "Deployment") == 2);
    let before = cluster.names("Pod");
    cluster.delete("Deployment", "web", Some("orphan"));
    cluster.seconds(2.0);
    assert!(cluster.store.list("Deployment").is_empty());
    assert!(controller_of(&cluster.store.list("ReplicaSet")[0]).is_none());
    cluster.create("Deployment", "web", workload(2));
    cluster.seconds(2.0);
    assert_eq!(cluster.names("Pod"), before);
    let deployment = cluster.get("Deployment", "web");
    assert_eq!(
        controller_of(&cluster.store.list("ReplicaSet")[0]).unwrap()["uid"],
        uid(&deployment)
    );
    cluster.is_at_rest();
}

#[test]
fn a_controller_that_is_down_observes_nothing() {
    let mut cluster = Cluster::new();
    cluster.create("Deployment", "web", workload(2));
    cluster.until(|cluster| ready(cluster, "Deployment") == 2);
    cluster.controllers.stop(ControllerKind::Deployment);
    scale(&mut cluster, "Deployment", 0);
    cluster.seconds(60.0);
    assert_eq!(
        count(&cluster.get("Deployment", "web"), "/status/observedGeneration"),
        1
    );
    cluster.controllers.start(ControllerKind::Deployment);
    cluster.until(|cluster| cluster.pods().is_empty());
}

#[test]
fn a_paused_deployment_is_scaled_and_not_rolled_out() {
    let mut cluster = Cluster::new();
    let mut object = workload(1);
    object["spec"]["paused"] = json!(true);
    cluster.create("Deployment", "web", object);
    cluster.seconds(3.0);
    assert!(cluster.pods().is_empty());
    cluster.store.edit("Deployment", "web", |object| {
        object["spec"]["paused"] = json!(false)
    });
    cluster.until(|cluster| ready(cluster, "Deployment") == 1);
    cluster.store.edit("Deployment", "web", |object| {
        object["spec"]["paused"] = json!(true);
        object["spec"]["replicas"] = json!(2);
        object["spec"]["template"]["spec"]["containers"][0]["image"] = json!("web:2");
    });
    cluster.until(|cluster| ready(cluster, "Deployment") == 2);
    assert_eq!(cluster.names("ReplicaSet").len(), 1);
    cluster.is_at_rest();
}

#[test]
fn ordered_pods_follow_one_after_another() {
    let mut cluster = Cluster::new();
    cluster.create("StatefulSet", "web", workload(3));
    let mut seen = 0;
    while ready(&cluster, "StatefulSet") < 3 {
        cluster.seconds(0.01);
        let pods = cluster.pods();
        assert!(pods.len() >= seen && pods.iter().filter(|pod| !is_pod_ready(pod)).count() <= 1);
        seen = pods.len();
    }
    assert_eq!(cluster.names("Pod"), ["web-0", "web-1", "web-2"]);
    cluster.is_at_rest();
    scale(&mut cluster, "StatefulSet", 0);
    while !cluster.pods().is_empty() {
        cluster.seconds(0.01);
        let pods = cluster.pods();
        let deleting: Vec<_> = pods.iter().filter(|pod| is_deleting(pod)).collect();
        assert!(deleting.len() <= 1);
        assert!(
            deleting
                .first()
                .is_none_or(|pod| name(pod) == name(pods.last().unwrap()))
        );
    }
    cluster.seconds(1.0);
    let set = cluster.get("StatefulSet", "web");
    assert_eq!(
        (
            count(&set, "/status/replicas"),
            count(&set, "/status/observedGeneration")
        ),
        (0, 2)
    );
}

#[test]
fn parallel_pods_are_created_and_deleted_at_once() {
    let mut cluster = Cluster::new();
    let mut object = workload(3);
    object["spec"]["podManagementPolicy"] = json!("Parallel");
    cluster.create("StatefulSet", "web", object);
    cluster.until(|cluster| cluster.pods().len() == 3);
    assert_eq!(ready(&cluster, "StatefulSet"), 0);
    cluster.until(|cluster| ready(cluster, "StatefulSet") == 3);
    scale(&mut cluster, "StatefulSet", 0);
    cluster.until(|cluster| cluster.pods().iter().filter(|pod| is_deleting(pod)).count() == 3);
}

#[test]
fn a_stateful_set_is_updated_from_the_highest_ordinal() {
    let mut cluster = Cluster::new();
    cluster.create("StatefulSet", "web", workload(2));
    cluster.until(|cluster| ready(cluster, "StatefulSet") == 2);
    cluster.store.edit("StatefulSet", "web", |object| {
        object["spec"]["template"]["spec"]["containers"][0]["image"] = json!("web:2");
    });
    cluster.until(|cluster| cluster.pods().iter().any(|pod| is_deleting(pod)));
    assert!(!is_deleting(&cluster.get("Pod", "web-0")));
    cluster.until(|cluster| count(&cluster.get("StatefulSet", "web"), "/status/updatedReplicas") == 2);
    cluster.seconds(5.0);
    let set = cluster.get("StatefulSet", "web");
    assert_eq!(set["status"]["currentRevision"], set["status"]["updateRevision"]);
    assert_eq!(ready(&cluster, "StatefulSet"), 2);
    cluster.is_at_rest();
}

#[test]
fn claims_stay_unless_they_are_deleted_with_a_scaled_pod() {
    for (policy, left) in [("Retain", 1), ("Delete", 0)] {
        let mut cluster = Cluster::new();
        let mut object = workload(1);
        object["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {}}]);
        object["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({"whenScaled": policy});
        cluster.create("StatefulSet", "web", object);
        cluster.until(|cluster| ready(cluster, "StatefulSet") == 1);
        assert_eq!(cluster.names("PersistentVolumeClaim"), ["data-web-0"]);
        scale(&mut cluster, "StatefulSet", 0);
        cluster.until(|cluster| cluster.pods().is_empty());
        cluster.seconds(1.0);
        assert_eq!(cluster.names("PersistentVolumeClaim").len(), left, "{policy}");
        cluster.is_at_rest();
    }
}

#[test]
fn a_daemon_set_has_a_pod_on_each_node() {
    let mut cluster = Cluster::new();
    cluster.create("DaemonSet", "web", workload(1));
    cluster.until(|cluster| count(&cluster.get("DaemonSet", "web"), "/status/numberReady") == 2);
    let mut nodes: Vec<_> = cluster
        .pods()
        .iter()
        .map(|pod| text(pod, "/spec/nodeName").to_owned())
        .collect();
    nodes.sort();
    assert_eq!(nodes, ["node-1", "node-2"]);
    cluster.store.edit("DaemonSet", "web", |object| {
        object["spec"]["template"]["spec"]["containers"][0]["image"] = json!("web:2");
    });
    cluster.seconds(30.0);
    assert!(
        cluster
            .pods()
            .iter()
            .all(|pod| text(pod, "/spec/containers/0/image") == "web:2")
    );
    cluster.is_at_rest();
}

#[test]
fn a_write_that_was_on_its_way_still_creates_pods() {
    let settings = ControllerSettings {
        latency: DelayRange::millis(400, 400),
        ..ControllerSettings::default()
    };
    let mut cluster = Cluster::with(settings, 1);
    cluster.create("Deployment", "web", workload(0));
    cluster.seconds(3.0);
    let set = cluster.names("ReplicaSet").remove(0);
    for replicas in [1, 0] {
        cluster.store.edit("ReplicaSet", &set, |set| {
            set["spec"]["replicas"] = json!(replicas)
        });
        cluster.seconds(0.1);
        assert!(cluster.pods().is_empty());
    }
    cluster.seconds(0.3);
    assert_eq!(cluster.pods().len(), 1, "after the number was lowered");
    cluster.until(|cluster| cluster.pods().is_empty());
    cluster.is_at_rest();
}

#[test]
fn controllers_without_delays_finish_at_once() {
    let mut settings = ControllerSettings::default();
    (settings.reaction, settings.latency) = (DelayRange::ZERO, DelayRange::ZERO);
    settings.pods.scheduling = DelayRange::ZERO;
    let mut cluster = Cluster::with(settings, 1);
    cluster.create("Deployment", "web", workload(2));
    cluster.seconds(0.0);
    let pods = cluster.pods();
    assert!(pods.len() == 2 && pods.iter().all(|pod| !text(pod, "/spec/nodeName").is_empty()));
    cluster.seconds(5.0);
    cluster.is_at_rest();
}
