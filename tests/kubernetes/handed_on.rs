//! Tests that a lock with targets leaves a cluster: by a planned hand-over, or because no pod becomes ready.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, Patch, PatchParams, PostParams};
use redlock::lease::BootInstant;
use serde_json::{Value, json};

use crate::fixture::kubelet::{READY, Recorder, Run, overlaps};
use crate::fixture::{BOUND, Kubelet, Operator, SERVICE_ACCOUNT, seed};
use crate::program::Ran;
use crate::world::{World, condition, lock, message, quorum_of, timed};
use redlock_testkit::{RedisServer, eventually};

const REQUEST: &str = "redlock.dev/hand-over";
const ANSWER: &str = "redlock.dev/hand-over-answer";
const ABSTAIN: &str = "redlock.dev/abstain";
const TARGET: &str = ", lockName: shared/report, targets: [{name: report, action: Scale, stopSeconds: 12, \
                      ref: {apiVersion: apps/v1, kind: Deployment, name: report}}]";
/// A lock that is handed over is stopped long before its lease would end.
const LEASE: &str = "Seconds: 30";
/// A Deployment whose pods use all of their grace period to end.
const WORK: &str = r#"{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "report"}, "spec": {
    "replicas": 0, "selector": {"matchLabels": {"app": "report"}}, "template": {
        "metadata": {"labels": {"app": "report"}, "annotations": {"test.example/ignores-sigterm": "true"}},
        "spec": {"terminationGracePeriodSeconds": 4, "containers": [{"name": "report", "image": "report"}]}}}}"#;

/// A cluster with one replica of the operator.
struct Cluster {
    name: &'static str,
    _kubelet: Kubelet,
    // Dropped last: it returns the control plane to the pool.
    world: World,
}

impl Cluster {
    async fn new(name: &'static str, masters: usize, recorder: &Recorder) -> Self {
        let world = World::new(masters).await;
        let kubelet = Kubelet::start(&world.plane, name, seed(), recorder);
        let cluster = Self {
            name,
            world,
            _kubelet: kubelet,
        };
        cluster.grant().await;
        cluster
    }

    async fn grant(&self) {
        self.world.grant_targets("apps", "deployments").await;
        self.may_switch(true).await;
    }

    /// Waits until the API server applies the rights that the operator has.
    async fn may_switch(&self, wanted: bool) {
        let namespace = self.world.namespace.name();
        let scale = ["patch", "deployments.apps", "--subresource=scale"];
        let question = [&scale[..], &["--namespace", namespace]].concat();
        let plane = &self.world.plane;
        plane
            .until_permitted(wanted, namespace, SERVICE_ACCOUNT, &question)
            .await;
    }

    /// Declares the lock with its operator, and waits until a later cluster knows that the operator is alive.
    async fn declare(&self, urls: &[String], more: &str, ready: bool) -> Operator {
        let shared = format!(
            "  firstStart: Immediate\n  sharedLockNames: [{{prefix: shared/, namespaces: [{}]}}]\n",
            self.world.namespace.name()
        );
        let quorum = quorum_of("default", urls, &shared);
        self.world.apply(&quorum.replace("Seconds: 6", LEASE));
        // The object is created, not applied, so that no manager declares its replicas.
        let mut work: Value = serde_json::from_str(WORK).unwrap();
        work["spec"]["template"]["metadata"]["annotations"][READY] = ready.to_string().into();
        if self.name == "us" {
            // Longer than the wait for a hand-over of `us` that is withdrawn.
            work["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 9.into();
        }
        let work: Deployment = serde_json::from_value(work).unwrap();
        let made = self.deployments().create(&PostParams::default(), &work).await;
        made.unwrap();
        let operator = self.world.operator_of(self.name, self.name).await;
        self.world
            .quorum_status("default", "is reported on", |status| {
                status["reporters"][0].is_object()
            })
            .await;
        let report = lock("report", &format!("{TARGET}{more}"));
        self.world.apply(&report.replace("Seconds: 6", LEASE));
        operator
    }

    async fn is(&self, role: &'static str) -> Value {
        let name = self.name;
        self.world
            .lock_status("report", &format!("is {role} in {name}"), |status| {
                status["role"] == role
            })
            .await
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.world.plane.admin(), self.world.namespace.name())
    }

    async fn replicas(&self) -> i32 {
        let found = self.deployments().get("report").await.unwrap();
        found.spec.unwrap().replicas.unwrap_or(0)
    }

