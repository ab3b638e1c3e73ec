//! Tests a replica that reaches the API server but not the masters, next to a sibling that reaches both.

use std::time::Duration;

use kube::api::Api;
use nix::sys::signal::Signal;
use redlock::{clock, lease::BootInstant};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::fixture::kubelet::{Recorder, Run};
use crate::fixture::{BOUND, Kubelet, Operator, seed};
use crate::pauses::Answers;
use crate::targets::{ready_pod, replica};
use crate::world::{World, condition, lasting, lock, quorum_of, throughout, timed};
use redlock_testkit::{Mode, Proxy, RedisServer, ServerOptions, eventually};

const RIGHTS: [&str; 6] = [
    "targetKinds[0].group=apps",
    "targetKinds[0].resource=deployments",
    "targetKinds[1].group=batch",
    "targetKinds[1].resource=jobs",
    "targetKinds[2].group=",
    "targetKinds[2].resource=pods",
];
/// One lock of each action that is undone on a standby.
const LOCKS: [(&str, &str); 3] = [
    (
        "scaled",
        "action: Scale, stopSeconds: 1, ref: {apiVersion: apps/v1, kind: Deployment, name: scaled}",
    ),
    (
        "suspended",
        "action: Suspend, stopSeconds: 1, ref: {apiVersion: batch/v1, kind: Job, name: suspended}",
    ),
    (
        "labelled",
        "action: LabelPods, labelPods: {selector: {matchLabels: {app: labelled}}}",
    ),
];
/// A lease of 12 s, the longest takeover delay of 6 s, and 8 s for the waits of a replica for answers.
const LONG: Duration = Duration::from_secs(26);

/// Two replicas behind one proxy for each master, and three pods that run under a lock each.
struct Scene {
    proxies: Vec<Proxy>,
    recorder: Recorder,
    /// The time from which no pod may end: a target may be stopped before its lock is first acquired.
    since: BootInstant,
    holder: Operator,
    standby: Operator,
    _kubelet: Kubelet,
    // Dropped last: it returns the control plane to the pool.
    world: World,
}

fn deployment(name: &str, replicas: u32) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\n\
         spec: {{replicas: {replicas}, selector: {{matchLabels: {{app: {name}}}}}, template: {{\
         metadata: {{labels: {{app: {name}}}}}, spec: {{terminationGracePeriodSeconds: 1, \
         containers: [{{name: work, image: work}}]}}}}}}\n"
    )
}

const JOB: &str = "\
apiVersion: batch/v1
kind: Job
metadata: {name: suspended}
spec:
  template:
    metadata: {labels: {app: suspended}}
    spec: {restartPolicy: Never, terminationGracePeriodSeconds: 1, containers: [{name: work, image: work}]}
";

impl Scene {
    async fn new() -> Self {
        let masters: Vec<RedisServer> = (0..3)
            .map(|_| RedisServer::start(&ServerOptions::default()).unwrap())
            .collect();
        let mut proxies = Vec::new();
        for master in &masters {
            proxies.push(Proxy::to_port(master.port()).await);
        }
        let world = World::of(masters, World::options()).await;
        let recorder = Recorder::default();
        let kubelet = Kubelet::start(&world.plane, "here", seed(), &recorder);
        world
            .plane
            .install_rbac_with(world.namespace.name(), &RIGHTS)
            .await;
        let urls: Vec<String> = proxies.iter().map(Proxy::url).collect();
        world.apply(&lasting(&quorum_of(
            "default",
            &urls,
            "  firstStart: Immediate\n",
        )));
        let holder = replica(&world, "replica-1").await;
        // The manifests declare no number: a declared one would be the field of another manager.
        for manifest in [deployment("scaled", 1), JOB.to_owned(), deployment("labelled", 1)] {
            world.apply(&manifest.replace("replicas: 1, ", ""));
        }
        for (name, target) in LOCKS {
            world.apply(&lasting(&lock(
                name,
                &format!(", targets: [{{name: it, {target}}}]"),
            )));
        }
        for (name, _) in LOCKS {
            world
                .lock_status(name, "is active", |status| {
                    status["role"] == "Active" && condition(status, "Enforced").0 == "True"
                })
                .await;
        }
        let standby = replica(&world, "replica-2").await;
        let mut scene = Self {
            since: clock::now(),
            world,
            proxies,
            recorder,
            holder,
            standby,
            _kubelet: kubelet,
        };
        for operator in [&scene.holder, &scene.standby] {
            ready_pod(&scene.world, operator);
        }
        for (name, _) in LOCKS {
            scene.standby.until_holder(name, "replica-1").await;
        }
        scene.until_all_run().await;
        scene.since = clock::now();
        scene
    }

    /// Waits also until the audit log has the write of the label: a later one must be an unwanted write.
    async fn until_all_run(&self) {
        eventually(BOUND, "all pods run, one with the label", async || {
            let (running, labelled, writes) = (self.running(), self.labelled().await, self.writes());
            let logged = writes.iter().any(|write| write.contains(" pods/labelled"));
            if running.len() == 3 && labelled == 1 && logged {
                Ok(())
            } else {
                Err((running, labelled, writes))
            }
        })
        .await;
    }

