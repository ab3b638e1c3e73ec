//! Tests the fake kubelet on which other tests rely: pods become ready, take their grace period, and finish.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use redlock::clock;
use serde_json::{Value, json};

use crate::fixture::kubelet::{Overlap, READY, Recorder, Run, overlaps};
use crate::fixture::{BOUND, ControlPlane, Kubelet, Options, seed};
use redlock_testkit::eventually;

struct Place {
    plane: ControlPlane,
    namespace: String,
    recorder: Recorder,
    _kubelet: Kubelet,
}

impl Place {
    async fn new() -> Self {
        let plane = ControlPlane::start(Options::default());
        let namespace = plane.namespace("pods").await.name().to_owned();
        let recorder = Recorder::default();
        let kubelet = Kubelet::start(&plane, "here", seed(), &recorder);
        Self {
            plane,
            namespace,
            recorder,
            _kubelet: kubelet,
        }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.plane.admin(), &self.namespace)
    }

    /// Waits until the run of a pod meets this condition; returns the run.
    async fn run(&self, pod: &str, what: &str, wanted: impl Fn(&Run) -> bool) -> Run {
        eventually(BOUND, &format!("{pod} {what}"), async || {
            let runs = self.recorder.runs();
            let found = runs.iter().find(|run| run.name == pod && wanted(run));
            found.cloned().ok_or(runs)
        })
        .await
    }

    async fn pod_is(&self, pod: &str, what: &str, wanted: impl Fn(&Value) -> bool) {
        let pods = self.pods();
        eventually(BOUND, &format!("{pod} is {what}"), async || {
            let found = serde_json::to_value(pods.get_opt(pod).await.unwrap()).unwrap();
            if wanted(&found) { Ok(()) } else { Err(found) }
        })
        .await;
    }
}

fn template(app: &str, annotations: &Value, grace: u32) -> Value {
    json!({
        "metadata": {"labels": {"app": app}, "annotations": annotations},
        "spec": {"terminationGracePeriodSeconds": grace, "containers": [{"name": app, "image": app}]},
    })
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_start_and_end_as_on_a_kubelet() {
    let place = Place::new().await;
    tokio::join!(
        a_deployment_runs_and_leaves(&place),
        a_stateful_set_runs_in_order(&place),
        a_job_completes_and_a_suspended_one_stops(&place),
        the_grace_period_is_taken_and_can_be_shortened(&place),
        an_unready_pod_runs(&place),
    );
}

async fn a_deployment_runs_and_leaves(place: &Place) {
    let api = Api::<Deployment>::namespaced(place.plane.admin(), &place.namespace);
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template("web", &json!({}), 1),
        },
    });
    let deployment: Deployment = serde_json::from_value(deployment).unwrap();
    api.create(&PostParams::default(), &deployment).await.unwrap();
    let counted = async |what: &str, wanted: i32| {
        eventually(BOUND, &format!("{wanted} {what}"), async || {
            let status = api.get("web").await.unwrap().status.unwrap_or_default();
            let count = if what == "ready" {
                status.ready_replicas
            } else {
                status.replicas
            };
            if count.unwrap_or(0) == wanted {
                Ok(())
            } else {
                Err(status)
            }
        })
        .await;
    };
    counted("ready", 2).await;
    let of_it = || {
        let mut runs = place.recorder.runs();
        runs.retain(|run| run.owner.starts_with("ReplicaSet web"));
        runs
    };
    assert_eq!(of_it().len(), 2);
    let scale = json!({"spec": {"replicas": 0}});
    api.patch("web", &PatchParams::default(), &Patch::Merge(&scale))
        .await
        .unwrap();
    counted("there", 0).await;
    eventually(BOUND, "both have ended", async || {
        let runs = of_it();
        if runs.iter().all(|run| run.end.is_some()) {
            Ok(())
        } else {
            Err(runs)
        }
    })
    .await;
}

async fn a_stateful_set_runs_in_order(place: &Place) {
    let api = Api::<StatefulSet>::namespaced(place.plane.admin(), &place.namespace);
    let set = json!({
        "metadata": {"name": "writer"},
        "spec": {
            "replicas": 2,
            "serviceName": "writer",
            "selector": {"matchLabels": {"app": "writer"}},
            "template": template("writer", &json!({}), 1),
        },
    });
    let set: StatefulSet = serde_json::from_value(set).unwrap();
    api.create(&PostParams::default(), &set).await.unwrap();
    let second = place.run("writer-1", "runs", |_| true).await;
    assert!(second.start > place.run("writer-0", "runs", |_| true).await.start);
    // The pod is created again under the same name.
    let parameters = DeleteParams::default();
    place.pods().delete("writer-0", &parameters).await.unwrap();
    let ended = place.run("writer-0", "ends", |run| run.end.is_some()).await;
    let anew = place
        .run("writer-0", "runs again", |run| run.uid != ended.uid)
        .await;
    assert!(anew.start >= ended.end.unwrap());
}

