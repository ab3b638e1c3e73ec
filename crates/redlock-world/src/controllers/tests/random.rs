//! Random sequences of what happens to a cluster end in the declared state, at rest.

use serde_json::json;

use super::{
    super::{
        ClusterObjects, ControllerKind, ControllerSettings, DelayRange, StopBehaviour,
        object::{count, is_deleting, is_pod_ready, is_true, name, text},
    },
    job,
    store::Cluster,
    workload,
};

const NODES: [&str; 2] = ["node-1", "node-2"];

fn settings(random: &mut fastrand::Rng) -> ControllerSettings {
    let mut settings = ControllerSettings {
        reaction: DelayRange::millis(0, random.u64(0..300)),
        latency: DelayRange::millis(0, random.u64(0..700)),
        ..ControllerSettings::default()
    };
    let stops = [
        StopBehaviour::AtOnce,
        StopBehaviour::WholeGrace,
        StopBehaviour::Random,
    ];
    settings.pods.stop = stops[random.usize(0..3)];
    settings
}

fn created(settings: ControllerSettings, seed: u64) -> Cluster {
    let mut cluster = Cluster::with(settings, seed);
    let mut set = workload(2);
    set["spec"]["selector"]["matchLabels"]["app"] = json!("set");
    set["spec"]["template"]["metadata"]["labels"]["app"] = json!("set");
    cluster.create("Deployment", "web", workload(2));
    cluster.create("StatefulSet", "set", set);
    cluster.create("Job", "load", job(false));
    cluster
}

fn step(cluster: &mut Cluster, random: &mut fastrand::Rng) {
    let node = NODES[random.usize(0..2)];
    match random.u8(0..9) {
        0 => {
            let replicas = random.i64(0..4);
            cluster.store.edit("Deployment", "web", |one| {
                one["spec"]["replicas"] = json!(replicas);
                one["metadata"]["annotations"]["step"] = json!(random.u64(..));
            });
        }
        1 => {
            let replicas = random.i64(0..4);
            cluster.store.edit("StatefulSet", "set", |one| {
                one["spec"]["replicas"] = json!(replicas);
                one["metadata"]["annotations"]["step"] = json!(random.u64(..));
            });
        }
        2 => {
            let image = format!("web:{}", random.u64(..));
            cluster.store.edit("Deployment", "web", |one| {
                one["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
            });
        }
        3 => {
            let suspend = random.bool();
            cluster.store.edit("Job", "load", |one| {
                one["spec"]["suspend"] = json!(suspend);
                one["metadata"]["annotations"]["step"] = json!(random.u64(..));
            });
        }
        4 => {
            if let Some(pod) = random.choice(cluster.pods()) {
                let grace = [None, Some(0), Some(5)][random.usize(0..3)];
                cluster
                    .store
                    .delete(("Pod", "n", name(&pod)), grace, None, cluster.now);
            }
        }
        5 => cluster.controllers.lose_node(node, cluster.now),
        6 => cluster.controllers.crash_node(node, cluster.now),
        7 => cluster.controllers.return_node(node),
        _ => {
            let kind = ControllerKind::ALL[random.usize(0..ControllerKind::ALL.len())];
            match random.bool() {
                true => cluster.controllers.stop(kind),
                false => cluster.controllers.start(kind),
            }
        }
    }
}

fn settle(cluster: &mut Cluster) {
    NODES
        .iter()
        .for_each(|node| cluster.controllers.return_node(node));
    ControllerKind::ALL
        .iter()
        .for_each(|kind| cluster.controllers.start(*kind));
    cluster.store.edit("Job", "load", |one| {
        one["spec"]["suspend"] = json!(false);
        one["metadata"]["annotations"]["step"] = json!("end");
    });
    cluster.seconds(400.0);
}

#[test]
fn a_cluster_settles_after_any_sequence() {
    for seed in 0..150 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut cluster = created(settings(&mut random), seed);
        for _ in 0..random.usize(1..25) {
            cluster.seconds(random.f64() * random.f64() * 20.0);
            step(&mut cluster, &mut random);
        }
        settle(&mut cluster);
        for (kind, workload) in [("Deployment", "web"), ("StatefulSet", "set")] {
            let found = cluster.get(kind, workload);
            let wanted = count(&found, "/spec/replicas");
            for field in ["replicas", "readyReplicas", "updatedReplicas"] {
                let counted = count(&found, &format!("/status/{field}"));
                assert_eq!(counted, wanted, "seed {seed}: {field} of {kind}");
            }
            let observed = count(&found, "/status/observedGeneration");
            assert_eq!(
                observed,
                count(&found, "/metadata/generation"),
                "seed {seed}: {kind}"
            );
            let pods = cluster.pods();
            let own = pods
                .iter()
                .filter(|pod| name(pod).starts_with(&format!("{workload}-")));
            let own: Vec<_> = own.collect();
            assert_eq!(
                i64::try_from(own.len()).unwrap(),
                wanted,
                "seed {seed}: pods of {kind}: {own:#?}"
            );
            assert!(
                own.iter().all(|pod| is_pod_ready(pod) && !is_deleting(pod)),
                "seed {seed}"
            );
        }
        let job = cluster.get("Job", "load");
        assert!(
            is_true(&job, "Complete") || is_true(&job, "Failed"),
            "seed {seed}: {}",
            job["status"]
        );
        let runs = |pod: &&std::sync::Arc<serde_json::Value>| text(pod, "/status/phase") == "Running";
        let reported = cluster.pods().iter().filter(runs).count();
        let running = cluster.controllers.running_pods(cluster.now).count();
        assert_eq!(running, reported, "seed {seed}: processes");
        assert!(cluster.store.list("ReplicaSet").len() <= 11, "seed {seed}");
        cluster.is_at_rest();
    }
}
