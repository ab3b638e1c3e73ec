//! Tests node fencing on a real node: a virtual machine with cgroup v2, containerd and the kubelet.
//!
//! The chart and the example are those that users install. The emulated machine is slow: no time is measured.

#[path = "node_vm/machine.rs"]
mod machine;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::chart::{chart, run_helm};
use crate::fixture::{ControlPlane, Options};
use crate::world::quorum_of;
use machine::Machine;
use redlock_testkit::{Mode, Proxy, RedisServer, ServerOptions, eventually};

const BOUND: Duration = Duration::from_secs(600);
const VALUES: [&str; 8] = [
    "clusterName=eu-1",
    "replicas=1",
    "image.repository=localhost/redlock",
    "image.tag=vm",
    "image.pullPolicy=Never",
    "fencing.enabled=true",
    "targetKinds[0].group=apps",
    "targetKinds[0].resource=deployments",
];

/// The pod of the example, as the API server shows it.
#[derive(Clone, Debug, PartialEq)]
struct Pod {
    name: String,
    uid: String,
    restarts: u64,
}

/// The state of the pod on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Seen {
    frozen: bool,
    /// The second of its last line, as a number; 0 without a line. The kubelet removes logs, so lines cannot be counted.
    written: u64,
}

struct Place {
    plane: ControlPlane,
    machine: Machine,
    masters: Vec<Proxy>,
    began: Instant,
    _servers: Vec<RedisServer>,
}

impl Place {
    async fn new() -> Self {
        let plane = ControlPlane::start(Options::default());
        let servers: Vec<RedisServer> = (0..3)
            .map(|_| RedisServer::start(&ServerOptions::default()).unwrap())
            .collect();
        let mut masters = Vec::new();
        for server in &servers {
            masters.push(Proxy::to_port(server.port()).await);
        }
        let ports: Vec<u16> = masters.iter().map(Proxy::port).collect();
        let machine = Machine::boot(&plane, &ports);
        Self {
            plane,
            machine,
            masters,
            began: Instant::now(),
            _servers: servers,
        }
    }

