//! Tests the action Lease with real controllers, `tests/client-go`: two clusters, two versions of client-go, and never two
//! leaders. The controllers themselves record when they lead, by the boot clock.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use redlock_testkit::{Mode, Proxy, RedisServer, eventually};
use serde_json::Value;

use crate::author_check::apply_template;
use crate::fixture::Operator;
use crate::leader_lease::{RIGHTS, held};
use crate::world::{World, condition, lock, quorum_of};

const CLUSTERS: [&str; 2] = ["eu", "us"];
/// The settings of the candidates: a third of the defaults, and a fifth of the lease.
const SETTINGS: [&str; 3] = ["-lease-duration=3s", "-renew-deadline=2s", "-retry-period=500ms"];
/// `⌈11/6 × 3 × 1.01⌉`.
const STOP_SECONDS: u32 = 6;
/// A lease, the takeover delay, and a candidate that contends.
const BOUND: Duration = Duration::from_secs(120);

/// Whether the policy of the chart is installed; without it, the operator renews its records.
fn fenced() -> bool {
    std::env::var_os("REDLOCK_UNFENCED").is_none()
}

/// Builds the controller with a version of client-go, by its module file.
fn program(modules: &'static str) -> &'static Path {
    static PROGRAMS: OnceLock<[PathBuf; 2]> = OnceLock::new();
    let programs = PROGRAMS.get_or_init(|| {
        ["go.mod", "go-0.26.mod"].map(|modules| {
            let root = Path::new(env!("CARGO_MANIFEST_DIR"));
            let program = Path::new(env!("CARGO_TARGET_TMPDIR"))
                .join(modules)
                .with_extension("client-go");
            let output = Command::new("go")
                .args(["build", "-modfile", modules, "-o"])
                .arg(&program)
                .arg(".")
                .current_dir(root.join("tests/client-go"))
                .env("CGO_ENABLED", "0")
                .output()
                .unwrap_or_else(|error| panic!("go, which the tests need from 1.26 on: {error}"));
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            program
        })
    });
    &programs[usize::from(modules != "go.mod")]
}

/// A replica of the controller.
struct Candidate {
    name: String,
    child: Child,
    records: PathBuf,
}

impl Candidate {
    fn start(name: &str, world: &World, modules: &'static str, folder: &Path) -> Self {
        let records = folder.join(name);
        let child = Command::new(program(modules))
            .args(SETTINGS)
            .arg("-release-on-cancel")
            .args([
                "-namespace",
                world.namespace.name(),
                "-identity",
                name,
                "-kubeconfig",
            ])
            .arg(world.plane.kubeconfig_admin())
            .stdin(Stdio::null())
            .stdout(File::create(&records).unwrap())
            .stderr(File::create(folder.join(format!("{name}.log"))).unwrap())
            .spawn()
            .unwrap();
        Self {
            name: name.to_owned(),
            child,
            records,
        }
    }

    /// Returns the times for which this candidate led, term by term: first and last record in nanoseconds.
    fn led(&self) -> Vec<(u64, u64)> {
        let mut terms: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        let text = fs::read_to_string(&self.records).unwrap();
        // The last line may be incomplete.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        for line in whole.lines() {
            let (term, at) = line.split_once(' ').unwrap();
            let at: u64 = at.parse().unwrap();
            let led = terms.entry(term.parse().unwrap()).or_insert((at, at));
            led.1 = at;
        }
        terms.into_values().collect()
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A cluster with two candidates and one operator, which reaches the masters through proxies.
struct Side {
    world: World,
    masters: Vec<Proxy>,
    candidates: Vec<Candidate>,
    operator: Option<Operator>,
    name: &'static str,
}

impl Side {
    async fn new(name: &'static str, world: World, ports: &[u16], folder: &Path) -> Self {
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
        world.apply(&quorum_of("default", &urls, &more).replace("Seconds: 6", "Seconds: 15"));
        let candidates = [("new", "go.mod"), ("old", "go-0.26.mod")];
        let candidates = candidates
            .map(|(kind, modules)| Candidate::start(&format!("{name}-{kind}"), &world, modules, folder));
        let mut side = Self {
            masters,
            candidates: candidates.into(),
            operator: None,
            name,
            world,
        };
        if fenced() {
            let enabled = "--set=admission.leaseFence.enabled=true";
            apply_template(&side.world, "lease-fence", &[enabled]);
        }
        side.start_operator().await;
        side
    }

    async fn start_operator(&mut self) {
        let name = self.name;
        let change = |command: &mut Command| {
            command
                .env("REDLOCK_CLUSTER", name)
                .env("REDLOCK_LEASE_FENCE", fenced().to_string());
        };
        let operator = self.world.operator_with(&format!("{name}-0"), change).await;
        self.operator = Some(operator);
    }

    fn declare(&self, more: &str) {
        let target = format!(
            ", lockName: shared/report, targets: [{{name: controller, action: Lease, stopSeconds: {STOP_SECONDS}, \
             ref: {{apiVersion: coordination.k8s.io/v1, kind: Lease, name: controller}}}}]{more}"
        );
        self.world
            .apply(&lock("report", &target).replace("DurationSeconds: 6", "DurationSeconds: 15"));
    }

    /// Ends the leader by SIGTERM, and starts another candidate in its place.
    async fn restart_leader(&mut self, folder: &Path) {
        let leader = self.candidates.iter_mut().max_by_key(|candidate| {
            let led = candidate.led();
            led.last().map(|(_, last)| *last)
        });
        let leader = leader.unwrap();
        let pid = Pid::from_raw(i32::try_from(leader.child.id()).unwrap());
        signal::kill(pid, Signal::SIGTERM).unwrap();
        leader.child.wait().unwrap();
        let name = format!("{}-{}", self.name, self.candidates.len());
        let candidate = Candidate::start(&name, &self.world, "go.mod", folder);
        self.candidates.push(candidate);
    }

    fn set_masters(&self, mode: Mode) {
        for master in &self.masters {
            master.set(mode);
        }
    }

    /// Returns the end of the last record of a leader here.
    fn last_led(&self) -> u64 {
        let all = self.candidates.iter().flat_map(Candidate::led);
        all.map(|(_, last)| last).max().unwrap_or_default()
    }

    /// Waits until a candidate leads here after this time; returns when it began.
    async fn leads_after(&self, time: u64) -> u64 {
        eventually(
            BOUND,
            &format!("a candidate leads in {}", self.name),
            async || {
                let all = self.candidates.iter().flat_map(Candidate::led);
                let found = all
                    .filter(|(first, _)| *first > time)
                    .map(|(first, _)| first)
                    .min();
                found.ok_or(())
            },
        )
        .await
    }
}

/// Returns each pair of candidates that led at the same time, after this one.
fn overlaps(sides: &[Side; 2], since: u64) -> Vec<String> {
    let mut led: Vec<(u64, u64, &str)> = Vec::new();
    for candidate in sides.iter().flat_map(|side| &side.candidates) {
        led.extend(
            candidate
                .led()
                .into_iter()
                .map(|(first, last)| (first, last, &*candidate.name)),
        );
    }
    led.sort_unstable();
    led.retain(|(_, last, _)| *last > since);
    let pairs = led.windows(2).filter(|pair| pair[1].0 <= pair[0].1);
    pairs
        .map(|pair| format!("{:?} and {:?}", pair[0], pair[1]))
        .collect()
}

/// What moves the lock to the other cluster, and what happens meanwhile.
#[derive(Clone, Copy, Debug)]
enum Move {
    HandOver,
    /// The cluster of the holder loses all masters.
    Cut,
    /// The leader ends once the operator has taken the Lease: with ReleaseOnCancel it writes its release over the record.
    LeaderEnds,
    /// The operator is killed once it has taken the Lease, and started again.
    OperatorCrashes,
}

impl Move {
    const ALL: [Self; 4] = [Self::HandOver, Self::Cut, Self::LeaderEnds, Self::OperatorCrashes];

    async fn begin(self, from: &mut Side, folder: &Path) {
        if matches!(self, Self::Cut) {
            from.set_masters(Mode::BlackHole);
            return;
        }
        from.declare(", state: SteppedDown, reason: test");
        if !matches!(self, Self::HandOver) {
            held(&from.world, &format!("redlock.dev/{}", from.name)).await;
        }
        match self {
            Self::LeaderEnds => from.restart_leader(folder).await,
            Self::OperatorCrashes => {
                from.operator.as_mut().unwrap().child.kill();
                from.start_operator().await;
            }
            Self::HandOver | Self::Cut => {}
        }
    }

    fn end(self, from: &Side) {
        if matches!(self, Self::Cut) {
            from.set_masters(Mode::Pass);
        } else {
            from.declare("");
        }
    }
}

async fn stands_by(side: &Side) {
    let stopped = |status: &Value| status["role"] == "Standby" && condition(status, "Enforced").0 == "True";
    side.world.lock_status("report", "stands by", stopped).await;
}

/// Moves the lock `REDLOCK_MOVES` times, then keeps it for `REDLOCK_STANDBY_SECONDS`, in which no candidate of the other
/// cluster may lead. With `REDLOCK_UNFENCED`, without the policy of the chart.
#[tokio::test(flavor = "multi_thread")]
async fn controllers_of_two_clusters_never_lead_at_the_same_time() {
    let number = |name: &str, usual| std::env::var(name).map_or(usual, |count| count.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = tokio::join!(World::small(3), World::small(0));
    let servers: Vec<u16> = first.masters.iter().map(RedisServer::port).collect();
    let mut sides = [
        Side::new(CLUSTERS[0], first, &servers, folder.path()).await,
        Side::new(CLUSTERS[1], second, &servers, folder.path()).await,
    ];
    // Before they are targets, each cluster has a leader of its own.
    for side in &sides {
        side.leads_after(0).await;
    }
    sides[0].declare("");
    let active = |status: &Value| status["role"] == "Active";
    sides[0].world.lock_status("report", "is held", active).await;
    sides[1].declare("");
    stands_by(&sides[1]).await;
    let since = sides[1].last_led();
    let (mut gaps, mut active) = (Vec::new(), 0);
    for index in 0..number("REDLOCK_MOVES", 2) {
        let kind = Move::ALL[index % Move::ALL.len()];
        let before = sides[1 - active].last_led();
        kind.begin(&mut sides[active], folder.path()).await;
        let (from, to) = (&sides[active], &sides[1 - active]);
        let began = to.leads_after(before).await;
        let gap = began.saturating_sub(from.last_led()) / 1_000_000;
        println!("{kind:?}: {} led {gap} ms after {}", to.name, from.name);
        gaps.push(gap);
        kind.end(from);
        stands_by(from).await;
        active = 1 - active;
    }
    let standby = sides[1 - active].last_led();
    let token = async |side: &Side| {
        side.world
            .locks()
            .get("report")
            .await
            .unwrap()
            .status
            .and_then(|s| s.fencing_token)
    };
    let held = token(&sides[active]).await;
    tokio::time::sleep(Duration::from_secs(number("REDLOCK_STANDBY_SECONDS", 0) as u64)).await;
    assert_eq!(
        token(&sides[active]).await,
        held,
        "the lock moved to the other cluster"
    );
    assert_eq!(
        sides[1 - active].last_led(),
        standby,
        "a candidate led on standby"
    );
    // Until the second cluster stood by, each cluster had a leader.
    let found = overlaps(&sides, since);
    println!("{} overlaps", found.len());
    if fenced() {
        assert_eq!(found, [""; 0]);
    }
    gaps.sort_unstable();
    println!("from the last record there to the first here, ms: {gaps:?}");
}
