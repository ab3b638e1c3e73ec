//! One of the two clusters: candidates of two elections, one operator that reaches the masters through proxies, and a node
//! without a kubelet.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use redlock::lease::BootInstant;
use redlock_testkit::{Mode, Proxy, eventually};
use serde_json::Value;

use super::candidate::{Candidate, Controller, Process, SCHEDULER_SETTINGS, Term};
use crate::author_check::apply_template;
use crate::fixture::Operator;
use crate::leader_lease::{RIGHTS, lease_held};
use crate::world::{World, condition, quorum_of};

/// A bound for a lease, the takeover delay, and a candidate that contends with the defaults of client-go.
const BOUND: Duration = Duration::from_secs(180);
/// A node with room for pods, which runs none of them.
const NODE: &str = "\
apiVersion: v1
kind: Node
metadata: {name: fake-node}
status:
  capacity: {cpu: \"100\", memory: 100Gi, pods: \"500\"}
  allocatable: {cpu: \"100\", memory: 100Gi, pods: \"500\"}
  conditions: [{type: Ready, status: \"True\", reason: KubeletReady, message: \"\"}]
";

/// Reports whether the policy of the chart is installed; without it, the operator renews its records.
pub fn fenced() -> bool {
    std::env::var_os("REDLOCK_UNFENCED").is_none()
}

/// An election with its LeaderLock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Election {
    Controller,
    Scheduler,
}

impl Election {
    pub const ALL: [Self; 2] = [Self::Controller, Self::Scheduler];

    /// Returns the name of the Lease, which is also that of the lock.
    pub fn name(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Scheduler => "kube-scheduler",
        }
    }
}

/// The timings of the scheduler and its lock. Those of the controller are always short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// The timings of the controller.
    Short,
    /// The defaults.
    Usual,
}

impl Pace {
    fn is_short(self, election: Election) -> bool {
        self == Self::Short || election == Election::Controller
    }

    /// Returns the stop time of the target and the lease of the lock: `⌈11/6 × 3 × 1.01⌉` for the short ones.
    fn timings(self, election: Election) -> [&'static str; 2] {
        if self.is_short(election) {
            ["stopSeconds: 6, ", "leaseDurationSeconds: 15, "]
        } else {
            [""; 2]
        }
    }
}

/// A cluster.
pub struct Side {
    pub name: &'static str,
    pub operator: Option<Operator>,
    pub candidates: Vec<Candidate>,
    pub masters: Vec<Proxy>,
    pace: Pace,
    pub world: World,
}

impl Side {
    pub async fn new(name: &'static str, world: World, ports: &[u16], pace: Pace, folder: &Path) -> Self {
        let namespace = world.namespace.name().to_owned();
        world.plane.install_rbac_with(&namespace, &RIGHTS).await;
        let mut masters = Vec::new();
        for port in ports {
            masters.push(Proxy::to_port(*port).await);
        }
        let urls: Vec<String> = masters.iter().map(Proxy::url).collect();
        let more = format!(
            "  firstStart: Immediate\n  sharedLockNames:\n  - {{prefix: shared/, namespaces: [{namespace}]}}\n"
        );
        world.apply(&quorum_of("default", &urls, &more).replace("Seconds: 6", "Seconds: 60"));
        world.kubectl(&["create", "serviceaccount", "default"]);
        world.apply(NODE);
        let controllers = [("new", "go.mod"), ("old", "go-0.26.mod")];
        let mut candidates: Vec<Candidate> = controllers
            .map(|(kind, modules)| {
                let name = format!("{name}-{kind}");
                let controller = Controller::start(&name, &world, modules, folder);
                let process = Process::Controller(controller);
                Candidate { name, process }
            })
            .into();
        let settings = SCHEDULER_SETTINGS.map(str::to_owned);
        let settings = if pace == Pace::Short { &settings[..] } else { &[] };
        candidates.push(Candidate {
            name: format!("{name}-scheduler"),
            process: Process::Scheduler(world.plane.start_scheduler(&namespace, settings)),
        });
        let mut side = Self {
            name,
            operator: None,
            candidates,
            masters,
            pace,
            world,
        };
        if fenced() {
            let enabled = "--set=admission.leaseFence.enabled=true";
            apply_template(&side.world, "lease-fence", &[enabled]);
        }
        side.start_operator().await;
        side
    }

    pub async fn start_operator(&mut self) {
        let name = self.name;
        let change = |command: &mut Command| {
            command
                .env("REDLOCK_CLUSTER", name)
                .env("REDLOCK_LEASE_FENCE", fenced().to_string());
        };
        let operator = self.world.operator_with(&format!("{name}-0"), change).await;
        self.operator = Some(operator);
    }

    /// Applies both locks.
    pub fn declare(&self, more: &str) {
        let lock = |election: Election| {
            let (name, [stop, lease]) = (election.name(), self.pace.timings(election));
            format!(
                "apiVersion: redlock.dev/v1alpha1\nkind: LeaderLock\nmetadata: {{name: {name}}}\nspec:\n  \
                 {{quorumRef: {{name: default}}, {lease}lockName: shared/{name}, targets: [{{name: leader, action: Lease, \
                 {stop}ref: {{apiVersion: coordination.k8s.io/v1, kind: Lease, name: {name}}}}}]{more}}}\n"
            )
        };
        self.world.apply(&Election::ALL.map(lock).join("---\n"));
    }

    /// Waits until the operator holds both Leases.
    pub async fn taken(&self) {
        for election in Election::ALL {
            lease_held(
                &self.world,
                election.name(),
                &format!("redlock.dev/{}", self.name),
            )
            .await;
        }
    }

    /// Waits until both locks are held here.
    pub async fn is_active(&self) {
        for election in Election::ALL {
            let active = |status: &Value| status["role"] == "Active";
            self.world.lock_status(election.name(), "is held", active).await;
        }
    }

    /// Waits until no candidate can lead here.
    pub async fn stands_by(&self) {
        for election in Election::ALL {
            let stopped =
                |status: &Value| status["role"] == "Standby" && condition(status, "Enforced").0 == "True";
            self.world
                .lock_status(election.name(), "stands by", stopped)
                .await;
        }
    }

    /// Ends each leader by SIGTERM, and starts another candidate in its place.
    pub fn restart_leaders(&mut self, folder: &Path) {
        for election in Election::ALL {
            let all = self
                .candidates
                .iter_mut()
                .filter(|one| one.election() == election);
            let leader = all.max_by_key(|one| one.led().last().map(|term| term.last));
            if leader.unwrap().terminate() {
                let name = format!("{}-{}", self.name, self.candidates.len());
                let controller = Controller::start(&name, &self.world, "go.mod", folder);
                let process = Process::Controller(controller);
                self.candidates.push(Candidate { name, process });
            }
        }
    }

    /// Deletes both Leases as the administrator. The policy refuses that while the operator holds them.
    pub fn delete_leases(&self) {
        for election in Election::ALL {
            let namespace = ["--namespace", self.world.namespace.name()];
            let delete = ["delete", "lease", election.name()];
            let output = self
                .world
                .plane
                .kubectl(&[namespace.as_slice(), &delete].concat());
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.success(), !fenced(), "{stderr}");
            assert!(
                !fenced() || stderr.contains("only the operator may free it"),
                "{stderr}"
            );
        }
    }

    pub fn set_masters(&self, mode: Mode) {
        for master in &self.masters {
            master.set(mode);
        }
    }

    /// Returns the terms of all candidates of an election, with the names of the candidates.
    pub fn terms(&self, election: Election) -> impl Iterator<Item = (Term, &str)> {
        let all = self
            .candidates
            .iter()
            .filter(move |one| one.election() == election);
        all.flat_map(|one| one.led().into_iter().map(|term| (term, &*one.name)))
    }

    /// Returns the last moment at which a candidate led here.
    pub fn last_led(&self, election: Election) -> BootInstant {
        let last = self.terms(election).map(|(term, _)| term.last).max();
        last.unwrap_or(BootInstant::from_nanos(0))
    }

    /// Waits until a candidate leads here after this time; returns the time at which its term began.
    pub async fn leads_after(&self, election: Election, time: BootInstant) -> BootInstant {
        let what = format!("a candidate of {} leads in {}", election.name(), self.name);
        eventually(BOUND, &what, async || {
            let began = self.terms(election).map(|(term, _)| term.first);
            began.filter(|first| *first > time).min().ok_or(())
        })
        .await
    }

    /// Returns the tokens of both locks as their holder sees them.
    pub async fn tokens(&self) -> Vec<Option<i64>> {
        let mut tokens = Vec::new();
        for election in Election::ALL {
            let lock = self.world.locks().get(election.name()).await.unwrap();
            tokens.push(lock.status.and_then(|status| status.fencing_token));
        }
        tokens
    }

    /// Creates a pod for the scheduler.
    pub fn create_pod(&self, name: &str) {
        self.world.apply(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: a, image: a}}], \
             tolerations: [{{operator: Exists}}]}}\n"
        ));
    }

    /// Returns the names of the pods without a node.
    pub async fn unscheduled(&self) -> Vec<String> {
        let pods: Api<Pod> = Api::namespaced(self.world.plane.admin(), self.world.namespace.name());
        let all = pods.list(&Default::default()).await.unwrap().items.into_iter();
        let waits = |pod: &Pod| pod.spec.as_ref().is_none_or(|spec| spec.node_name.is_none());
        all.filter(waits).filter_map(|pod| pod.metadata.name).collect()
    }

    /// Waits until each pod has a node.
    pub async fn schedules(&self) {
        let what = format!("the scheduler of {} schedules", self.name);
        eventually(BOUND, &what, async || match self.unscheduled().await {
            left if left.is_empty() => Ok(()),
            left => Err(left),
        })
        .await;
    }
}