    fn report(&self, what: &str) {
        println!("{:6.1} s  {what}", self.began.elapsed().as_secs_f64());
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.plane.kubectl(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn get(&self, arguments: &[&str]) -> Value {
        let text = self.kubectl(&[&["get", "-o", "json"], arguments].concat());
        serde_json::from_str(&text).unwrap()
    }

    /// Waits until the condition holds, and reports it.
    async fn until<T>(&mut self, what: &str, mut seen: impl FnMut(&mut Self) -> Result<T, String>) -> T {
        let found = eventually(BOUND, what, async || seen(self)).await;
        self.report(what);
        found
    }

    /// Cuts the masters off. The operator is killed with them, since a holder stops its targets before they are frozen. The
    /// replica that replaces it sees no majority, and leaves the pods as they are.
    fn cut(&mut self) {
        self.set(Mode::BlackHole);
        let kill =
            "pids=$(ps | awk '/[r]edlock operator/ {print $1}'); echo $pids; kill -9 $pids 2>/dev/null";
        let killed = self.machine.run(kill);
        assert!(!killed.is_empty(), "no process of the operator");
        // A container of this pod would be restarted later each time.
        let delete = "delete pods --namespace=redlock --selector=app.kubernetes.io/component=operator \
                      --force --grace-period=0 --wait=false";
        self.kubectl(&delete.split(' ').collect::<Vec<_>>());
    }

    fn heal(&self) {
        self.set(Mode::Pass);
    }

    fn set(&self, mode: Mode) {
        self.masters.iter().for_each(|master| master.set(mode));
        self.report(&format!("masters: {mode:?}"));
    }

    async fn install(&mut self) {
        self.until("the node is ready", |place| {
            let nodes = place.get(&["nodes"]);
            let conditions = nodes["items"][0]["status"]["conditions"].as_array().cloned();
            let ready = |c: &Value| c["type"] == "Ready" && c["status"] == "True";
            let found = conditions.iter().flatten().any(ready);
            found
                .then_some(())
                .ok_or_else(|| nodes["items"][0]["status"]["conditions"].to_string())
        })
        .await;
        // The API server adds the taint, and the controller that removes it does not run: there are no other nodes.
        let not_ready = "node.kubernetes.io/not-ready:NoSchedule-";
        self.kubectl(&["taint", "nodes", "node-vm", not_ready]);
        let chart = chart().display().to_string();
        let mut arguments = vec![
            "install",
            "redlock",
            &chart,
            "--namespace=redlock",
            "--create-namespace",
        ];
        for value in VALUES {
            arguments.extend(["--set", value]);
        }
        arguments.extend(["--wait", "--timeout=20m"]);
        run_helm(&self.plane, &arguments).unwrap();
        self.report("the chart is installed; operator, node agent and node guardian are ready");
        let urls: Vec<String> = (0..3)
            .map(|index| format!("redis://10.0.0.1:{}", 7000 + index))
            .collect();
        let quorum = quorum_of("default", &urls, "  firstStart: Immediate\n");
        let quorum = quorum.replace("maxLeaseDurationSeconds: 6", "maxLeaseDurationSeconds: 20");
        let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        std::fs::write(file.path(), quorum).unwrap();
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/fenced-deployment");
        for file in [
            file.path(),
            &example.join("lock.yaml"),
            &example.join("workload.yaml"),
        ] {
            self.kubectl(&["apply", "--filename", &file.display().to_string()]);
        }
    }

    /// Returns the pods that are not being deleted.
    fn pods(&self) -> Vec<Pod> {
        let list = self.get(&["pods", "--namespace=reports", "--selector=app=report"]);
        let items = list["items"].as_array().unwrap().iter();
        items
            .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
            .map(|pod| Pod {
                name: pod["metadata"]["name"].as_str().unwrap().to_owned(),
                uid: pod["metadata"]["uid"].as_str().unwrap().to_owned(),
                restarts: pod["status"]["containerStatuses"][0]["restartCount"]
                    .as_u64()
                    .unwrap_or(0),
            })
            .collect()
    }

    /// Returns the state of the cgroup and of the log of a pod; `None` if the cgroup does not exist.
    fn seen(&mut self, pod: &Pod) -> Option<Seen> {
        let (cgroup, logs) = (
            cgroup(pod),
            format!("/var/log/pods/reports_{}_{}/report/*.log", pod.name, pod.uid),
        );
        let output = self.machine.run(&format!(
            "cat {cgroup}/cgroup.events; grep -h 'reports under' {logs} | cut -c 1-19 | sort | tail -n 1 | tr -d 'T:-'"
        ));
        let frozen = output.lines().find_map(|line| line.strip_prefix("frozen "))? == "1";
        let last = output.lines().last();
        let written = last.and_then(|line| line.parse().ok()).unwrap_or(0);
        Some(Seen { frozen, written })
    }

    async fn until_frozen(&mut self, pod: &Pod, what: &str) -> Seen {
        self.until(what, |place| match place.seen(pod) {
            Some(seen) if seen.frozen => Ok(seen),
            other => Err(format!("{other:?}")),
        })
        .await
    }

    /// Waits until the pod has written after that second.
    async fn until_written(&mut self, pod: &Pod, before: u64, what: &str) -> Seen {
        self.until(what, |place| match place.seen(pod) {
            Some(seen) if !seen.frozen && seen.written > before => Ok(seen),
            other => Err(format!("{other:?}")),
        })
        .await
    }

    /// Asserts that the pod is frozen, and writes nothing for some seconds.
    fn assert_stands_still(&mut self, pod: &Pod) {
        let before = self.seen(pod);
        self.machine.run("sleep 3");
        let after = self.seen(pod);
        assert!(before.is_some_and(|seen| seen.frozen), "{before:?}");
        assert_eq!(before, after);
    }
}

/// Returns the cgroup. The kubelet there uses no cgroup driver of systemd, and the example requests nothing.
fn cgroup(pod: &Pod) -> String {
    format!("/sys/fs/cgroup/kubepods/besteffort/pod{}", pod.uid)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "boots a virtual machine; `make node-vm` runs it"]
async fn a_fenced_deployment_lives_on_a_real_node() {
    let mut place = Place::new().await;
    let _scheduler = place.plane.start_scheduler("kube-system", &[]);
    place.install().await;
    let pod = place.one_of_two().await;
    place.until_written(&pod, 0, "the pod runs under a token").await;

    place.freeze_and_thaw(&pod).await;
    place.container_dies_while_frozen(&pod).await;
    place.kubelet_restarts(&pod).await;
    place.frozen_for_30_s(&pod).await;
    let pod = place.deleted_while_frozen(&pod).await;
    place.reboot_without_masters(&pod).await;
}

impl Place {
    async fn one_of_two(&mut self) -> Pod {
        self.until("two pods exist", |place| match &place.pods()[..] {
            [first, _] => Ok(first.clone()),
            other => Err(format!("{other:?}")),
        })
        .await
    }

    /// Cuts the masters off until the pod is frozen. It is killed 30 s later, so a test must thaw it within
    /// that time.
    async fn cut_until_frozen(&mut self, pod: &Pod) -> Seen {
        self.cut();
        self.until_frozen(pod, "the pod is frozen").await
    }

    fn restarts(&self, pod: &Pod) -> u64 {
        let pods = self.pods();
        let found = pods.iter().find(|other| other.uid == pod.uid);
        found
            .unwrap_or_else(|| panic!("{pod:?} is not among {pods:?}"))
            .restarts
    }

    async fn until_restarted(&mut self, pod: &Pod, before: u64, what: &str) {
        self.until(what, |place| match place.restarts(pod) {
            after if after > before => Ok(()),
            after => Err(format!("{after} restarts")),
        })
        .await;
    }

    async fn freeze_and_thaw(&mut self, pod: &Pod) {
        let seen = self.cut_until_frozen(pod).await;
        self.assert_stands_still(pod);
        self.heal();
        self.until_written(pod, seen.written, "the pod is thawed").await;
        assert_eq!(self.restarts(pod), 0);
    }

    async fn container_dies_while_frozen(&mut self, pod: &Pod) {
        let before = self.restarts(pod);
        let seen = self.cut_until_frozen(pod).await;
        // The command kills the shell of the container, not the process of the sandbox.
        let killed = self.machine.run(&format!(
            "kill -9 $(grep -lx sh $(sed 's|.*|/proc/&/comm|' {}/*/cgroup.procs) | cut -d / -f 3); sleep 1",
            cgroup(pod)
        ));
        self.report(&format!("the container is killed {killed}"));
        self.assert_stands_still(pod);
        self.heal();
        self.until_written(pod, seen.written, "the container runs again")
            .await;
        self.until_restarted(pod, before, "the kubelet has started it again")
            .await;
    }

    async fn kubelet_restarts(&mut self, pod: &Pod) {
        let before = self.restarts(pod);
        let seen = self.cut_until_frozen(pod).await;
        assert_eq!(self.machine.run("killall kubelet"), "");
        self.assert_stands_still(pod);
        self.heal();
        self.until_written(
            pod,
            seen.written,
            "the pod is thawed after a restart of the kubelet",
        )
        .await;
        assert_eq!(self.restarts(pod), before);
    }

    async fn frozen_for_30_s(&mut self, pod: &Pod) {
        let before = self.restarts(pod);
        let seen = self.cut_until_frozen(pod).await;
        self.machine.run("sleep 40");
        self.heal();
        self.until_written(pod, seen.written, "the pod runs after more than 30 s")
            .await;
        self.until_restarted(pod, before, "its container was killed and started afresh")
            .await;
    }

    /// Returns the pod that replaces it.
    async fn deleted_while_frozen(&mut self, pod: &Pod) -> Pod {
        self.cut_until_frozen(pod).await;
        let others = self.pods();
        self.kubectl(&["delete", "pod", "--namespace=reports", "--wait=false", &pod.name]);
        let directory = format!("/var/lib/kubelet/pods/{}", pod.uid);
        self.until(
            "the kubelet has removed the pod that was deleted while frozen",
            |place| match &place.machine.run(&format!("ls -d {directory}"))[..] {
                left if left == directory => Err(left.to_owned()),
                _ => Ok(()),
            },
        )
        .await;
        let next = self
            .until("another pod exists", |place| {
                let pods = place.pods();
                let found = pods
                    .iter()
                    .find(|pod| others.iter().all(|other| other.uid != pod.uid));
                found.cloned().ok_or_else(|| format!("{pods:?}"))
            })
            .await;
        self.until("the kubelet reports that the volume of the pod waits", |place| {
            let selector = format!(
                "--field-selector=reason=FailedMount,involvedObject.name={}",
                next.name
            );
            let events = place.get(&["events", "--namespace=reports", &selector]);
            let events = events["items"].as_array().unwrap().iter();
            let mut messages = events.filter_map(|event| event["message"].as_str());
            // A volume of another kind may be late, too.
            let refused = messages.find(|message| message.contains("the masters"));
            refused
                .map(|message| println!("{message}"))
                .ok_or_else(|| "no event".to_owned())
        })
        .await;
        assert_eq!(self.seen(&next).map_or(0, |seen| seen.written), 0);
        self.heal();
        self.until_written(&next, 0, "the pod that replaces it runs")
            .await;
        next
    }

    async fn reboot_without_masters(&mut self, pod: &Pod) {
        let seen = self.cut_until_frozen(pod).await;
        self.assert_stands_still(pod);
        self.machine.reboot();
        self.until(
            "the machine runs again, with operator, node agent and node guardian",
            |place| {
                let up = place.machine.run("cat /proc/uptime; ps | grep -c '[r]edlock '");
                let count = up.lines().last().and_then(|line| line.parse().ok()).unwrap_or(0);
                if count >= 3 { Ok(()) } else { Err(up) }
            },
        )
        .await;
        self.machine.run("sleep 20");
        assert_eq!(self.seen(pod).map(|after| after.written), Some(seen.written));
        self.heal();
        self.until_written(pod, seen.written, "the pod runs after a reboot")
            .await;
    }
}
