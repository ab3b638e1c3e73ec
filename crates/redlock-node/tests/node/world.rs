//! Sets up a node: three masters behind proxies, a candidate of each cluster, agent, guardian and pods.

use std::{
    collections::BTreeMap,
    fs,
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use redlock_client::{
    clock,
    elector::{Elector, ElectorTask, Silent},
    lease::{
        BootInstant, ClusterId, FencingToken, LockName, Mark, ReleaseMode, Terms, Timings,
        timing::GivenTimings,
    },
    masters::MastersConfig,
};
use redlock_testkit::{
    ChildGuard, Mode, Proxy, RedisServers, ServerOptions, eventually,
    masters::{Opened, config, identity, lock_name, open},
};

use tokio::task::AbortHandle;

use super::cgroups::{Made, own_or_report};
use super::sandbox::{Sandbox, remove_pods, start_container};

pub(crate) const BOUND: Duration = Duration::from_secs(60);
pub(crate) const LEASE: Duration = Duration::from_secs(4);
/// The time for which a renewal keeps the lock for the cluster.
const LONGEST: Duration = Duration::from_secs(6);
const PROGRAM: &str = env!("CARGO_BIN_EXE_redlock-node");
pub(crate) const LOCK: &str = "team/report";
const USER: &str = "node";
const PASSWORD: &str = "reads";

pub(crate) struct World {
    pub(crate) proxies: Vec<Proxy>,
    pub(crate) guardian: Option<ChildGuard>,
    pub(crate) agent: Option<ChildGuard>,
    pub(crate) folder: tempfile::TempDir,
    /// The state directory, on tmpfs: a disk may hang for seconds.
    state: tempfile::TempDir,
    pub(crate) root: Made,
    /// The mount point of cgroups that agent and guardian get.
    cgroup_root: PathBuf,
    config: MastersConfig,
    pods: u32,
    servers: RedisServers,
    _masters: Opened,
}

/// A candidate of one cluster.
pub(crate) struct Candidate {
    elector: Elector,
    task: ElectorTask,
    lock: LockName,
    keeper: Mutex<Option<AbortHandle>>,
    _tasks: redlock_client::masters::Tasks,
}

pub(crate) struct Pod {
    pub(crate) uid: String,
    pub(crate) cgroup: PathBuf,
    pub(crate) target: PathBuf,
    log: PathBuf,
    writers: Vec<ChildGuard>,
}

/// Whether a process can write to the cgroups of the node, through a mount of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CgroupMount {
    ReadWrite,
    ReadOnly,
}

impl CgroupMount {
    const fn option(self) -> &'static str {
        match self {
            Self::ReadWrite => "rw",
            Self::ReadOnly => "ro",
        }
    }

    /// Returns a command that mounts the cgroups for itself, and then becomes the program.
    fn command(self, root: &Path) -> Command {
        let mut command = Command::new("unshare");
        let script =
            "mount --bind \"$1\" \"$1\" && mount -o \"remount,$2,bind\" \"$1\" && shift 2 && exec \"$@\"";
        command
            .args(["--mount", "sh", "-c", script, "sh"])
            .arg(root)
            .args([self.option(), PROGRAM]);
        command
    }

    /// Changes the mount of a process that was started with a mount of its own.
    pub(crate) fn remount(self, of: &ChildGuard, root: &Path) {
        let mut command = Command::new("nsenter");
        command
            .args(["--mount", "--target", &of.pid().to_string(), "mount", "-o"])
            .arg(format!("remount,{},bind", self.option()))
            .arg(root);
        assert!(command.status().unwrap().success(), "{command:?}");
    }

    /// Reports whether this user may mount. Otherwise, writes a line on standard error, which is shown even for a test
    /// that succeeds.
    pub(crate) fn is_possible(untested: &str) -> bool {
        let mounts = Command::new("unshare").args(["--mount", "true"]).status();
        let possible = mounts.is_ok_and(|status| status.success());
        if !possible {
            eprintln!("NOT TESTED: {untested}: this user may not mount");
        }
        possible
    }
}

pub(crate) fn cluster(name: &str) -> ClusterId {
    ClusterId::new(name, &format!("uid-{name}")).unwrap()
}