    async fn annotation(&self, name: &str) -> Option<String> {
        let report = self.world.locks().get("report").await.unwrap();
        report.metadata.annotations.unwrap_or_default().remove(name)
    }

    /// Annotates the pods that are created from now on.
    async fn annotate_pods(&self, name: &str, value: &str) {
        let patch = json!({"spec": {"template": {"metadata": {"annotations": {name: value}}}}});
        self.deployments()
            .patch("report", &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }

    fn hand_over(&self, to: &str, more: &[&str]) -> Ran {
        let namespace = self.world.namespace.name();
        let arguments = ["hand-over", "-n", namespace, "report", "--to", to];
        let ran = self.world.redlock(&[&arguments, more].concat());
        println!("{}{}", ran.stdout, ran.stderr);
        ran
    }
}

fn of(recorder: &Recorder, cluster: &str) -> Vec<Run> {
    let mut runs = recorder.runs();
    runs.retain(|run| run.cluster == cluster);
    runs
}

async fn runs(recorder: &Recorder, cluster: &str) -> BootInstant {
    eventually(BOUND, &format!("a pod runs in {cluster}"), async || {
        let runs = of(recorder, cluster);
        let running = runs.iter().find(|run| run.end.is_none());
        running.map(|run| run.start).ok_or(runs)
    })
    .await
}

fn urls(first: &Cluster) -> Vec<String> {
    first.world.masters.iter().map(RedisServer::url).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn workload_is_stopped_before_a_lock_is_handed_over() {
    let recorder = Recorder::default();
    let (eu, us) = tokio::join!(Cluster::new("eu", 3, &recorder), Cluster::new("us", 0, &recorder));
    let urls = urls(&eu);
    let eu_operator = eu.declare(&urls, "", true).await;
    let before = eu.is("Active").await;
    runs(&recorder, "eu").await;
    let mut us_operator = us.declare(&urls, "", true).await;
    us.is("Standby").await;
    eu.world
        .quorum_status("default", "knows both clusters", |status| {
            status["reporters"][1].is_object()
        })
        .await;

    // The lock is handed over there and back, as a user would do it.
    for (from, to) in [(&eu, &us), (&us, &eu), (&eu, &us)] {
        let known = of(&recorder, to.name).len();
        from.hand_over(to.name, &[])
            .expect(0, &[&format!("handed over: {0} of cluster {0}/", to.name)]);
        let status = to.is("Active").await;
        assert!(status["fencingToken"].as_u64() > before["fencingToken"].as_u64());
        let start = eventually(BOUND, "it runs there", async || {
            of(&recorder, to.name).get(known).map(|run| run.start).ok_or(())
        })
        .await;
        let ends = of(&recorder, from.name).into_iter().map(|run| run.end.unwrap());
        let end = ends.max().unwrap();
        println!(
            "{} -> {}: {:.0} ms from the end of the last pod to the start of the first",
            from.name,
            to.name,
            start.since(end).as_secs_f64() * 1e3
        );
        assert_eq!(from.replicas().await, 0);
        assert_eq!(from.annotation(REQUEST).await, None);
        from.is("Standby").await;
    }

    it_runs_on_where_it_was(&eu, &us, &recorder).await;

    // No replica takes the lock: it returns when the reservation has expired.
    us.hand_over("eu", &[]).expect(0, &["handed over"]);
    let held = eu.is("Active").await;
    us_operator.child.kill();
    eu.hand_over("us", &["--wait", "20s"])
        .expect(1, &["released, but no replica was seen to acquire the lock"]);
    let (status, _) = timed("runs again where it was", async || {
        let status = serde_json::to_value(eu.world.locks().get("report").await.unwrap().status).unwrap();
        let again = status["role"] == "Active" && status["fencingToken"] != held["fencingToken"];
        if again { Ok(status) } else { Err(status) }
    })
    .await;
    assert!(status["fencingToken"].as_u64() > held["fencingToken"].as_u64());
    assert!(eu_operator.lock("report").is_object());
    let found = overlaps(&recorder.runs());
    assert!(found.is_empty(), "{found:?}");
}

/// Tests that a workload that cannot be stopped, or must not be stopped, is not handed over.
async fn it_runs_on_where_it_was(eu: &Cluster, us: &Cluster, recorder: &Recorder) {
    // The caller waits for less time than the hand-over takes.
    let running = runs(recorder, "us").await;
    us.hand_over("eu", &["--wait", "5s"])
        .expect(1, &["the request was withdrawn"]);
    eventually(BOUND, "it is started again", async || {
        let replicas = us.replicas().await;
        if replicas == 1 && runs(recorder, "us").await > running {
            Ok(())
        } else {
            Err(replicas)
        }
    })
    .await;
    let held = us.is("Active").await;
    // The operator has no right to stop the workload.
    us.world.plane.install_rbac(us.world.namespace.name()).await;
    us.may_switch(false).await;
    us.hand_over("eu", &[]).expect(
        1,
        &[
            "the holder refused",
            "could not be stopped, and were started again",
            "forbidden",
        ],
    );
    let answer = us.annotation(ANSWER).await.unwrap();
    assert!(answer.contains("Refused"), "{answer}");
    us.grant().await;
    let still = us.is("Active").await;
    assert_eq!(
        still["fencingToken"], held["fencingToken"],
        "the lease is the same"
    );
    assert_eq!(us.replicas().await, 1);
    // The lock is paused.
    us.world.kubectl(&[
        "annotate",
        "leaderlock",
        "report",
        "redlock.dev/paused=night shift",
    ]);
    us.hand_over("eu", &[])
        .expect(1, &["the holder refused", "night shift"]);
    us.world
        .kubectl(&["annotate", "leaderlock", "report", "redlock.dev/paused-"]);
    assert_eq!(us.replicas().await, 1);
    assert_eq!(eu.replicas().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_leaves_a_cluster_in_which_nothing_gets_ready() {
    const UNREADY: &str = ", failoverAfterUnreadySeconds: 2";
    let recorder = Recorder::default();
    let (eu, us) = tokio::join!(Cluster::new("eu", 3, &recorder), Cluster::new("us", 0, &recorder));
    let urls = urls(&eu);
    // Without another cluster, the lock stays, ready or not.
    let _first = eu.declare(&urls, UNREADY, false).await;
    let alone = eu.is("Active").await;
    runs(&recorder, "eu").await;
    let _second = eu.world.operator_of("eu", "eu-2").await;
    crate::world::throughout(Duration::from_secs(4), || ()).await;
    assert_eq!(eu.is("Active").await["fencingToken"], alone["fencingToken"]);
    let _other = us.declare(&urls, UNREADY, true).await;

    // Waits until another cluster is known to be alive.
    timed("the other cluster is known", async || {
        let status = serde_json::to_value(eu.world.quorums().get("default").await.unwrap().status).unwrap();
        if status["reporters"][1].is_object() {
            Ok(())
        } else {
            Err(status)
        }
    })
    .await;
    timed("it runs there", async || {
        let status = serde_json::to_value(us.world.locks().get("report").await.unwrap().status).unwrap();
        if status["role"] == "Active" {
            Ok(())
        } else {
            Err(status)
        }
    })
    .await;
    runs(&recorder, "us").await;
    let note = eu.world.event_message("report", "Unready").await;
    assert!(note.contains("not been ready for 2 s"), "{note}");
    eu.world.event_message("report", "FailedOver").await;
    assert_eq!(eu.replicas().await, 0);
    let abstain = eu.annotation(ABSTAIN).await.unwrap();
    println!("{ABSTAIN}: {abstain}");
    assert!(abstain.contains(r#""seconds":60"#), "{abstain}");
    let status = eu
        .world
        .lock_status("report", "abstains", |status| {
            message(status, "Ready").contains("stands by until")
        })
        .await;
    assert_eq!(condition(&status, "Ready").0, "True");
    let found = overlaps(&recorder.runs());
    assert!(found.is_empty(), "{found:?}");

    // No other cluster is willing, so that the abstention does not keep the lock free.
    eu.annotate_pods(READY, "true").await;
    us.world.kubectl(&[
        "patch",
        "ll",
        "report",
        "--type=merge",
        "--patch",
        r#"{"spec": {"state": "SteppedDown", "reason": "test"}}"#,
    ]);
    timed("it is stopped there", async || {
        if us.replicas().await == 0 { Ok(()) } else { Err(()) }
    })
    .await;
    eu.is("Active").await;
    runs(&recorder, "eu").await;
    assert!(eu.annotation(ABSTAIN).await.is_some());
    let found = overlaps(&recorder.runs());
    assert!(found.is_empty(), "{found:?}");
}