async fn a_job_completes_and_a_suspended_one_stops(place: &Place) {
    let api = Api::<Job>::namespaced(place.plane.admin(), &place.namespace);
    for (name, seconds) in [("short", "0.2"), ("long", "600")] {
        let mut template = template(name, &json!({"test.example/run-seconds": seconds}), 1);
        template["spec"]["restartPolicy"] = "Never".into();
        let job = json!({"metadata": {"name": name}, "spec": {"template": template}});
        let job: Job = serde_json::from_value(job).unwrap();
        api.create(&PostParams::default(), &job).await.unwrap();
    }
    eventually(BOUND, "the short Job is complete", async || {
        let status = api.get("short").await.unwrap().status.unwrap_or_default();
        if status.succeeded == Some(1) && status.completion_time.is_some() {
            Ok(())
        } else {
            Err(status)
        }
    })
    .await;
    let of_long = |run: &&Run| run.owner == "Job long";
    let runs = || place.recorder.runs();
    eventually(BOUND, "the long one runs", async || {
        runs().iter().find(of_long).map(|_| ()).ok_or(())
    })
    .await;
    let suspend = json!({"spec": {"suspend": true}});
    api.patch("long", &PatchParams::default(), &Patch::Merge(&suspend))
        .await
        .unwrap();
    eventually(BOUND, "the long one has no pod any more", async || {
        let status = api.get("long").await.unwrap().status.unwrap_or_default();
        let ended = runs().iter().find(of_long).is_some_and(|run| run.end.is_some());
        let left = place.pods().list(&Default::default()).await.unwrap();
        let left = left
            .iter()
            .filter(|pod| {
                pod.metadata
                    .name
                    .as_deref()
                    .unwrap_or_default()
                    .starts_with("long")
            })
            .count();
        if status.active.unwrap_or(0) == 0 && ended && left == 0 {
            Ok(())
        } else {
            Err((status, left))
        }
    })
    .await;
}

async fn make(place: &Place, name: &str, annotations: &Value, grace: u32) {
    let mut pod = template(name, annotations, grace);
    pod["metadata"]["name"] = name.into();
    let pod: Pod = serde_json::from_value(pod).unwrap();
    place.pods().create(&PostParams::default(), &pod).await.unwrap();
}

async fn the_grace_period_is_taken_and_can_be_shortened(place: &Place) {
    let stubborn = json!({"test.example/ignores-sigterm": "true"});
    for (name, grace) in [("short-grace", 2), ("long-grace", 600), ("forced", 600)] {
        make(place, name, &stubborn, grace).await;
        place.pod_is(name, "ready", is_ready).await;
    }
    let pods = place.pods();
    let asked = clock::now();
    let parameters = DeleteParams::default();
    for name in ["short-grace", "long-grace"] {
        pods.delete(name, &parameters).await.unwrap();
    }
    let short = place.run("short-grace", "ends", |run| run.end.is_some()).await;
    assert!(
        short.end.unwrap().since(asked) >= Duration::from_secs(2),
        "{short:?}"
    );
    let still = place.run("long-grace", "runs", |run| run.end.is_none()).await;
    // A second deletion may shorten the time that is left.
    let asked = clock::now();
    pods.delete("long-grace", &parameters.clone().grace_period(1))
        .await
        .unwrap();
    let long = place.run("long-grace", "ends", |run| run.end.is_some()).await;
    assert_eq!(long.uid, still.uid);
    assert!(
        long.end.unwrap().since(asked) >= Duration::from_secs(1),
        "{long:?}"
    );
    place.pod_is("long-grace", "gone", Value::is_null).await;
    // A deletion by force: the API server forgets the pod at once, and its process gets one last second.
    let asked = clock::now();
    pods.delete("forced", &parameters.grace_period(0)).await.unwrap();
    place.pod_is("forced", "gone", Value::is_null).await;
    let forced = place.run("forced", "ends", |run| run.end.is_some()).await;
    assert!(
        forced.end.unwrap().since(asked) >= Duration::from_secs(1),
        "{forced:?}"
    );
}

async fn an_unready_pod_runs(place: &Place) {
    make(place, "unready", &json!({"test.example/ready": "false"}), 1).await;
    let runs = |pod: &Value| pod["status"]["phase"] == "Running";
    place
        .pod_is("unready", "running", |pod| runs(pod) && !is_ready(pod))
        .await;
    let ready = json!({"metadata": {"annotations": {READY: null}}});
    let parameters = PatchParams::default();
    place
        .pods()
        .patch("unready", &parameters, &Patch::Merge(&ready))
        .await
        .unwrap();
    place.pod_is("unready", "ready", is_ready).await;
}

#[test]
fn an_overlap_is_one_of_different_clusters() {
    let at = |milliseconds: u64| redlock::lease::BootInstant::from_nanos(milliseconds * 1_000_000);
    let run = |cluster: &str, start, end| Run {
        cluster: cluster.to_owned(),
        namespace: "work".to_owned(),
        name: "report".to_owned(),
        uid: String::new(),
        owner: String::new(),
        start: at(start),
        end: Some(at(end)),
    };
    let lengths = |runs: &[Run]| -> Vec<u128> {
        let found = overlaps(runs).into_iter();
        found.map(|Overlap { length, .. }| length.as_millis()).collect()
    };
    let none = [run("a", 0, 10), run("a", 5, 20), run("b", 20, 30)];
    assert!(lengths(&none).is_empty());
    let some = [run("a", 0, 10), run("b", 8, 30), run("a", 29, 40)];
    assert_eq!(lengths(&some), [2, 1]);
    let running = [
        Run {
            end: None,
            ..run("a", 0, 0)
        },
        run("b", 5, 9),
    ];
    assert_eq!(lengths(&running), [4]);
}