/// Returns a user with commands that read; no key can be written.
fn reader() -> String {
    format!(
        "{USER} on >{PASSWORD} resetkeys resetchannels ~redlock:* -@all +evalsha +info +time +get +mget +pttl +hmget"
    )
}

impl World {
    /// Starts a node; `None` if no cgroup can be created.
    pub(crate) async fn start(what: &str) -> Option<Self> {
        let own = own_or_report(what)?;
        let root = Made::below(&own, "node").unwrap();
        let options = ServerOptions {
            users: vec![reader()],
            ..ServerOptions::default()
        };
        let servers = RedisServers::start(3, &options).unwrap();
        let mut proxies = Vec::new();
        for server in servers.iter() {
            proxies.push(Proxy::to_port(server.port()).await);
        }
        let mut config = config(&servers);
        (config.cluster, config.longest_lease) = (cluster("here"), LONGEST);
        config.command_timeout = Duration::from_millis(500);
        let masters = open(&config);
        masters.seal(&servers).await;
        let folder = tempfile::tempdir().unwrap();
        let world = Self {
            proxies,
            guardian: None,
            agent: None,
            folder,
            state: tempfile::tempdir_in("/dev/shm").unwrap(),
            cgroup_root: root.0.clone(),
            root,
            config,
            pods: 0,
            servers,
            _masters: masters,
        };
        let urls: Vec<String> = world.proxies.iter().map(Proxy::url).collect();
        world.write_locks(&urls, LEASE);
        fs::create_dir_all(world.kubelet().join("pods")).unwrap();
        Some(world)
    }

    /// Starts a node with agent and guardian.
    pub(crate) async fn guarded(what: &str) -> Option<Self> {
        let mut world = Self::start(what).await?;
        world.start_guardian();
        world.start_agent().await;
        Some(world)
    }

    /// Starts agent and guardian with another mount point of cgroups from now on.
    pub(crate) fn use_cgroup_root(&mut self, root: PathBuf) {
        self.cgroup_root = root;
    }

    /// Returns the urls of the servers themselves, which no proxy cuts off.
    pub(crate) fn servers(&self) -> Vec<String> {
        self.servers.urls()
    }

