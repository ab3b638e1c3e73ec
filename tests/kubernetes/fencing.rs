//! Tests the operator's side of node fencing: the starts, the registers on the masters, and the end of a lease.
//!
//! No agent runs here. The permit by which it would run the pods is read from the masters as the agent does.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams};
use redis::Commands;
use serde_json::{Value, json};

use crate::fixture::kubelet::{IGNORES_SIGTERM, Recorder};
use crate::fixture::{BOUND, Kubelet, Operator, seed};
use crate::targets::{ready_pod, replica};
use crate::world::{World, condition, lock, message, timed};
use redlock_testkit::eventually;

/// Longer than the lease: a reservation for the holder's own cluster is 5 s longer than the lease.
const LONGEST: &str = "maxLeaseDurationSeconds: 20";

struct Fenced {
    world: World,
    _kubelet: Kubelet,
}

fn deployment(mounted: bool, grace: u32, annotations: &Value) -> Value {
    let mut spec = json!({
        "terminationGracePeriodSeconds": grace,
        "containers": [{"name": "web", "image": "web"}],
    });
    if mounted {
        fence(&mut spec);
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}, "annotations": annotations}, "spec": spec},
        },
    })
}

/// Adds the lines of the message of `NotFenced`.
fn fence(spec: &mut Value) {
    spec["volumes"] = json!([{"name": "redlock", "csi": {
        "driver": "fencing.redlock.dev", "readOnly": true, "volumeAttributes": {"lock": "report"},
    }}]);
    spec["containers"][0]["volumeMounts"] =
        json!([{"name": "redlock", "mountPath": "/run/redlock", "readOnly": true}]);
}

fn fenced_lock() -> String {
    let lock = lock(
        "report",
        ", fencing: Node, targets: [{name: web, action: Scale, stopSeconds: 12, \
         ref: {apiVersion: apps/v1, kind: Deployment, name: web}}]",
    );
    // A busy machine pauses for some seconds, and each token of these tests is that of one lease.
    lock.replace("leaseDurationSeconds: 6", "leaseDurationSeconds: 15")
}

impl Fenced {
    async fn new(deployment: &Value) -> Self {
        let world = World::new(3).await;
        world.grant_targets("apps", "deployments").await;
        let kubelet = Kubelet::start(&world.plane, "here", seed(), &Recorder::default());
        let quorum = world.quorum("default", "  firstStart: Immediate\n");
        world.apply(&quorum.replace("maxLeaseDurationSeconds: 6", LONGEST));
        world.apply(&deployment.to_string());
        Self {
            world,
            _kubelet: kubelet,
        }
    }

    fn lock_name(&self) -> String {
        format!("{}/report", self.world.namespace.name())
    }

    fn masters(&self) -> impl Iterator<Item = redis::Connection> {
        let urls: Vec<String> = self.world.masters.iter().map(|master| master.url()).collect();
        urls.into_iter().map(|url| {
            let client = redis::Client::open(url).unwrap();
            client.get_connection().unwrap()
        })
    }

    /// Returns a register of the lock on the first master.
    fn register(&self, prefix: &str, suffix: &str) -> Option<String> {
        let field = format!("{prefix}:{}{suffix}", self.lock_name());
        self.masters()
            .next()
            .unwrap()
            .hget("redlock:meta", field)
            .unwrap()
    }

    async fn until_register(&self, prefix: &str, wanted: &str) {
        eventually(BOUND, &format!("{prefix} is {wanted}"), async || {
            match self.register(prefix, "") {
                Some(found) if found == wanted => Ok(()),
                other => Err(other),
            }
        })
        .await;
    }

    /// Returns the milliseconds until the lease ends on the first master; negative without a lease.
    fn lease_left(&self) -> i64 {
        let key = format!("redlock:lease:{}", self.lock_name());
        self.masters().next().unwrap().pttl(key).unwrap()
    }