    fn running(&self) -> Vec<Run> {
        self.recorder.running("here", self.world.namespace.name())
    }

    /// Drops all bytes between this process and the masters.
    fn cut(&self, process: u32) {
        for proxy in &self.proxies {
            proxy.set_for(process, Mode::BlackHole);
        }
    }

    async fn until_blind(&self, operator: &Operator) {
        for (name, _) in LOCKS {
            operator.until_role(name, "Unknown").await;
        }
    }

    /// Returns the writes of the operator to the targets of the locks.
    fn writes(&self) -> Vec<String> {
        let all = self.world.requests().into_iter();
        all.filter(|event| ["create", "update", "patch", "delete"].contains(&event.verb.as_str()))
            .filter_map(|event| {
                let object = event.object_ref?;
                let switched = ["deployments", "jobs", "pods"].contains(&object.resource.as_str());
                switched.then(|| format!("{} {}/{}", event.verb, object.resource, object.name))
            })
            .collect()
    }

    /// Returns the finalizers of the locks, which keep them until their workloads are stopped.
    fn finalizers(&self) -> String {
        let path = "jsonpath={.items[*].metadata.finalizers}";
        self.world.kubectl(&["get", "leaderlocks", "-o", path])
    }

    /// Starts replica-2 anew, which stops the targets if it gets no answer within 1.5 s. If a pause of a replica can be
    /// the cause of a stop, repeats the restart. Returns the writes before the last restart.
    async fn restart_standby(&mut self, mut before: Vec<String>) -> Vec<String> {
        for attempt in 1..=3 {
            self.standby.child.kill();
            self.world.kubectl(&["delete", "pod", "replica-2", "--force"]);
            if attempt > 1 {
                self.until_all_run().await;
                // The last writes and events of the repair.
                throughout(Duration::from_secs(2), || {}).await;
                self.world.kubectl(&["delete", "events", "--all"]);
                (before, self.since) = (self.writes(), clock::now());
            }
            let of_holder = Answers::of(self.holder.port());
            self.standby = replica(&self.world, "replica-2").await;
            let of_standby = Answers::of(self.standby.port());
            ready_pod(&self.world, &self.standby);
            throughout(LONG, || {
                assert_eq!(self.standby.get("/readyz").0, 503, "a rollout waits for it");
            })
            .await;
            let pause = of_holder.end().max(of_standby.end());
            println!("restart {attempt}: the longest pause was {pause:?}");
            let untouched = self.ended().is_empty() && self.writes().len() == before.len();
            if untouched || pause < Duration::from_millis(400) {
                break;
            }
        }
        before
    }

    /// Returns the runs that have ended.
    fn ended(&self) -> Vec<Run> {
        let mut runs = self.recorder.runs();
        runs.retain(|run| run.end.is_some_and(|end| end > self.since));
        runs
    }

    async fn assert_untouched(&self, before: &[String], tokens: &[Value]) {
        let ended = self.ended();
        let writes = self.writes().split_off(before.len());
        println!("{} pods ended, {} writes to targets", ended.len(), writes.len());
        assert!(ended.is_empty(), "{ended:#?}");
        assert!(writes.is_empty(), "{writes:#?}");
        for ((name, _), token) in LOCKS.iter().zip(tokens) {
            let status = self.world.lock_status(name, "is active", |status| {
                status["role"] == "Active" && condition(status, "Enforced").0 == "True"
            });
            assert_eq!(&status.await["fencingToken"], token, "{name}");
            for reason in ["EnforcementConflict", "StartedAgain", "StoppedAgain"] {
                assert_eq!(self.world.event(name, reason).await, None, "{name}: {reason}");
            }
        }
    }