    /// Declares the locks, with these urls of the masters and this lease.
    pub(crate) fn write_locks(&self, urls: &[String], lease: Duration) {
        fs::write(self.path("password"), format!("{PASSWORD}\n")).unwrap();
        let masters: Vec<String> = (urls.iter().enumerate())
            .map(|(index, url)| format!(r#"{{"name":"m{index}","url":"{url}"}}"#))
            .collect();
        let quorum = format!(
            r#"{{"name":"main","masters":[{}],"keyPrefix":"redlock","longestLeaseMilliseconds":{},
                "acquireLimitMilliseconds":{},"commandTimeoutMilliseconds":500}}"#,
            masters.join(","),
            LONGEST.as_millis(),
            self.config.acquire_limit.as_millis()
        );
        let lock = |fencing| {
            format!(
                r#"{{"quorum":"main","leaseMilliseconds":{},"retryMilliseconds":{},"fencing":{fencing}}}"#,
                lease.as_millis(),
                timings().retry_period.as_millis()
            )
        };
        let text = format!(
            r#"{{"cluster":{{"name":"here","uid":"uid-here"}},"quorums":[{quorum}],
                "locks":{{"{LOCK}":{},"team/other":{},"team/plain":{}}},
                "users":{{"main":{{"username":"{USER}","passwordFile":"{}"}}}}}}"#,
            lock(true),
            lock(true),
            lock(false),
            self.path("password").display()
        );
        fs::write(self.path("locks.json"), text).unwrap();
    }

    /// Adds a field to the file of the locks, which stands for the API server.
    pub(crate) fn show_pods(&self, field: &str) {
        let path = self.path("locks.json");
        let text = fs::read_to_string(&path).unwrap();
        let object = text.trim_end().strip_suffix('}').unwrap();
        fs::write(path, format!("{object},{field}}}")).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.state.path().join("state")
    }

    pub(crate) fn kubelet(&self) -> PathBuf {
        self.path("kubelet")
    }

    /// Returns the command of an agent or a guardian. With `mount`, the process has the cgroups in a mount of its own.
    fn command(&self, what: &str, mount: Option<CgroupMount>) -> Command {
        let mut command = mount.map_or_else(|| Command::new(PROGRAM), |mount| mount.command(&self.root.0));
        command
            .arg(what)
            .arg("--state-dir")
            .arg(self.state())
            .arg("--cgroup-root")
            .arg(&self.cgroup_root)
            .arg("--kubelet-dir")
            .arg(self.kubelet())
            .env("RUST_LOG", "info");
        command
    }

    pub(crate) fn start_guardian(&mut self) {
        self.start_guardian_with(None);
    }

    pub(crate) fn start_guardian_with(&mut self, mount: Option<CgroupMount>) {
        let mut command = self.command("guardian", mount);
        self.guardian = Some(ChildGuard::spawn("guardian", &mut command));
    }

    pub(crate) async fn start_agent(&mut self) {
        self.start_agent_with(None).await;
    }

    pub(crate) async fn start_agent_with(&mut self, mount: Option<CgroupMount>) {
        let mut command = self.command("agent", mount);
        command.arg("--locks").arg(self.path("locks.json"));
        self.agent = Some(ChildGuard::spawn_with_input("agent", &mut command));
        self.line("agent runs").await;
    }

    pub(crate) fn agent(&mut self) -> &mut ChildGuard {
        self.agent.as_mut().unwrap()
    }

    /// Returns the first line of the agent that contains this text.
    pub(crate) async fn line(&self, text: &str) -> String {
        self.lines(text, 1).await.remove(0)
    }

    /// Returns the lines of the agent that contain this text, once there are `count` lines.
    pub(crate) async fn lines(&self, text: &str, count: usize) -> Vec<String> {
        let agent = self.agent.as_ref().unwrap();
        eventually(
            BOUND,
            &format!("{count} lines {text:?} of the agent"),
            async || {
                let lines = agent.stdout();
                let found: Vec<String> = lines.iter().filter(|line| line.contains(text)).cloned().collect();
                if found.len() >= count {
                    Ok(found)
                } else {
                    Err((lines, agent.stderr().last().cloned()))
                }
            },
        )
        .await
    }

    /// Asks the agent for a report.
    pub(crate) async fn report(&mut self) -> String {
        let before = self.count("ready=");
        self.agent().send_line("report");
        let lines = self.lines("ready=", before + 1).await;
        lines.last().cloned().unwrap()
    }

    /// Waits until a report of the agent contains this text.
    pub(crate) async fn until_reported(&mut self, text: &str) {
        eventually(BOUND, &format!("the agent reports {text}"), async || {
            let last = self.report().await;
            if last.contains(text) { Ok(()) } else { Err(last) }
        })
        .await;
    }

    pub(crate) fn count(&self, text: &str) -> usize {
        let lines = self.agent.as_ref().unwrap().stdout();
        lines.iter().filter(|line| line.contains(text)).count()
    }

    /// Deletes the table, into which agent and guardian may write at the same time.
    pub(crate) fn lose_table(&self) {
        redlock_testkit::eventually_blocking(BOUND, "the table is deleted", || {
            fs::remove_dir_all(self.state())
        });
    }

    pub(crate) fn cut(&self) {
        self.proxies.iter().for_each(|proxy| proxy.set(Mode::BlackHole));
    }

    pub(crate) fn heal(&self) {
        self.proxies.iter().for_each(Proxy::heal);
    }

    /// Makes a pod like the kubelet: the cgroup and the data of the volume, before the call to publish it.
    pub(crate) fn pod(&mut self) -> Pod {
        self.pods += 1;
        let uid = format!("00000000-0000-0000-0000-{:012}", self.pods);
        let Sandbox { uid, cgroup, target } = Sandbox::make(&self.root.0, &self.kubelet(), &uid);
        Pod {
            log: self.path(&format!("{uid}.log")),
            uid,
            cgroup,
            target,
            writers: Vec::new(),
        }
    }

    pub(crate) fn call(&mut self, pod: &Pod, lock: &str) {
        let (uid, target) = (&pod.uid, pod.target.display());
        let line = format!("publish {uid} team report-0 {lock} {target}");
        self.agent().send_line(&line);
    }

    pub(crate) fn unpublish(&mut self, pod: &Pod) {
        let line = format!("unpublish {} {}", pod.uid, pod.target.display());
        self.agent().send_line(&line);
    }

    /// Returns a pod that runs.
    pub(crate) async fn run_pod(&mut self) -> Pod {
        let mut pod = self.pod();
        self.call(&pod, "report");
        self.line(&format!("published {}", pod.uid)).await;
        pod.start();
        pod.writes().await;
        pod
    }

    /// Returns a candidate of a cluster, connected to the masters without a proxy.
    pub(crate) async fn candidate(&self, of: &str) -> Candidate {
        let config = MastersConfig {
            cluster: cluster(of),
            ..self.config.clone()
        };
        let Opened {
            masters,
            notices,
            tasks,
        } = open(&config);
        let (elector, task) = Elector::start(masters, notices, identity(of), Arc::new(Silent));
        let lock = lock_name(LOCK);
        let terms = Terms {
            fenced: true,
            ..Terms::of_own_work(cluster(of), timings())
        };
        elector.put(lock.clone(), terms);
        Candidate {
            elector,
            task,
            lock,
            keeper: Mutex::default(),
            _tasks: tasks,
        }
    }

    /// Returns a candidate that holds the lock and has marked its lease, and the token.
    pub(crate) async fn holder(&self, of: &str) -> (Candidate, FencingToken) {
        let candidate = self.candidate(of).await;
        let token = candidate.hold().await;
        (candidate, token)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // The processes end before the cgroups are removed.
        (self.agent, self.guardian) = (None, None);
        remove_pods(&self.root.0);
    }
}