    /// Returns the permit of the pods in milliseconds, as an agent observes it: the second smallest end of
    /// the marked lease, or of the reservation for the cluster of the mark.
    fn permit(&self) -> i64 {
        let name = self.lock_name();
        let (lease, reserved) = (
            format!("redlock:lease:{name}"),
            format!("redlock:reserved:{name}"),
        );
        let read =
            |mut master: redis::Connection| -> (Option<String>, i64, Option<String>, i64, Option<String>) {
                redis::pipe()
                    .atomic()
                    .get(&lease)
                    .pttl(&lease)
                    .get(&reserved)
                    .pttl(&reserved)
                    .hget("redlock:meta", format!("slot:{name}/!mark"))
                    .query(&mut master)
                    .unwrap()
            };
        let seen: Vec<_> = self.masters().map(read).collect();
        let token = |mark: &str| mark.split('|').next().unwrap().parse::<u64>().unwrap();
        let marks = seen.iter().filter_map(|(.., mark)| mark.clone());
        let Some(mark) = marks.max_by_key(|mark| token(mark)) else {
            return 0;
        };
        let mut body = mark.split(',').skip(1);
        let (uid, nonce) = (body.next().unwrap().to_owned(), body.next().unwrap().to_owned());
        let mut ends: Vec<i64> = seen
            .iter()
            .map(|(lease, lease_left, reserved, reserved_left, _)| {
                let marked = lease.as_ref().is_some_and(|lease| lease.contains(&nonce));
                let own = reserved.as_ref().is_some_and(|cluster| cluster.ends_with(&uid));
                let lease_left = if marked { *lease_left } else { 0 };
                lease_left.max(if own { *reserved_left } else { 0 })
            })
            .collect();
        ends.sort_unstable();
        ends[1]
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.world.plane.admin(), self.world.namespace.name())
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.world.plane.admin(), self.world.namespace.name())
    }

    /// Waits until the pod of the target runs; returns its name.
    async fn running_pod(&self) -> String {
        let pods = self.pods();
        eventually(BOUND, "a pod of the target runs", async || {
            let found = pods.list(&ListParams::default().labels("app=web")).await.unwrap();
            let mut running = found.into_iter().filter(|pod| {
                let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
            });
            running.next().and_then(|pod| pod.metadata.name).ok_or("none")
        })
        .await
    }

    /// Waits until the targets run; returns the token.
    async fn active(&self) -> u64 {
        let status = self
            .world
            .lock_status("report", "is active", |status| {
                status["role"] == "Active" && condition(status, "Enforced").0 == "True"
            })
            .await;
        status["fencingToken"].as_u64().unwrap()
    }
}

