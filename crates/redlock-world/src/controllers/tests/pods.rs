use std::time::Duration;

use serde_json::json;

use super::{
    super::{
        ControllerKind, ControllerSettings, DelayRange, StopBehaviour,
        object::{FieldPath, condition, is_deleting, is_pod_ready, name, text},
    },
    store::Cluster,
    workload,
};

fn one_pod(stop: StopBehaviour) -> (Cluster, String) {
    let mut settings = ControllerSettings::default();
    settings.pods.stop = stop;
    let mut cluster = Cluster::with(settings, 3);
    cluster.create("StatefulSet", "web", workload(1));
    cluster.until(|cluster| cluster.pods().iter().any(|pod| is_pod_ready(pod)));
    (cluster, "web-0".to_owned())
}

#[test]
fn a_pod_becomes_ready_step_by_step() {
    let mut cluster = Cluster::new();
    cluster.create("StatefulSet", "web", workload(1));
    cluster.until(|cluster| !cluster.pods().is_empty());
    assert_eq!(text(&cluster.pods()[0], "/spec/nodeName"), "");
    cluster.until(|cluster| !text(&cluster.pods()[0], "/spec/nodeName").is_empty());
    cluster.seconds(0.01);
    assert_eq!(text(&cluster.pods()[0], "/status/phase"), "Pending");
    assert_eq!(cluster.controllers.running_pods(cluster.now).count(), 0);
    cluster.until(|cluster| text(&cluster.pods()[0], "/status/phase") == "Running");
    assert!(!is_pod_ready(&cluster.pods()[0]));
    assert_eq!(cluster.controllers.running_pods(cluster.now).count(), 1);
    cluster.until(|cluster| is_pod_ready(&cluster.pods()[0]));
    let pod = cluster.pods().remove(0);
    assert!(text(&pod, "/status/podIP").starts_with("10."));
    assert_eq!(pod.at("/status/containerStatuses/0/ready"), Some(&json!(true)));
    cluster.is_at_rest();
}

#[test]
fn a_pod_that_ignores_sigterm_takes_its_whole_grace() {
    let (mut cluster, pod) = one_pod(StopBehaviour::WholeGrace);
    cluster.controllers.stop(ControllerKind::StatefulSet);
    cluster.delete("Pod", &pod, None);
    cluster.seconds(29.9);
    assert_eq!(cluster.controllers.running_pods(cluster.now).count(), 1);
    assert!(is_pod_ready(&cluster.get("Pod", &pod)));
    cluster.until(|cluster| cluster.controllers.running_pods(cluster.now).count() == 0);
    let ended = cluster.get("Pod", &pod);
    assert_eq!(text(&ended, "/status/phase"), "Failed");
    let ready = condition(ended.get("status"), "ContainersReady").unwrap();
    assert_eq!(
        (&ready["status"], &ready["reason"]),
        (&json!("False"), &json!("PodFailed"))
    );
    assert_eq!(
        ended.at("/status/containerStatuses/0/state/terminated/exitCode"),
        Some(&json!(137))
    );
    cluster.seconds(1.0);
    assert!(cluster.pods().is_empty());
}

#[test]
fn a_shorter_grace_ends_a_pod_earlier() {
    let (mut cluster, pod) = one_pod(StopBehaviour::WholeGrace);
    cluster.delete("Pod", &pod, None);
    cluster.seconds(5.0);
    assert!(
        cluster
            .store
            .delete(("Pod", "n", &pod), Some(2), None, cluster.now)
    );
    cluster.seconds(1.9);
    assert_eq!(cluster.controllers.running_pods(cluster.now).count(), 1);
    cluster.seconds(0.2);
    assert_eq!(cluster.controllers.running_pods(cluster.now).count(), 0);
}

#[test]
fn a_pod_stops_in_its_own_time() {
    for (stop, seconds) in [(StopBehaviour::AtOnce, 0.7), (StopBehaviour::Random, 30.5)] {
        let (mut cluster, pod) = one_pod(stop);
        cluster.delete("Pod", &pod, None);
        let is_gone = |cluster: &Cluster| cluster.pods().iter().all(|pod| !is_deleting(pod));
        assert!(cluster.until(is_gone) < Duration::from_secs_f64(seconds));
    }
}

#[test]
fn the_process_of_a_pod_that_was_removed_by_force_runs_on_for_its_grace() {
    let (mut cluster, pod) = one_pod(StopBehaviour::WholeGrace);
    cluster.controllers.stop(ControllerKind::StatefulSet);
    assert!(
        cluster
            .store
            .delete(("Pod", "n", &pod), Some(0), None, cluster.now)
    );
    assert!(cluster.pods().is_empty());
    cluster.seconds(20.0);
    assert_eq!(
        cluster.controllers.running_pods(cluster.now).next().unwrap().name,
        pod
    );
    cluster.seconds(11.0);
    assert_eq!(cluster.controllers.running_pods(cluster.now).count(), 0);
}

#[test]
fn a_pod_that_is_deleted_before_its_start_never_runs() {
    let mut settings = ControllerSettings::default();
    settings.pods.startup = DelayRange::millis(5_000, 5_000);
    let mut cluster = Cluster::with(settings, 1);
    cluster.create("Deployment", "web", workload(1));
    cluster.until(|cluster| {
        cluster
            .pods()
            .iter()
            .any(|pod| !text(pod, "/spec/nodeName").is_empty())
    });
    cluster.seconds(0.1);
    cluster.store.edit("Deployment", "web", |object| {
        object["spec"]["replicas"] = json!(0)
    });
    cluster.until(|cluster| cluster.pods().is_empty());
    cluster.seconds(10.0);
    assert_eq!(cluster.controllers.running_pods(cluster.now).count(), 0);
}

#[test]
fn refused_writes_are_repeated_until_they_are_accepted() {
    let mut cluster = Cluster::new();
    cluster.create("Deployment", "web", workload(1));
    cluster.refuses = true;
    cluster.seconds(10.0);
    assert!(cluster.names("ReplicaSet").is_empty());
    assert!(
        cluster.refused <= 30,
        "{} attempts in 10 seconds",
        cluster.refused
    );
    cluster.refuses = false;
    cluster.until(|cluster| cluster.pods().iter().any(|pod| is_pod_ready(pod)));
    cluster.is_at_rest();
}

#[test]
fn equal_seeds_give_equal_clusters() {
    let names = |seed| {
        let mut cluster = Cluster::with(ControllerSettings::default(), seed);
        cluster.create("Deployment", "web", workload(3));
        cluster.seconds(20.0);
        let pods = cluster.pods();
        pods.iter()
            .map(|pod| format!("{} {}", name(pod), pod["status"]))
            .collect::<Vec<_>>()
    };
    assert_eq!(names(5), names(5));
    assert_ne!(names(5), names(6));
}