pub(crate) fn timings() -> Timings {
    let given = GivenTimings {
        lease_duration: Some(LEASE),
        ..GivenTimings::default()
    };
    Timings::resolve(given, Duration::ZERO, Some(Duration::from_millis(500)), LONGEST).unwrap()
}

async fn held(elector: &Elector, lock: &LockName) -> FencingToken {
    eventually(BOUND, "the lock is held", async || {
        let seen = elector.watch(lock).ok_or("not contended for")?;
        let held = seen.borrow().authority_at(clock::now());
        held.map(|authority| authority.token).ok_or("not held")
    })
    .await
}

async fn mark(elector: &Elector, lock: &LockName, token: FencingToken) {
    let delay = Duration::from_secs(1);
    eventually(BOUND, "the lease is marked", async || {
        let marked = elector.mark(lock.clone(), token, Mark::Held { delay }).await;
        marked.then_some(()).ok_or(())
    })
    .await;
}

impl Candidate {
    /// Waits for the lease, and marks it.
    pub(crate) async fn hold(&self) -> FencingToken {
        let token = held(&self.elector, &self.lock).await;
        let (elector, lock) = (self.elector.clone(), self.lock.clone());
        // Marks again after each win, as the operator does: on a busy machine, a lease may be lost.
        let keeper = tokio::spawn(async move {
            let mut view = elector.watch(&lock).unwrap();
            let mut marked = token;
            while view.changed().await.is_ok() {
                let held = view.borrow().authority_at(clock::now()).map(|held| held.token);
                let delay = Duration::from_secs(1);
                if let Some(won) = held.filter(|won| *won != marked)
                    && elector.mark(lock.clone(), won, Mark::Held { delay }).await
                {
                    marked = won;
                }
            }
        });
        self.keeper.lock().unwrap().replace(keeper.abort_handle());
        mark(&self.elector, &self.lock, token).await;
        token
    }

    fn let_go(&self) {
        if let Some(keeper) = self.keeper.lock().unwrap().take() {
            keeper.abort();
        }
    }

    /// Ends the candidate at once, without a release.
    pub(crate) fn vanish(self) {
        self.let_go();
        self.task.abort();
    }

    /// Ends the candidate after all targets of its cluster have stopped.
    pub(crate) async fn end_cleanly(self, token: FencingToken) {
        self.let_go();
        let mut marked = token;
        // On a busy machine, a mark may be late, or the candidate may lose the lease and win another.
        eventually(BOUND, "the stop is confirmed", async || {
            let token = held(&self.elector, &self.lock).await;
            let mark = async |mark| self.elector.mark(self.lock.clone(), token, mark).await;
            if token != marked {
                let delay = Duration::from_secs(1);
                if !mark(Mark::Held { delay }).await {
                    return Err("not marked");
                }
                marked = token;
            }
            let stopped = mark(Mark::Closed).await && mark(Mark::Clean).await;
            stopped.then_some(()).ok_or("not confirmed")
        })
        .await;
        self.elector.remove(self.lock.clone(), ReleaseMode::Release);
        self.elector.shut_down(std::collections::HashSet::new());
        self.task.await.unwrap().unwrap();
    }
}