async fn operator(fenced: &Fenced, name: &str) -> Operator {
    let operator = replica(&fenced.world, name).await;
    ready_pod(&fenced.world, &operator);
    operator
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_is_started_once_its_pods_are_fenced() {
    let fenced = Fenced::new(&deployment(false, 1, &json!({}))).await;
    let world = &fenced.world;
    world.kubectl(&["scale", "deployment/web", "--replicas=0"]);
    // A pod that is not fenced needs the ordinary delay for the whole lease.
    eventually(BOUND, "no pod is left", async || {
        let pods = fenced.pods().list(&ListParams::default()).await.unwrap().items;
        if pods.is_empty() { Ok(()) } else { Err(pods) }
    })
    .await;
    world.apply(&fenced_lock());
    let _operator = operator(&fenced, "replica-1").await;
    let status = world
        .lock_status("report", "is not fenced", |status| {
            condition(status, "Enforced") == ("False", "NotFenced")
        })
        .await;
    let text = message(&status, "Enforced");
    for part in [
        "Deployment",
        "volumes: [{name: redlock, csi: {driver: fencing.redlock.dev, readOnly: true, volumeAttributes: {lock: report}}}]",
        "volumeMounts: [{name: redlock, mountPath: /run/redlock, readOnly: true}]",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let timings = &status["timings"];
    assert_eq!(
        (
            &timings["leaseDurationMilliseconds"],
            &timings["stopMilliseconds"]
        ),
        (&json!(15_000), &json!(0)),
        "{timings}"
    );
    let replicas = async || {
        fenced
            .deployments()
            .get("web")
            .await
            .unwrap()
            .spec
            .unwrap()
            .replicas
    };
    assert_eq!(replicas().await, Some(0), "not started");

    // Adds the lines of the message.
    world.apply(&deployment(true, 1, &json!({})).to_string());
    let token = fenced.active().await;
    // A majority of the masters suffices, and the first one may not belong to it yet.
    fenced.until_register("delay", &format!("{token}|1000")).await;
    let mark = eventually(BOUND, "a mark", async || {
        fenced.register("slot", "/!mark").ok_or(())
    })
    .await;
    assert!(mark.starts_with(&format!("{token}|{token},")), "{mark}");
    assert!(fenced.permit() > 0, "an agent would run its pods");

    nodes_are_guarded_by_ready_agents(&fenced).await;

    // A pod that is not fenced needs the ordinary delay.
    let mut pod = deployment(false, 1, &json!({}))["spec"]["template"].clone();
    pod["metadata"]["name"] = json!("bare");
    (pod["apiVersion"], pod["kind"]) = (json!("v1"), json!("Pod"));
    world.apply(&pod.to_string());
    fenced.until_register("delay", &format!("{token}|17000")).await;
}

async fn nodes_are_guarded_by_ready_agents(fenced: &Fenced) {
    let world = &fenced.world;
    let guarded = async |what: &str, wanted: &str| {
        world
            .lock_status("report", what, |status| {
                condition(status, "NodesGuarded").0 == wanted
            })
            .await
    };
    let status = guarded("has no agents", "False").await;
    let text = message(&status, "NodesGuarded");
    assert_eq!(
        text, "node fake-node has no ready pod of node-agent and node-guardian",
        "{text}"
    );
    for part in ["node-agent", "node-guardian"] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": part, "labels": {
                "app.kubernetes.io/name": "redlock-operator", "app.kubernetes.io/component": part,
            }},
            "spec": {"nodeName": "fake-node", "containers": [{"name": "agent", "image": "redlock"}]},
        });
        world.apply(&pod.to_string());
    }
    guarded("has agents", "True").await;
    world.kubectl(&["delete", "pod", "node-guardian", "--wait=false"]);
    let status = guarded("has lost its guardian", "False").await;
    assert!(message(&status, "NodesGuarded").ends_with("of node-guardian"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_stop_takes_as_long_as_the_pods_need_and_is_confirmed() {
    // The grace period is longer than the lease.
    let stubborn = json!({IGNORES_SIGTERM: "true"});
    let fenced = Fenced::new(&deployment(true, 17, &stubborn)).await;
    let world = &fenced.world;
    world.apply(&fenced_lock());
    let operator = operator(&fenced, "replica-1").await;
    let token = fenced.active().await;
    let pod = fenced.running_pod().await;
    let asked = Instant::now();
    world.kubectl(&["delete", "ll", "report", "--wait=false"]);
    timed("the pod is gone", async || {
        // Without the pauses of `timed`: a release before the end of the pod may precede it by little.
        for _ in 0..50 {
            // Read before the pod: the lease may end as soon as the pod has ended.
            let left = fenced.lease_left();
            // The processes of a pod of these phases have ended, and its object is deleted later.
            let has_ended = fenced.pods().get_opt(&pod).await.unwrap().is_none_or(|pod| {
                let phase = pod.status.and_then(|status| status.phase);
                matches!(phase.as_deref(), Some("Failed" | "Succeeded"))
            });
            if has_ended {
                return Ok(());
            }
            assert!(left > 0, "given up while {pod} runs: {}", operator.lock("report"));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err(operator.lock("report"))
    })
    .await;
    let took = asked.elapsed();
    assert!(
        took > Duration::from_secs(15),
        "the lease of 15 s was renewed: {took:?}"
    );
    fenced.until_register("closed", &token.to_string()).await;
    fenced.until_register("clean", &token.to_string()).await;
    world.kubectl(&["wait", "--for=delete", "ll/report", "--timeout=60s"]);
    let (_, _) = timed("the lease and the reservation are released", async || {
        match (fenced.lease_left(), fenced.permit()) {
            (left, permit) if left < 0 && permit <= 0 => Ok(()),
            other => Err(other),
        }
    })
    .await;
    println!("deleted, confirmed and released after {:?}", asked.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_was_deleted_by_force_keeps_the_lease_until_it_runs_out() {
    let fenced = Fenced::new(&deployment(true, 1, &json!({}))).await;
    let world = &fenced.world;
    world.apply(&fenced_lock());
    let _operator = operator(&fenced, "replica-1").await;
    let token = fenced.active().await;
    let pod = fenced.running_pod().await;
    fenced
        .pods()
        .delete(&pod, &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    let down = r#"{"spec": {"state": "SteppedDown", "reason": "test"}}"#;
    world.kubectl(&["patch", "leaderlock", "report", "--type=merge", "--patch", down]);
    let note = world.event_message("report", "EndNotConfirmed").await;
    assert!(note.contains(&pod), "{note}");
    // The time before the question: a late answer only makes `ran` longer.
    let asked = Instant::now();
    let left = fenced.lease_left();
    assert!(left > 0, "released early");
    timed("the lease has run out", async || match fenced.lease_left() {
        left if left < 0 => Ok(()),
        left => Err(left),
    })
    .await;
    let ran = i64::try_from(asked.elapsed().as_millis()).unwrap();
    assert!(ran + 200 >= left, "gone after {ran} ms of {left} ms");
    assert_ne!(fenced.register("clean", ""), Some(token.to_string()));
    assert_eq!(fenced.register("closed", ""), None, "it was known before that");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sibling_of_a_killed_holder_adopts_without_a_freeze() {
    let fenced = Fenced::new(&deployment(true, 1, &json!({}))).await;
    fenced.world.apply(&fenced_lock());
    let mut first = operator(&fenced, "replica-1").await;
    let token = fenced.active().await;
    let pod = fenced.running_pod().await;
    let second = operator(&fenced, "replica-2").await;
    second.wait_ready();
    second.until_holder("report", "replica-1").await;
    // The first renewal after the mark keeps the lock for the cluster.
    timed("the lock is kept for the cluster", async || {
        match fenced.permit() {
            permit if permit > 16_000 => Ok(()),
            permit => Err(permit),
        }
    })
    .await;
    let generation = async || fenced.deployments().get("web").await.unwrap().metadata.generation;
    let before = generation().await;
    first.child.kill();
    let killed = Instant::now();
    // No process renews the lease any more. The reservation ends 5 s later.
    let left = u64::try_from(fenced.lease_left()).unwrap_or_default();
    let lease_end = killed + Duration::from_millis(left);
    let mut least = i64::MAX;
    let (_, took) = timed("the sibling has marked its lease", async || {
        least = least.min(fenced.permit());
        let mark = fenced.register("slot", "/!mark").unwrap();
        let marked: u64 = mark.split('|').next().unwrap().parse().unwrap();
        if marked > token { Ok(()) } else { Err(mark) }
    })
    .await;
    let late = i64::try_from(lease_end.elapsed().as_millis()).unwrap();
    println!("marked {took:?} after the kill, {late} ms after the end of the lease; least permit {least} ms");
    assert!(
        killed.elapsed() > Duration::from_secs(5),
        "the lease ran out first"
    );
    // The permit of a sibling that is late on a busy machine is less by that time.
    assert!(
        least > 0 && least + late > 4_000,
        "pods would have been frozen: {least} ms"
    );
    let mark = fenced.register("slot", "/!mark").unwrap();
    assert!(
        mark.contains(&format!("|{token},")),
        "the lineage continues: {mark}"
    );
    let status = fenced
        .world
        .lock_status("report", "is adopted", |status| {
            status["role"] == "Active" && status["holderIdentity"] == "replica-2"
        })
        .await;
    let later = status["fencingToken"].as_u64().unwrap();
    fenced.until_register("delay", &format!("{later}|1000")).await;
    assert_eq!(generation().await, before, "the target was not written to");
    assert_eq!(fenced.running_pod().await, pod);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_an_earlier_task_marked_is_continued_by_the_next_one() {
    let fenced = Fenced::new(&deployment(true, 1, &json!({}))).await;
    let world = &fenced.world;
    world.apply(&fenced_lock());
    let _operator = operator(&fenced, "replica-1").await;
    let token = fenced.active().await;
    fenced.running_pod().await;
    // The lease outlives the task of its targets.
    let targets = |targets: &Value| {
        let spec = json!({"spec": {"targets": targets}}).to_string();
        world.kubectl(&["patch", "leaderlock", "report", "--type=merge", "--patch", &spec]);
    };
    let declared = serde_json::to_value(world.locks().get("report").await.unwrap().spec).unwrap();
    targets(&json!([]));
    timed("no target is left", async || {
        let finalizers = world.locks().get("report").await.unwrap().metadata.finalizers;
        match finalizers.unwrap_or_default() {
            left if left.is_empty() => Ok(()),
            left => Err(left),
        }
    })
    .await;
    assert!(fenced.lease_left() > 0, "the lease is still held");
    // Simulates an earlier task that wrote the register, and whose stop was then refused.
    for mut master in fenced.masters() {
        let field = format!("closed:{}", fenced.lock_name());
        let _: () = master.hset("redlock:meta", field, token.to_string()).unwrap();
    }
    targets(&declared["targets"]);
    timed("a later lease of the lineage is marked", async || {
        let mark = fenced.register("slot", "/!mark").unwrap();
        let marked: u64 = mark.split('|').next().unwrap().parse().unwrap();
        if marked > token && mark.contains(&format!("|{token},")) {
            Ok(())
        } else {
            Err(mark)
        }
    })
    .await;
    let status = world
        .lock_status("report", "is active under a later lease", |status| {
            status["role"] == "Active"
                && condition(status, "Enforced").0 == "True"
                && status["fencingToken"].as_u64() > Some(token)
        })
        .await;
    let later = status["fencingToken"].as_u64().unwrap();
    fenced.running_pod().await;
    assert!(fenced.permit() > 0);
    fenced.until_register("delay", &format!("{later}|1000")).await;
    // A template without the volume needs the ordinary delay, even before a pod is created from it.
    let mut unfenced = deployment(false, 1, &json!({}));
    unfenced["spec"]["paused"] = json!(true);
    world.apply(&unfenced.to_string());
    fenced.until_register("delay", &format!("{later}|17000")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fencing_that_is_turned_on_under_a_lease_begins_with_a_new_one() {
    let fenced = Fenced::new(&deployment(true, 1, &json!({}))).await;
    let world = &fenced.world;
    let paused = ["annotate", "leaderlock", "report", "redlock.dev/paused=true"];
    let unfenced = fenced_lock().replace("fencing: Node, ", "");
    // The targets are paused, so the lease is left to run out.
    let short = unfenced.replace("leaseDurationSeconds: 15", "leaseDurationSeconds: 6");
    world.apply(&short.replace("stopSeconds: 12", "stopSeconds: 1"));
    world.kubectl(&paused);
    let _operator = operator(&fenced, "replica-1").await;
    let held = world
        .lock_status("report", "is held and not marked", |status| {
            status["role"] == "Active"
        })
        .await;
    let token = held["fencingToken"].as_u64().unwrap();
    assert_eq!(fenced.register("slot", "/!mark"), None);
    let node = r#"{"spec": {"fencing": "Node"}}"#;
    world.kubectl(&["patch", "leaderlock", "report", "--type=merge", "--patch", node]);
    timed("a later lease is marked", async || {
        let mark = fenced
            .register("slot", "/!mark")
            .ok_or_else(|| "no mark".to_owned())?;
        let marked: u64 = mark.split('|').next().unwrap().parse().unwrap();
        if marked > token && mark.contains(&format!("|{marked},")) {
            Ok(())
        } else {
            Err(mark)
        }
    })
    .await;
    assert!(fenced.permit() > 0);
}

/// Only the nodes may stop the pods: another replica may win the lock for this cluster again.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_starts_without_masters_leaves_fenced_pods_running() {
    let fenced = Fenced::new(&deployment(true, 1, &json!({}))).await;
    fenced.world.apply(&fenced_lock());
    let mut first = operator(&fenced, "replica-1").await;
    fenced.active().await;
    let pod = fenced.running_pod().await;
    let generation = async || fenced.deployments().get("web").await.unwrap().metadata.generation;
    let before = generation().await;
    let masters = &fenced.world.masters;
    masters.iter().for_each(|master| master.pause().unwrap());
    first.child.kill();
    let mut second = replica(&fenced.world, "replica-2").await;
    second.child.wait_for_line(BOUND, "lock added");
    // Longer than a replica waits for the answers of siblings and of the API server.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(8) {
        assert_eq!(generation().await, before, "the target was written to");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    masters.iter().for_each(|master| master.resume().unwrap());
    second.until_role("report", "Active").await;
    fenced.active().await;
    assert_eq!(fenced.running_pod().await, pod);
}
