//! Runs agent and guardian as separate processes, for the tests of this package. The commands of the program
//! are `redlock node-agent` and `redlock node-guardian`.
//!
//! The agent takes calls as lines of standard input, `publish UID NAMESPACE NAME LOCK TARGET`, `unpublish UID
//! TARGET`, `report` and `end`, and writes each answer as one line. The tests run `write FILE` and `storm FILE` in a
//! pod.

use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use redlock_client::clock;

use redlock_node::{
    agent::{Agent, Options, PublishRequest},
    guardian,
    resolver::FileResolver,
    table::PodName,
};
use tokio::sync::mpsc;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const USAGE: &str =
    "usage: redlock-node guardian|agent --state-dir DIR --cgroup-root DIR [--kubelet-dir DIR] [--locks FILE]";

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, cause = ?error.source().map(ToString::to_string), "ended");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1).collect::<Vec<_>>().into_iter();
    let command = arguments.next().ok_or(USAGE)?;
    match (&*command, arguments.next()) {
        ("write", Some(file)) => return write_moments(file.as_ref()),
        ("storm", Some(file)) => return storm(file.as_ref()),
        (_, first) => arguments = first.into_iter().chain(arguments).collect::<Vec<_>>().into_iter(),
    }
    let mut given = BTreeMap::new();
    while let Some(name) = arguments.next() {
        given.insert(name, PathBuf::from(arguments.next().ok_or(USAGE)?));
    }
    let mut required = |name: &str| given.remove(name).ok_or(USAGE);
    let (state_dir, cgroup_root) = (required("--state-dir")?, required("--cgroup-root")?);
    let locks = required("--locks");
    let kubelet_dir = given.remove("--kubelet-dir");
    match &*command {
        "guardian" => {
            let options = guardian::Options {
                state_dir,
                cgroup_root,
                kubelet_dir,
            };
            Ok(guardian::run(&options, &guardian::Signals::block()?)?)
        }
        "agent" => {
            let options = Options {
                state_dir,
                cgroup_root,
                kubelet_dir,
            };
            let runtime = tokio::runtime::Runtime::new()?;
            runtime.block_on(agent(options, locks?))
        }
        _ => Err(USAGE.into()),
    }
}

/// Writes the boot-time clock every 0.2 ms, to show when code of a pod ran.
fn write_moments(file: &Path) -> Result<(), Failure> {
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    loop {
        file.write_all(&clock::now().as_nanos().to_le_bytes())?;
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Runs a thousand threads that sleep briefly, and one that starts processes without a pause.
fn storm(file: &Path) -> Result<(), Failure> {
    const THREADS: usize = 1_000;
    for _ in 0..THREADS {
        std::thread::spawn(|| {
            loop {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
    }
    std::fs::write(file, THREADS.to_string())?;
    loop {
        std::process::Command::new("/bin/true").status()?;
    }
}

async fn agent(options: Options, locks: PathBuf) -> Result<(), Failure> {
    let (agent, mut task) = Agent::start(options, Arc::new(FileResolver::new(locks)))?;
    let mut changes = agent.changes();
    let mut lines = lines();
    println!("agent runs");
    loop {
        tokio::select! {
            line = lines.recv() => match line {
                Some(line) => {
                    let agent = agent.clone();
                    tokio::spawn(async move { println!("{}", answer(&agent, &line).await) });
                }
                None => {
                    agent.shut_down();
                    return Ok(task.ended().await?);
                }
            },
            Ok(change) = changes.recv() => println!("changed {} {:?}", change.pod.uid, change.kind),
            ended = task.ended() => return Ok(ended?),
        }
    }
}

/// Returns the lines of standard input. The thread ends with the input or with the process.
fn lines() -> mpsc::UnboundedReceiver<String> {
    let (lines, received) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                return;
            }
        }
    });
    received
}

async fn answer(agent: &Agent, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    match &words[..] {
        ["publish", uid, namespace, name, lock, target] => {
            let request = PublishRequest {
                pod: PodName {
                    uid: (*uid).to_owned(),
                    namespace: (*namespace).to_owned(),
                    name: (*name).to_owned(),
                },
                lock: (*lock).to_owned(),
                target: (*target).into(),
            };
            match agent.publish(request).await {
                Ok(()) => format!("published {uid}"),
                Err(error) => format!("refused {uid}: {error}"),
            }
        }
        ["unpublish", uid, target] => match agent.unpublish(uid, target.as_ref()).await {
            Ok(()) => format!("unpublished {uid}"),
            Err(error) => format!("kept {uid}: {error}"),
        },
        ["end"] => {
            agent.shut_down();
            "asked to end".to_owned()
        }
        ["report"] => format!("ready={} {:?}", agent.ready(), agent.report().await),
        _ => format!("unknown call {line:?}"),
    }
}