impl Pod {
    /// Starts a container in the pod, as the runtime does.
    pub(crate) fn start(&mut self) {
        self.start_program(&["write".as_ref(), self.log.clone().as_os_str()]);
    }

    pub(crate) fn start_program(&mut self, arguments: &[&std::ffi::OsStr]) {
        let name = format!("container-{}", self.writers.len());
        let program = [&[PROGRAM.as_ref()], arguments].concat();
        self.writers.push(start_container(&self.cgroup, &name, &program));
    }

    /// Returns the last moment at which code of the pod ran.
    pub(crate) fn last(&self) -> Option<BootInstant> {
        self.moments().last().copied()
    }

    pub(crate) fn moments(&self) -> Vec<BootInstant> {
        let bytes = fs::read(&self.log).unwrap_or_default();
        let chunks = bytes.chunks_exact(8);
        chunks
            .map(|chunk| BootInstant::from_nanos(u64::from_le_bytes(chunk.try_into().unwrap())))
            .collect()
    }

    /// Waits until code of the pod runs after this call.
    pub(crate) async fn writes(&self) {
        let begun = clock::now();
        eventually(BOUND, "the pod runs", async || {
            let last = self.last();
            if last > Some(begun) {
                Ok(())
            } else {
                Err((last, self.events()))
            }
        })
        .await;
    }

    pub(crate) fn events(&self) -> BTreeMap<String, bool> {
        let text = fs::read_to_string(self.cgroup.join("cgroup.events")).unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.map(|(key, value)| (key.to_owned(), value == "1")).collect()
    }

    /// Waits until every process in the pod is frozen.
    pub(crate) async fn frozen(&self) {
        eventually(BOUND, "the pod is frozen", async || {
            let events = self.events();
            if events["frozen"] { Ok(()) } else { Err(events) }
        })
        .await;
    }

    /// Waits until no process is in the pod.
    pub(crate) async fn empty(&self) {
        eventually(BOUND, "the pod is killed", async || {
            let events = self.events();
            if events["populated"] { Err(events) } else { Ok(()) }
        })
        .await;
    }

    pub(crate) fn file(&self, name: &str) -> String {
        fs::read_to_string(self.target.join(name)).unwrap_or_default()
    }

    /// Returns the end of the permit, as the pod reads it.
    pub(crate) fn valid_until(&self) -> BootInstant {
        let ms: u64 = self.file("valid-until-boot-milliseconds").parse().unwrap();
        BootInstant::from_nanos(ms * 1_000_000)
    }

    /// Returns the end of the permit in the table.
    pub(crate) fn stored_until(&self, world: &World) -> BootInstant {
        let text = fs::read_to_string(world.state().join("pods").join(&self.uid)).unwrap();
        let after = text.split("\"untilBootNanoseconds\":").nth(1).unwrap();
        let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
        BootInstant::from_nanos(digits.parse().unwrap())
    }

    /// Returns a watch that detects every later freeze of the pod, however short.
    pub(crate) fn watch(&self) -> FreezeWatch {
        let mut events = fs::File::open(self.cgroup.join("cgroup.events")).unwrap();
        std::io::read_to_string(&mut events).unwrap();
        FreezeWatch(events)
    }
}

/// The kernel marks the file after each change of `frozen` and `populated` since the read.
pub(crate) struct FreezeWatch(fs::File);

impl FreezeWatch {
    pub(crate) fn assert_never_frozen(&self) {
        let mut polled = [PollFd::new(self.0.as_fd(), PollFlags::POLLPRI)];
        poll(&mut polled, PollTimeout::ZERO).unwrap();
        let changed = polled[0].revents().unwrap().contains(PollFlags::POLLPRI);
        assert!(!changed, "the pod was frozen");
    }
}