    async fn tokens(&self) -> Vec<Value> {
        let mut tokens = Vec::new();
        for (name, _) in LOCKS {
            let status = self
                .world
                .lock_status(name, "is held", |status| status["role"] == "Active");
            tokens.push(status.await["fencingToken"].clone());
        }
        tokens
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blind_replica_keeps_targets_running() {
    let mut scene = Scene::new().await;
    let (before, tokens) = (scene.writes(), scene.tokens().await);
    let finalizers = scene.finalizers();
    scene.cut(scene.standby.child.pid());
    scene.until_blind(&scene.standby).await;
    throughout(LONG, || {}).await;
    scene.assert_untouched(&before, &tokens).await;
    assert_eq!(scene.finalizers(), finalizers);

    // After its restart, the replica knows the locks only from the answers of its sibling.
    for proxy in &scene.proxies {
        proxy.set_for(scene.holder.child.pid(), Mode::Pass);
        proxy.set(Mode::BlackHole);
    }
    let before = scene.restart_standby(before).await;
    let message = scene.standby.get("/readyz").1;
    assert!(
        message.contains("a majority of the masters once, of: default") && message.contains("0 of 3"),
        "{message}"
    );
    scene.assert_untouched(&before, &tokens).await;
    assert_eq!(scene.finalizers(), finalizers);

    // Without the sibling, the replica stops the workloads: another cluster may start after the delay.
    scene.holder.child.kill();
    timed(
        "the blind replica stops the target without a holder",
        async || {
            let (running, labelled) = (scene.running(), scene.labelled().await);
            let stopped = running.iter().all(|run| run.name.starts_with("labelled")) && labelled == 0;
            if stopped { Ok(()) } else { Err((running, labelled)) }
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_reserved_for_a_replica_that_sees_no_majority() {
    let mut scene = Scene::new().await;
    assert_eq!(scene.standby.get("/readyz").0, 200);
    scene.cut(scene.standby.child.pid());
    scene.until_blind(&scene.standby).await;
    // Its pod is Ready: a loss of the masters does not end the readiness.
    assert_eq!(scene.standby.get("/readyz").0, 200);
    scene.holder.child.signal(Signal::SIGTERM);
    let (exit, took) = scene.holder.child.wait(BOUND);
    assert!(exit.success(), "{exit}");
    let (running, labelled) = (scene.running(), scene.labelled().await);
    println!(
        "ended within {took:?}; {} of 3 pods run, {labelled} labelled",
        running.len()
    );
    assert!(
        running.iter().all(|run| run.name.starts_with("labelled")),
        "{running:#?}"
    );
    assert_eq!(labelled, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn holder_that_loses_the_masters_leaves_its_targets_to_its_sibling() {
    let mut scene = Scene::new().await;
    let tokens = scene.tokens().await;
    let answers = Answers::of(scene.standby.port());
    scene.cut(scene.holder.child.pid());
    let by_sibling = |status: &Value| status["role"] == "Active" && status["holderIdentity"] == "replica-2";
    for (name, _) in LOCKS {
        scene.world.lock_status(name, "is taken over", by_sibling).await;
    }
    let pause = answers.end();
    // The label carries the token of its holder. The token is the only write of a takeover.
    let taken = scene.tokens().await;
    eventually(BOUND, "the label has the token of the new holder", async || {
        let labelled = scene.label_tokens().await;
        if labelled == [taken[2].to_string()] {
            Ok(())
        } else {
            Err(labelled)
        }
    })
    .await;
    for (before, after) in tokens.iter().zip(&taken) {
        assert!(before.as_u64() < after.as_u64(), "{before} then {after}");
    }
    if pause > Duration::from_millis(1_500) {
        println!("the sibling paused for {pause:?}: its targets may have been stopped");
        scene.until_all_run().await;
        scene.since = clock::now();
    }
    let before = scene.writes();
    throughout(LONG, || {}).await;
    scene.assert_untouched(&before, &taken).await;
}

impl Scene {
    async fn labelled(&self) -> usize {
        self.label_tokens().await.len()
    }

    /// Returns the tokens of the pods with the label.
    async fn label_tokens(&self) -> Vec<String> {
        use k8s_openapi::api::core::v1::Pod;
        let pods: Api<Pod> = Api::namespaced(self.world.plane.admin(), self.world.namespace.name());
        let all = kube::api::ListParams::default().labels("redlock.dev/role=active");
        let pods = pods.list(&all).await.unwrap().items.into_iter();
        let token = |pod: Pod| json!(pod.metadata.annotations)["redlock.dev/fencing-token"].clone();
        pods.map(|pod| token(pod).as_str().unwrap_or_default().to_owned())
            .collect()
    }
}

/// Answers like a replica that sees a majority and contends for every lock. Returns its port; ends with the test.
pub async fn answering_sibling(identity: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut asked, mut bytes) = (Vec::new(), [0; 4096]);
            let question: Value = loop {
                let count = stream.read(&mut bytes).await.unwrap();
                asked.extend_from_slice(&bytes[..count]);
                let text = String::from_utf8_lossy(&asked).into_owned();
                if let Some((_, body)) = text.split_once("\r\n\r\n")
                    && let Ok(question) = serde_json::from_str(body)
                {
                    break question;
                }
            };
            let mut quorums = serde_json::Map::new();
            for (quorum, locks) in question["quorums"].as_object().unwrap() {
                let locks = locks.as_array().unwrap().iter();
                let locks: serde_json::Map<String, Value> = locks
                    .map(|lock| (lock.as_str().unwrap().to_owned(), json!({"contends": true})))
                    .collect();
                quorums.insert(quorum.clone(), json!({"majority": true, "locks": locks}));
            }
            let answer = json!({"cluster": question["cluster"], "identity": identity, "quorums": quorums});
            let reply = format!("HTTP/1.0 200 OK\r\n\r\n{answer}");
            stream.write_all(reply.as_bytes()).await.unwrap();
        }
    });
    port
}
